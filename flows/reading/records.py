"""Records of a file as JSON texts in batches, whatever its layout: lines, one JSON document or array, CSV rows."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from flows.reading.csv_rows import check_columns_once, csv_spans
from flows.reading.lines import BATCH_BYTES, BOM, MAX_LINE_BYTES, BareLines, LineBatch, LineReader, clean
from flows.reading.look import Look, event_data, whole_document
from flows.reading.streams import UNCOMPRESSED, ByteStream
from transforms.fields.decode import array_elements, one_after_the_other, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


SAMPLED_RECORDS = 500
"""Of each part so many records, the first, are looked at for names of fields (flows/profile.py): a new field may stand
on few lines, but what a new release of a writer brings stands on most."""


@dataclass
class RecordStream:
    """The records in bytes `start` to `end` of a file (None: to its end); only plain files can start inside.

    `is_last` says that nothing of the file follows: only then may a last line without its end be unfinished.
    After the last batch: `status` is "complete", "growing" (an unfinished last line was left, `next_offset` is its
    start) or "truncated" (the compressed stream is cut off); `has_open_tail` says that the last record taken had no
    line end, so that a later run must not go on behind it.
    """

    seen: Look
    start: int = 0
    end: int | None = None
    is_last: bool = True
    batch_bytes: int = BATCH_BYTES
    status: str = "complete"
    next_offset: int = 0
    has_open_tail: bool = False
    ignored: int = 0
    sample: Callable[[Sequence[bytes]], None] | None = None
    """Is given the first JSON texts, once."""
    _stream: ByteStream = field(init=False)

    def __post_init__(self) -> None:
        """Open nothing yet; only name the stream."""
        self._stream = ByteStream(self.seen.path, self.seen.compression, self.start, self.end)

    def batches(self) -> Iterator[LineBatch | BareLines]:
        """Batches of JSON texts with their positions."""
        for batch in self._batches():
            if self.sample is not None and batch.positions:
                self.sample(batch.first(SAMPLED_RECORDS))
                self.sample = None
            yield batch

    def _batches(self) -> Iterator[LineBatch | BareLines]:
        if self.seen.layout in ("document", "array"):
            yield self._elements()
        elif self.seen.layout == "csv":
            yield from self._csv_rows()
        elif self.seen.layout == "events":
            yield from self._events()
        elif self.seen.layout == "lines":
            reader = LineReader(self._stream, self.start, self.batch_bytes)
            yield from reader.batches()
            yield self._last(reader)
        if self._stream.is_cut_off:
            self.status = "truncated"

    def _events(self) -> Iterator[LineBatch]:
        """What the lines of server-sent events carry; their other lines (`event:`, `[DONE]`) count as blank ones."""
        reader = LineReader(self._stream, self.start, self.batch_bytes)
        for batch in reader.batches():
            told = zip(map(event_data, batch.lines), batch.positions, strict=True)
            kept = [(data, position) for data, position in told if data]
            blank = batch.blank + len(batch.lines) - len(kept)
            yield LineBatch([data for data, _ in kept], [position for _, position in kept], blank, batch.too_long)
        last = event_data(clean(reader.tail))
        self.next_offset = reader.tail_position + len(reader.tail)
        if last and _parses(last):
            yield LineBatch([last], [reader.tail_position])
        elif reader.tail.strip():
            self.ignored += 1

    def csv_blocks(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole CSV records with their offsets; a quoted cell may hold line ends."""
        reader = LineReader(self._stream, self.start, self.batch_bytes)
        held, begin = b"", self.start
        for block, position in reader.blocks():
            begin = begin if held else position
            held += block
            if b'"' not in held or held.count(b'"') % 2 == 0 or len(held) > MAX_LINE_BYTES:
                yield held, begin
                held = b""
        last = held + reader.tail
        begin = begin if held else reader.tail_position
        self.next_offset = begin + len(last)
        if self._stream.is_cut_off:
            self.status = "truncated"
        if not clean(last):
            return
        is_open = self.seen.compression in UNCOMPRESSED and self.is_last
        if last.count(b'"') % 2 == 0 and last.count(self.seen.delimiter.encode()) >= len(self.seen.columns) - 1:
            self.has_open_tail = is_open
            yield last + b"\n", begin
            return
        self.ignored += 1
        if is_open:
            self.status, self.next_offset = "growing", begin

    def _last(self, reader: LineReader) -> LineBatch:
        """What follows the last line end: a record if it is whole, else left for the next run."""
        text = clean(reader.tail)
        self.next_offset = reader.tail_position + len(reader.tail)
        if not text:
            return LineBatch()
        is_open = self.seen.compression in UNCOMPRESSED and self.is_last
        if _is_whole(text, self.seen):
            self.has_open_tail = is_open
            return LineBatch([text], [reader.tail_position])
        if is_open:
            self.next_offset = reader.tail_position
            self.status = "growing"
        if is_open or self._stream.is_cut_off:
            self.ignored += 1
            return LineBatch()
        return LineBatch([text], [reader.tail_position])

    def _elements(self) -> LineBatch:
        data = whole_document(self._stream)
        if self.seen.layout != "array":
            return LineBatch([data], [0])
        try:
            elements = [bytes(raw) for raw in msgspec.json.decode(data, type=list[msgspec.Raw])]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            elements = self._whole_elements(data)
        return LineBatch(elements, list(range(len(elements))))

    def _whole_elements(self, data: bytes) -> list[bytes]:
        """The elements of an array that is cut off, or damaged: then what follows the last whole one is one too."""
        elements, rest = array_elements(data)
        if not elements:
            return [data]
        if not rest:
            return elements
        if data.endswith(b"]"):
            return [*elements, rest]
        self.ignored += 1
        self.status = "growing" if self.seen.compression in UNCOMPRESSED else "truncated"
        return elements

    def _csv_rows(self) -> Iterator[LineBatch]:
        csv.field_size_limit(MAX_LINE_BYTES)
        names, delimiter = list(self.seen.columns), self.seen.delimiter
        check_columns_once(names, names)
        is_headed = self.start == 0
        for block, position in self.csv_blocks():
            rows = csv_spans(block, delimiter, len(names))
            out = LineBatch(blank=int(rows.is_blank.sum()))
            spans = pairwise([*rows.starts.tolist(), len(block)])
            for (start, end), is_blank in zip(spans, rows.is_blank, strict=True):
                if is_blank:
                    continue
                if is_headed:
                    is_headed = False
                    self.ignored += 1
                    continue
                line = block[start:end].removeprefix(BOM)
                text = io.StringIO(line.decode("utf-8", errors="replace"), newline="")
                cells = next(csv.reader(text, delimiter=delimiter), [])
                if [cell.strip() for cell in cells] == names:  # of a file that was put behind another
                    self.ignored += 1
                    continue
                out.lines.append(json.dumps(_cells(names, cells)).encode())
                out.positions.append(position + start)
            yield out


def _cells(header: list[str], row: list[str]) -> dict[str, str | None] | list[str]:
    """A CSV row as an object; a row of another width stays a list, which no format takes for a record."""
    if len(row) != len(header):
        return row
    return {name: cell or None for name, cell in zip(header, row, strict=True)}


def _is_whole(text: bytes, seen: Look) -> bool:
    """Whether a last line is finished: one or several JSON texts, or any line of a log that is no JSON."""
    if not text.startswith((b"{", b"[")):
        return not seen.is_json or _parses(text)
    return _parses(text) or (text.endswith((b"}", b"]")) and _is_sequence(text))


def _parses(text: bytes) -> bool:
    try:
        parse(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_sequence(text: bytes) -> bool:
    try:
        return all(True for _ in one_after_the_other(text))
    except ValueError:
        return False


def sha256_hex(line: bytes) -> str:
    """The sha256 of a raw record: all that is kept of the text of a rejected one."""
    return hashlib.sha256(line).hexdigest()
