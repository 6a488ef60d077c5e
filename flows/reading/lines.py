"""Lines of a byte stream in batches, under a size cap, each with its offset in the decompressed stream."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH_BYTES = 16 << 20
MAX_LINE_BYTES = 64 << 20
"""OTLP exporters write lines of tens of MB (log_formats.md §2a); beyond this a line is damage and is rejected."""
NEWLINE, OBJECT_START, OBJECT_END = b"\n{}"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineBatch:
    """Lines without their ends, and the offset of each.

    Blank lines are only counted; lines above the cap are only hashed: `too_long` has (offset, sha256).
    """

    lines: list[bytes] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    blank: int = 0
    too_long: list[tuple[int, str]] = field(default_factory=list)

    def first(self, number: int) -> list[bytes]:
        """The first so many lines."""
        return self.lines[:number]


@dataclass(frozen=True)
class BareLines:
    """A block of lines that are one JSON object each and nothing else: like a LineBatch, but split when asked for."""

    block: bytes
    positions: list[int]
    blank: int = 0
    too_long: list[tuple[int, str]] = field(default_factory=list)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        return self.block[:-1].split(b"\n")

    def first(self, number: int) -> list[bytes]:
        """The first so many lines; the others are not split for them."""
        return self.block[:-1].split(b"\n", number)[:number]


@dataclass
class LineReader:
    """Whole lines of `chunks`, which begin at a line's start, `offset` bytes into the decompressed stream.

    After the last block `tail` is what follows the last line end, at `tail_position`; the caller knows whether it is a
    finished record.
    """

    chunks: Iterable[bytes]
    offset: int = 0
    batch_bytes: int = BATCH_BYTES
    max_line_bytes: int = MAX_LINE_BYTES
    tail: bytes = b""
    tail_position: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole lines, each with the offset of its first byte; lines above the cap go to `skipped`."""
        chunks = iter(self.chunks)
        held: list[bytes] = []
        position, size = self.offset, 0
        for chunk in chunks:
            held.append(chunk)
            size += len(chunk)
            if size < self.batch_bytes:
                continue
            block, rest = _cut(held)
            held, size = [rest], len(rest)
            if block:
                yield block, position
                position += len(block)
            if size > self.max_line_bytes:
                line = bytearray(rest)
                position += self._skip_line(line, chunks, position)
                held, size = [bytes(line)], len(line)
        block, self.tail = _cut(held)
        self.tail_position = position + len(block)
        if block:
            yield block, position

    def _skip_line(self, held: bytearray, chunks: Iterator[bytes], position: int) -> int:
        """Bytes of the line that begins with `held`, its end included; what follows it is left in `held`."""
        digest = hashlib.sha256()
        length = 0
        end = 0
        while not end:
            digest.update(held)
            length += len(held)
            held[:] = next(chunks, b"\n")
            end = held.find(b"\n") + 1
        digest.update(held[: end - 1])
        del held[:end]
        self.skipped.append((position, digest.hexdigest()))
        return length + end

    def batches(self) -> Iterator[LineBatch | BareLines]:
        """Batches of non-blank lines, without BOM, leading NUL bytes, CR and surrounding blanks."""
        for block, position in self.blocks():
            yield split(block, position, self.max_line_bytes)
        if self.skipped:
            yield LineBatch(too_long=self.skipped)


def _cut(chunks: list[bytes]) -> tuple[bytes, bytes]:
    """The whole lines of `chunks`, and what follows the last of them."""
    for number in range(len(chunks) - 1, -1, -1):
        if cut := chunks[number].rfind(b"\n") + 1:
            before, rest = chunks[:number], chunks[number + 1 :]
            return b"".join([*before, chunks[number][:cut]]), b"".join([chunks[number][cut:], *rest])
    return b"", b"".join(chunks)


def split(block: bytes, position: int, max_line_bytes: int = MAX_LINE_BYTES) -> LineBatch | BareLines:
    """The non-blank lines of a block that begins at `position`, each with its offset."""
    if block.endswith(b"}\n"):
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
        is_bare = (data[starts] == OBJECT_START).all() and (data[ends - 1] == OBJECT_END).all()
        if is_bare and int((ends - starts).max()) <= max_line_bytes:
            return BareLines(block, (starts + position).tolist())
    raw = block.split(b"\n")
    if block.endswith(b"\n"):
        raw.pop()
    out = LineBatch()
    offsets = accumulate((len(line) + 1 for line in raw), initial=position)
    for line, start in zip(raw, offsets, strict=False):
        text = clean(line)
        if len(text) > max_line_bytes:
            out.too_long.append((start, hashlib.sha256(line).hexdigest()))
        elif text:
            out.lines.append(text)
            out.positions.append(start)
    blank = len(raw) - len(out.lines) - len(out.too_long)
    return LineBatch(out.lines, out.positions, blank, out.too_long)


def clean(line: bytes) -> bytes:
    """A line without what wrapped it: NUL bytes that copy-truncate rotation left (otel-contrib#34832), BOM, CR.

    A mark stands where a file begins, which is inside where several were put one behind the other.
    """
    if line[:1] == b"\0":
        line = line.lstrip(b"\0")
    return line.removeprefix(BOM).strip()
