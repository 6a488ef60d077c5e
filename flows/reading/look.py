"""What kind of file a log is: how it is compressed, how its records lie in it, and its first records."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.reading.lines import MAX_LINE_BYTES, clean
from flows.reading.streams import CHUNK_BYTES, FRAME_LENGTH_BYTES, GZIP_MAGIC, UTF_16_START, ZSTD_MAGIC, ByteStream
from transforms.batches import Head
from transforms.errors import InputError
from transforms.fields.decode import array_elements, parse

if TYPE_CHECKING:
    from pathlib import Path

HEAD_LINES = 50
HEAD_ELEMENTS = 50
HEAD_CHARACTERS = 10_000
"""Longer texts and lists are cut in a head: it is looked at for its shape, and heads of all files are held at once."""
MAX_DOCUMENT_BYTES = 256 << 20
"""A JSON document is decoded whole; more than this does not fit the memory the product promises (1.5 GiB)."""
PARQUET_MAGIC = b"PAR1"
PICKLE_MAGICS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
TAR_MAGIC, TAR_MAGIC_OFFSET = b"ustar", 257
MAX_NAME_CHARACTERS, MAX_NAME_BLANKS = 64, 3
"""A CSV header has names, not sentences."""
PICKLED = (
    "is a Python pickle, which runs code when it is opened: it is never loaded; of SGLang take the request log "
    "(--log-requests --log-requests-format json) or --export-metrics-to-file instead of a request dump"
)
OPEN_ENDS = (b"{", b"[", b",")
"""How the first line of a JSON value ends that is written over several lines."""
EMPTY_ARRAY = re.compile(rb"\[\s*\]")
DELIMITERS = (",", "\t", ";", "|")


@dataclass(frozen=True)
class Look:
    """One file as it lies there.

    `layout`: "lines" (JSON lines or text), "events" (server-sent events), "document" (one JSON object over many lines),
    "array" (one JSON array), "csv", "parquet" or "empty" (no record in it). `columns` is the header of a CSV.
    """

    path: Path
    compression: str
    layout: str
    head: Head
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    is_json: bool = True


def look(path: Path) -> Look:
    """Compression, layout and head of the file at `path`; InputError where it cannot be read."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(FRAME_LENGTH_BYTES + len(ZSTD_MAGIC))
        if magic.startswith(PICKLE_MAGICS):
            raise InputError(f"{path}: {PICKLED}")
        compression = compression_of(magic)
        start = b"" if magic[:4] == PARQUET_MAGIC else _start(path, compression)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from error
    if magic[:4] == PARQUET_MAGIC:
        columns, rows = _parquet_shape(path)
        layout = "parquet" if rows else "empty"
        return Look(path, "none", layout, Head(path.name, columns=columns), columns, is_json=False)
    if start[TAR_MAGIC_OFFSET:].startswith(TAR_MAGIC):
        raise InputError(
            f"{path}: is a tar archive; unpack it (tar -xf; for .zst: zstd -d --long=27) and name the folder"
        )
    whole = start.lstrip(b"\0 \t\r\n\xef\xbb\xbf")
    if not whole:
        return Look(path, compression, "empty", Head(path.name))
    if b"\r" in whole.rstrip() and b"\n" not in whole and whole[:1] not in b"{[":
        raise InputError(f"{path}: its lines end in CR alone; write them with LF, as with tr '\\r' '\\n' < OLD > NEW")
    lines = _lines(start)
    layout = layout_of(lines)
    text = tuple(line[:HEAD_CHARACTERS].decode("utf-8", errors="replace") for line in lines)
    if layout == "csv":
        header = lines[0].decode("utf-8", errors="replace")
        delimiter = _delimiter(header)
        columns = csv_header(header, delimiter)
        head = Head(path.name, columns=columns, text=text)
        if len(lines) == 1 and len(start) < CHUNK_BYTES:
            layout = "empty"
        return Look(path, compression, layout, head, columns, delimiter, is_json=False)
    if layout == "array" and EMPTY_ARRAY.fullmatch(start.strip()):
        return Look(path, compression, "empty", Head(path.name, text=text))
    records = _records(path, compression, layout, lines)
    head = Head(path.name, records, text=text, is_document=layout in ("document", "array"))
    return Look(path, compression, layout, head, is_json=bool(records))


def emptiness(seen: Look) -> str:
    """What a file of layout "empty" has in place of records, as the end of a line."""
    if seen.columns:
        return "has column names and no rows; nothing to ingest"
    return "holds no records; nothing to ingest" if seen.head.text else "is empty; nothing to ingest"


def compression_of(magic: bytes) -> str:
    """Compression by the first eight bytes: "gzip", "zstd", or "framed": a length before each zstd frame.

    Of plain files "none", or "utf-16" where a mark says so: like a compressed file it is read from its start alone.
    """
    if magic.startswith(GZIP_MAGIC):
        return "gzip"
    if magic.startswith(ZSTD_MAGIC):
        return "zstd"
    if UTF_16_START.match(magic):
        return "utf-16"
    return "framed" if magic[FRAME_LENGTH_BYTES:].startswith(ZSTD_MAGIC) else "none"


