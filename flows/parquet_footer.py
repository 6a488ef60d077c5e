"""Footers of Parquet files as plain values and back: the part of Thrift's compact protocol that they are written in.

Sources: apache/thrift, doc/specs/thrift-compact-protocol.md; apache/parquet-format, src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAGIC = b"PAR1"
LENGTH_BYTES = 4
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DOUBLE_BYTES = 8
LOW_BITS, MORE = 0x7F, 0x80
"""Of each byte of a number: seven bits of it, and whether another byte follows."""
LONG_LIST = 15
"""A list header of this size says that the size follows."""

Struct = dict[int, tuple[int, Any]]
"""Field number -> (type, value), in the order written; a list is (type of its items, items)."""


def footer_of(file: bytes | memoryview) -> Struct:
    """The footer of a whole Parquet file (parquet.thrift: FileMetaData)."""
    end = len(file) - len(MAGIC) - LENGTH_BYTES
    length = int.from_bytes(file[end : end + LENGTH_BYTES], "little")
    return _Reader(bytes(file[end - length : end])).struct()


def struct_at(data: bytes, at: int) -> tuple[Struct, int]:
    """The structure that begins at byte `at`, such as a page's header, and where it ends."""
    reader = _Reader(data, at)
    return reader.struct(), reader.at


def struct_bytes(struct: Struct) -> bytes:
    """A structure as it is written."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def footer_bytes(footer: Struct) -> bytes:
    """What ends a Parquet file: its footer, the footer's length and the magic word."""
    out = struct_bytes(footer)
    return out + len(out).to_bytes(LENGTH_BYTES, "little") + MAGIC


@dataclass
class _Reader:
    data: bytes
    at: int = 0

    def struct(self) -> Struct:
        out: Struct = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            out[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self.value(kind))
        return out

    def value(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == BINARY:
            return self.bytes(self.unsigned())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            head = self.byte()
            size = head >> 4 if head >> 4 != LONG_LIST else self.unsigned()
            return head & 15, [self.value(head & 15) for _ in range(size)]
        if kind in (TRUE, FALSE, BYTE):
            return self.byte()
        if kind == DOUBLE:
            return self.bytes(DOUBLE_BYTES)
        raise ValueError(f"no Parquet footer has values of Thrift type {kind}")

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def unsigned(self) -> int:
        out = shift = 0
        while (byte := self.byte()) & MORE:
            out |= (byte & LOW_BITS) << shift
            shift += 7
        return out | byte << shift

    def signed(self) -> int:
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in struct.items():
        if 0 < number - before <= LONG_LIST:
            out.append(number - before << 4 | kind)
        else:
            out.append(kind)
            _put_signed(out, number)
        before = number
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _put_signed(out, value)
    elif kind == BINARY:
        _put_unsigned(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        inner, items = value
        size = min(len(items), LONG_LIST)
        out.append(size << 4 | inner)
        if size == LONG_LIST:
            _put_unsigned(out, len(items))
        for item in items:
            _put(out, inner, item)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def _put_unsigned(out: bytearray, value: int) -> None:
    while value > LOW_BITS:
        out.append(value & LOW_BITS | MORE)
        value >>= 7
    out.append(value)


def _put_signed(out: bytearray, value: int) -> None:
    _put_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)
