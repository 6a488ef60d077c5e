"""JSON records as logs really hold them: NaN, duplicate keys, cut-off and spliced lines, bad UTF-8, huge integers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from transforms.batches import Batch, Reject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DUPLICATE_KEY = "dup_key"
NOT_JSON = "not JSON"
NOT_AN_OBJECT = "not a JSON object"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BLANKS = re.compile(r"\s*")
_fast = msgspec.json.Decoder()
_sequential = json.JSONDecoder()


@dataclass(frozen=True)
class Record:
    """One decoded JSON object; `flags` says what was odd about its text."""

    position: int
    value: dict[str, Any]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoded:
    """The JSON objects of a batch, in file order, and the records that are none."""

    records: list[Record] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


def decode(batch: Batch, keys: Sequence[str] = ()) -> Decoded:
    """The batch's JSON objects and rejects.

    Duplicate keys: the last one wins, and the record is flagged `dup_key` where one of the top-level `keys` (or, for a
    record that needs the slow path, any key at all) stands twice.
    """
    out = Decoded()
    marks = [b'"' + key.encode() + b'":' for key in keys]
    for line, position in zip(batch.lines, batch.positions, strict=True):
        try:
            value = _fast.decode(line)
            flags: tuple[str, ...] = ()
            if marks and any(line.count(mark) > 1 for mark in marks):
                value, flags = parse_slowly(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            try:
                value, flags = parse_slowly(line)
            except (ValueError, RecursionError):
                out.rejects.append(Reject(position, NOT_JSON))
                continue
        if isinstance(value, dict):
            out.records.append(Record(position, value, flags))
        else:
            out.rejects.append(Reject(position, NOT_AN_OBJECT))
    return out


def parse(line: bytes) -> Any:
    """The value of one JSON text, quickly where it is sound, else as `parse_slowly` takes it; ValueError if none."""
    try:
        return _fast.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return parse_slowly(line)[0]


def parse_slowly(line: bytes) -> tuple[Any, tuple[str, ...]]:
    """The value of one JSON text and its flags; takes NaN, Infinity, duplicate keys and bad UTF-8. ValueError if none.

    Integers stay exact whatever their size; undecodable bytes become U+FFFD inside texts.
    """
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        out = dict(items)
        repeated = repeated or len(out) < len(items)
        return out

    value = json.loads(line.decode("utf-8", errors="replace"), object_pairs_hook=pairs)
    if _SURROGATE.search(line):
        value = _encodable(value)
    return value, ((DUPLICATE_KEY,) if repeated else ())


def one_after_the_other(line: bytes) -> Iterator[Any]:
    """The values of JSON texts that stand in one record with nothing but blanks between; ValueError at what is none."""
    text = line.decode("utf-8", errors="replace")
    start = _behind_blanks(text, 0)
    while start < len(text):
        try:
            value, end = _sequential.raw_decode(text, start)
        except RecursionError:
            raise ValueError(NOT_JSON) from None
        yield value
        start = _behind_blanks(text, end)


def array_elements(data: bytes) -> tuple[list[bytes], bytes]:
    """The JSON texts of the elements of an array, or of several one after the other, and what follows the last of them.

    What follows the last whole element is empty where nothing is cut off or damaged.
    """
    text = data.decode("utf-8", errors="replace")
    elements: list[bytes] = []
    start, end = _behind_blanks(text, 1), 0
    while start < len(text):
        if text[start] == "]":
            end = start = _behind_blanks(text, start + 1)
            if text[start : start + 1] != "[":
                break
            start = _behind_blanks(text, start + 1)
            continue
        try:
            _, end = _sequential.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start
            break
        elements.append(text[start:end].encode())
        end = start = _behind_blanks(text, end)
        if text[start : start + 1] == ",":
            start = _behind_blanks(text, start + 1)
        elif text[start : start + 1] != "]":
            break
    return elements, text[end:].encode()


def _behind_blanks(text: str, start: int) -> int:
    blanks = _BLANKS.match(text, start)
    return blanks.end() if blanks else start


def _encodable(value: Any) -> Any:
    """`value` with lone surrogates, which no UTF-8 can hold, replaced in all its texts."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def inner(value: Any) -> Any:
    """`value`, or what it decodes to where it is a text holding a JSON object or array (JSON inside JSON).

    A text of such a text is gone into too: a database's column of JSON texts, written as the text of JSON.
    """
    if isinstance(value, str) and value.startswith(("{", "[", '"{', '"[')):
        try:
            decoded = parse_slowly(value.encode("utf-8", errors="replace"))[0]
        except (ValueError, RecursionError):
            return value
        return inner(decoded) if isinstance(decoded, str) else decoded
    return value


def at(value: Any, *path: str) -> Any:
    """What stands at `path` inside nested objects; None where any step is missing or no object."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