EVENT_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""How lines of a stream of server-sent events begin (html.spec.whatwg.org, server-sent events)."""
ARRAY_STARTS = (b"", b"{", b"[", b'"', b"]")
"""What may follow the bracket of a JSON array of records."""


def layout_of(lines: list[bytes]) -> str:
    """How records lie in a file that begins with `lines`; a damaged first line does not decide it."""
    first = lines[0]
    if any(event_data(line) for line in lines) and all(line.startswith(EVENT_STARTS) for line in lines):
        return "events"
    if first.startswith(b"[") and first[1:].lstrip()[:1] not in ARRAY_STARTS:
        return "lines"  # of text that begins with a time in brackets
    has_records = any(line.startswith(b"{") and _parses(line) for line in lines[1:])
    is_whole = _parses(first)
    if not first.startswith((b"{", b"[")) and not (first.startswith(b'"') and is_whole):
        return "csv" if _is_header(first) and not has_records else "lines"
    goes_on = not is_whole and first.endswith(OPEN_ENDS)
    if first.startswith(b"["):
        return "lines" if has_records and not goes_on else "array"
    if is_whole or len(lines) == 1:
        return "lines"
    return "document" if goes_on or not has_records else "lines"


def event_data(line: bytes) -> bytes:
    """The JSON object that a line of a stream of server-sent events carries; empty for its other lines."""
    data = line.removeprefix(b"data:").lstrip()
    return data if len(data) < len(line) and data.startswith(b"{") else b""


def whole_document(stream: ByteStream) -> bytes:
    """All decompressed bytes of a JSON document; InputError above the size that is decoded whole."""
    held = bytearray()
    for chunk in stream:
        held += chunk
        if len(held) > MAX_DOCUMENT_BYTES:
            raise InputError(
                f"is one JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; "
                "write one record a line instead, as with jq -c '.[]'"
            )
    return clean(bytes(held))


def csv_header(line: str, delimiter: str) -> tuple[str, ...]:
    """Column names of a CSV header line."""
    return tuple(cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=delimiter), []))


def _start(path: Path, compression: str) -> bytes:
    held = b""
    for chunk in ByteStream(path, compression):
        held += chunk
        if len(held) >= CHUNK_BYTES and (b"\n" in held or len(held) > MAX_LINE_BYTES):
            break
    return held


def _lines(start: bytes) -> list[bytes]:
    lines = []
    for line in start.split(b"\n", HEAD_LINES * 2)[: HEAD_LINES * 2]:
        text = clean(line)
        if text:
            lines.append(text)
    return lines


def _is_header(first: bytes) -> bool:
    """Whether a line that is no JSON may be a CSV header: short cells without sentences or times in them."""
    text = first.decode("utf-8", errors="replace")
    try:
        cells = csv_header(text, _delimiter(text))
    except csv.Error:  # binary, or a cell longer than any name
        return False
    return bool(cells) and all(map(_is_name, cells))


def _is_name(cell: str) -> bool:
    is_text = cell.isprintable() and "\ufffd" not in cell
    is_short = len(cell) <= MAX_NAME_CHARACTERS and cell.count(" ") <= MAX_NAME_BLANKS
    return bool(cell) and is_text and is_short and not cell[0].isdigit()


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=lambda d: (header.count(d), -DELIMITERS.index(d)))


def _parses(line: bytes) -> bool:
    try:
        parse(line)
    except (ValueError, RecursionError):
        return False
    return True


def _records(path: Path, compression: str, layout: str, lines: list[bytes]) -> tuple[dict[str, Any], ...]:
    values: list[Any] = []
    if layout == "events":
        lines, layout = [data for line in lines if (data := event_data(line))], "lines"
    if layout == "lines":
        for line in lines[:HEAD_LINES]:
            try:
                values.append(parse(line))
            except (ValueError, RecursionError):
                continue
    else:
        values = _elements(whole_document(ByteStream(path, compression)), layout)
    return tuple(_cut(value) for value in values if isinstance(value, dict))


def _elements(data: bytes, layout: str) -> list[Any]:
    """The document, or the first elements of an array, of one that is cut off too."""
    try:
        document = parse(data)
    except (ValueError, RecursionError):
        whole = array_elements(data)[0] if layout == "array" else []
        return [parse(element) for element in whole[:HEAD_ELEMENTS]]
    return document[:HEAD_ELEMENTS] if isinstance(document, list) else [document]


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value[:HEAD_ELEMENTS]]
    return value[:HEAD_CHARACTERS] if isinstance(value, str) else value


def _parquet_shape(path: Path) -> tuple[tuple[str, ...], int]:
    """Columns and number of rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.read_metadata(path)
        return tuple(file.schema.to_arrow_schema().names), file.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: looks like Parquet but cannot be read; was it written whole?") from error
