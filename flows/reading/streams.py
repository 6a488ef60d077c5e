"""Bytes of a log: plain, gzip (several members, cut off), zstd (native or length-framed), and UTF-16 as UTF-8."""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FRAME_LENGTH_BYTES = 4
"""The OTel file exporter writes [4-byte big-endian length][zstd frame] a message (log_formats.md §2a)."""
UTF_16_START = re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]", re.DOTALL)
"""How a text in UTF-16 begins, as Windows PowerShell and spreadsheets write it: a mark, and a character of ASCII."""
UNCOMPRESSED = ("none", "utf-16")
ZSTD_INPUT_BYTES = 1 << 11
"""Fed to the decompressor at once: four bytes may stand for a block of 128 KiB (RFC 8878, RLE blocks), so 64 MiB."""
MAX_HELD_BYTES = 64 << 20
"""A framed message up to this size is held until it is known to be whole."""
MAX_WINDOW_BYTES = 1 << 31
"""`zstd --long=31` at most; the shared traces need 2**27."""


@dataclass
class ByteStream:
    """The decompressed bytes of `path`, in chunks, from what lies in its bytes `start` to `end` (None: to its end).

    Text in UTF-16 that begins with a byte order mark comes as UTF-8; such a file is read from its start alone.
    After the last chunk `is_cut_off` says whether the compressed stream ended too early or in damage.
    """

    path: Path
    compression: str
    start: int = 0
    end: int | None = None
    is_cut_off: bool = False

    def __iter__(self) -> Iterator[bytes]:
        """The chunks, in order."""
        kinds = {
            "none": self._plain,
            "utf-16": self._plain,
            "gzip": self._gzip,
            "zstd": self._zstd,
            "framed": self._framed,
        }
        with self.path.open("rb") as raw:
            raw.seek(self.start)
            yield from kinds[self.compression](raw) if self.start else _as_utf_8(kinds[self.compression](raw))

    def _read(self, raw: IO[bytes], size: int) -> bytes:
        left = size if self.end is None else max(self.end - raw.tell(), 0)
        return raw.read(min(size, left))

    def _plain(self, raw: IO[bytes]) -> Iterator[bytes]:
        while chunk := self._read(raw, CHUNK_BYTES):
            yield chunk

    def _gzip(self, raw: IO[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        pending = b""
        while chunk := pending or self._read(raw, CHUNK_BYTES):
            if member.eof:
                chunk = chunk.lstrip(b"\0")  # gzip(1) too takes zero padding between members
                member = zlib.decompressobj(wbits=31) if chunk else member
            try:
                out = member.decompress(chunk, CHUNK_BYTES * 4) if chunk else b""
            except zlib.error:
                self.is_cut_off = True
                return
            pending = member.unused_data if member.eof else member.unconsumed_tail
            if out:
                yield out
        self.is_cut_off = not member.eof

    def _zstd(self, raw: IO[bytes]) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        frame = decompressor.decompressobj()
        pending = b""
        while chunk := pending or self._read(raw, ZSTD_INPUT_BYTES):
            if frame.eof:
                frame = decompressor.decompressobj()
            try:
                out = frame.decompress(chunk)
            except zstandard.ZstdError:
                self.is_cut_off = True
                return
            pending = frame.unused_data if frame.eof else b""
            if out:
                yield out
        self.is_cut_off = not frame.eof

    def _framed(self, raw: IO[bytes]) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        while header := self._read(raw, FRAME_LENGTH_BYTES):
            length = int.from_bytes(header, "big")
            frame = self._read(raw, length) if len(header) == FRAME_LENGTH_BYTES else b""
            message = decompressor.decompressobj()
            held = bytearray()
            is_ended = False
            try:
                for start in range(0, len(frame), ZSTD_INPUT_BYTES):
                    held += message.decompress(frame[start : start + ZSTD_INPUT_BYTES])
                    if len(held) > MAX_HELD_BYTES:
                        is_ended = held.endswith(b"\n")
                        yield bytes(held)
                        held.clear()
                    if message.eof:
                        break
            except zstandard.ZstdError:
                held.clear()
            if not message.eof:
                self.is_cut_off = True
                return
            yield bytes(held) if (held.endswith(b"\n") if held else is_ended) else bytes(held) + b"\n"


def _as_utf_8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(chunks, b"")
    if not UTF_16_START.match(first):
        if first:
            yield first
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
    yield decoder.decode(first).encode()
    for chunk in chunks:
        yield decoder.decode(chunk).encode()
    yield decoder.decode(b"", final=True).encode()
