"""What an ingest has to say beside its counts: settings that the counts prove wrong, sources that changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.fields.conservation import SETTING_DOUBTS

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
