"""Bytes of a log as they were written: plain, gzip (several members, cut off), zstd (native or length-framed)."""

from __future__ import annotations

import struct
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
ZSTD_INPUT_BYTES = 1 << 16
"""Fed to the decompressor at once; small, because a frame may expand a thousandfold."""
MAX_WINDOW_BYTES = 1 << 31
"""`zstd --long=31` at most; the shared traces need 2**27."""


@dataclass
class ByteStream:
    """The decompressed bytes of `path` from byte `start` to `end` (plain files only), in chunks.

    After the last chunk `is_cut_off` says whether the compressed stream ended too early or in damage.
    """

    path: Path
    compression: str
    start: int = 0
    end: int | None = None
    is_cut_off: bool = False

    def __iter__(self) -> Iterator[bytes]:
        """The chunks, in order."""
        with self.path.open("rb") as raw:
            if self.compression == "none":
                yield from self._plain(raw)
            elif self.compression == "gzip":
                yield from self._gzip(raw)
            elif self.compression == "zstd":
                yield from self._zstd(raw)
            else:
                yield from self._framed(raw)

    def _plain(self, raw: IO[bytes]) -> Iterator[bytes]:
        raw.seek(self.start)
        left = None if self.end is None else self.end - self.start
        while left is None or left > 0:
            chunk = raw.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk

    def _gzip(self, raw: IO[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        pending = b""
        while chunk := pending or raw.read(CHUNK_BYTES):
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
        while chunk := pending or raw.read(ZSTD_INPUT_BYTES):
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
        while header := raw.read(FRAME_LENGTH_BYTES):
            if len(header) < FRAME_LENGTH_BYTES:
                self.is_cut_off = True
                return
            (length,) = struct.unpack(">I", header)
            frame = raw.read(length)
            try:
                message = decompressor.decompressobj().decompress(frame)
            except zstandard.ZstdError:
                self.is_cut_off = True
                return
            if len(frame) < length:
                self.is_cut_off = True
                return
            yield message if message.endswith(b"\n") else message + b"\n"
