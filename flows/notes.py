"""What an ingest has to say beside its counts: settings that the counts prove wrong, sources that changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.fields.clock import ASSUMED_ORIGIN
from transforms.fields.conservation import SETTING_DOUBTS
from transforms.plausible import COUNTED_UNTIL_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flows.commit import Staged
    from flows.ingest import FileResult

SETTING_CODE, DRIFT_CODE = "setting_disproved", "source_changed"
REFUSED_CODE, REJECTED_CODE = "file_refused", "records_rejected"
MOST_FILES = 5
"""Files that are told one by one."""


@dataclass(frozen=True)
class Note:
    """One warning: a word for programs, one line for people."""

    code: str
    text: str


def refusals(files: Sequence[FileResult]) -> list[Note]:
    """What an ingest could not use: files refused as a whole, then records rejected, for the first MOST_FILES each."""
    refused = [f"{file.source_file} ({file.source}): {file.reason}" for file in files if file.status == "refused"]
    rejected = [
        f"{file.source_file} ({file.source}): {file.rejected:,} of {file.read:,} records rejected"
        for file in files
        if file.rejected
    ]
    return [*_told(REFUSED_CODE, refused), *_told(REJECTED_CODE, rejected)]


def _told(code: str, texts: Sequence[str]) -> list[Note]:
    notes = [Note(code, text) for text in texts[:MOST_FILES]]
    more = len(texts) - MOST_FILES
    return [*notes, Note(code, f"the same of {more:,} more files; kvledger ingest lists them")] if more > 0 else notes


def left_out(files: Sequence[FileResult]) -> str:
    """The files that gave nothing because they were refused or empty, as one line; empty where there are none."""
    out = []
    for status in ("refused", "empty"):
        names = [file.source_file for file in files if file.status == status]
        more = f" and {len(names) - MOST_FILES:,} more" if len(names) > MOST_FILES else ""
        if names:
            out.append(f"{len(names):,} {status} ({', '.join(names[:MOST_FILES])}{more})")
    return f"left out of {len(files):,} files: {', '.join(out)}" if out else ""


def assumed_days(staged: Iterable[Staged]) -> list[Note]:
    """One note where all arrivals of files lie in 1970: they count from a start that nobody named.

    The review says the same of a week's rows (sql/marts/mart_data_warnings.sql, under the same code).
    """
    files = [file for file in staged if file.runs and all(run["last_us"] < COUNTED_UNTIL_US for run in file.runs)]
    if not files:
        return []
    more = f" and {len(files) - 1:,} other{'s' * (len(files) > 2)}" if len(files) > 1 else ""  # noqa: PLR2004 - plural
    text = (
        f"{files[0].key[1]} ({files[0].key[0]}){more}: stamps count from a start that is not named, so the day of the "
        "rows is assumed: the hour of the week says nothing; name it with --origin (or origin in [[sources]])"
    )
    return [Note(ASSUMED_ORIGIN, text)]


def doubted_settings(staged: Iterable[Staged]) -> Iterator[Note]:
    """One note per file and source setting that the file's own sums of tokens contradict."""
    for file in staged:
        doubts: Counter[str] = Counter()
        for part in file.parts:
            doubts.update(part["profile"]["doubts"])
        rows = sum(run["rows"] for run in file.runs)
        for flag, number in sorted(doubts.items()):
            setting, fit = SETTING_DOUBTS[flag]
            option = f"--{setting.replace('_', '-')} {fit}"
            yield Note(
                SETTING_CODE,
                f"{file.key[1]} ({file.key[0]}): in {number:,} of {rows:,} rows the token counts only add up with "
                f'{setting} = "{fit}"; read it again with {option} (or {setting} in [[sources]])',
            )
