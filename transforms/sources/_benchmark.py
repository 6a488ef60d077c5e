"""What results of load generators share: how a failed request is told, and objects written one after the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Reject
from transforms.fields.decode import NOT_AN_OBJECT, NOT_JSON, Record, decode, one_after_the_other
from transforms.fields.words import failure_status

if TYPE_CHECKING:
    from collections.abc import Iterator

HTTP_CODE = re.compile(r"\b[45]\d\d\b")
SEPARATORS = re.compile(r"[\s_-]+")
TOLD_CHARACTERS = 400
"""Of an error only the head of its last line is looked at: above it are tracebacks, below it whole answers."""
PHRASES = {"toomanyrequests": "429", "requesttimeout": "408", "gatewaytimeout": "504"}
"""HTTP reasons that a client writes without their code, blanks taken out."""


def told_failure(told: Any) -> str:
    """Status of a failed request from the text a client has of it: a code, an HTTP reason, an exception's name."""
    lines = str(told or "").strip().splitlines()
    last = lines[-1][:TOLD_CHARACTERS] if lines else ""
    words = SEPARATORS.sub("", last.lower())
    code = next((code for phrase, code in PHRASES.items() if phrase in words), None)
    found = HTTP_CODE.search(last)
    return failure_status(code or (found[0] if found else None), words)


def objects(batch: Batch) -> Iterator[Record | Reject]:
    """The JSON objects of a batch, several in one record where they were written one after the other, and the rejects.

    Of such a record that is cut off in its last object, those before it are taken.
    """
    for line, position in zip(batch.lines, batch.positions, strict=True):
        decoded = decode(Batch("", [line], [position]))
        if not decoded.rejects or decoded.rejects[0].reason != NOT_JSON:
            yield from decoded.records
            yield from decoded.rejects
            continue
        yield from _in_sequence(line, position)


def _in_sequence(line: bytes, position: int) -> Iterator[Record | Reject]:
    try:
        for value in one_after_the_other(line):
            yield Record(position, value) if isinstance(value, dict) else Reject(position, NOT_AN_OBJECT)
    except ValueError:
        yield Reject(position, NOT_JSON)
