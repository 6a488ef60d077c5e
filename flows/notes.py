"""What an ingest has to say beside its counts: settings that the counts prove wrong, sources that changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.fields.conservation import SETTING_DOUBTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flows.commit import Staged

SETTING_CODE, DRIFT_CODE = "setting_disproved", "source_changed"


@dataclass(frozen=True)
class Note:
    """One warning: a word for programs, one line for people."""

    code: str
    text: str


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
