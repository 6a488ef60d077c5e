"""Expected failures. Each prints one line (what, where, what to do) and exits with 2; anything else is a bug."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


SHORTEST_START = 3
"""Letters from which the start of a name is taken for it."""
MOST_NEAR = 3
"""Most names in a hint where all known ones would be too long to read."""


class KvledgerError(Exception):
    """Root of every expected failure; its text is the whole line the user reads."""


class InputError(KvledgerError):
    """A log, trace or benchmark file that cannot be read as asked."""


class ConfigError(KvledgerError):
    """A fleet file, mapping, scenario, setting or command-line value that cannot be used."""


class CatalogError(KvledgerError):
    """A model, GPU, attention kind, quantisation or engine version nobody has described to us."""


class CapacityError(KvledgerError):
    """A deployment that cannot exist: weights or one request do not fit the memory."""


class DataError(KvledgerError):
    """A week, table or column that is not there, or an audit that found rows it must not find."""


class HomeError(KvledgerError):
    """A home directory that is locked by another run, read only, full or of a newer version."""


class BusyError(HomeError):
    """A home that another run writes to now: the same command goes well once that run has ended."""


class RunError(KvledgerError):
    """What surrounds the stages failed: a server that was named, a worker process that was ended from outside."""


class StoreError(RunError):
    """An object store that does not answer now, or answers that it cannot: later the same may go well."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Hint naming the known word nearest to `word`, as "; did you mean 'x'?", or an empty string.

    A word that goes on where `word` ends (H200 → H200-SXM-141GB) is nearer than one spelled alike (H20-96GB).
    """
    close = _close(word, known)
    return f"; did you mean '{close[0]}'?" if close else ""


def nearest_few(word: str, known: Iterable[str]) -> str:
    """Hint naming up to three known words near `word`, as "; did you mean 'x', 'y' or 'z'?", or an empty string.

    Empty for a known word too: what is wrong then is not its name.
    """
    words = list(known)
    if word in words:
        return ""
    first = _close(word, words)[:MOST_NEAR]
    alike = difflib.get_close_matches(word, words, n=MOST_NEAR, cutoff=0.7) if len(first) < MOST_NEAR else []
    few = [f"'{one}'" for one in dict.fromkeys([*first, *alike])][:MOST_NEAR]
    told = " or ".join(part for part in (", ".join(few[:-1]), *few[-1:]) if part)
    return f"; did you mean {told}?" if told else ""


def _close(word: str, known: Iterable[str]) -> list[str]:
    """Known words that go on where `word` ends, the shortest first, else the one spelled most alike."""
    others = sorted(set(known) - {word})
    begun = [other for other in others if len(word) >= SHORTEST_START and _folded(other).startswith(_folded(word))]
    return sorted(begun, key=len) or difflib.get_close_matches(word, others, n=1, cutoff=0.5)


def _folded(word: str) -> str:
    """`word` without case and without the marks that names are put together with."""
    return "".join(character for character in word.casefold() if character.isalnum())
