"""From a file to canonical rows: batches of records through their format, piece by piece, with rejects and counts."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.identifiers import hash_tenants
from flows.reading.formats import module_of, with_defaults
from flows.reading.lines import BareLines, LineBatch
from flows.reading.look import look
from flows.reading.recognise import check_format
from flows.reading.records import RecordStream, sha256_hex
from flows.reading.tables import TableStream
from flows.reading.typed import typed_rows
from transforms.batches import Batch, Parsed
from transforms.canonical import SCHEMA
from transforms.finish import checked, completed, finish
from transforms.identity import content_ids, number_content, settled
from transforms.plausible import unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

    from transforms.fleet import Source

TOO_LONG = "line too long"


@dataclass(frozen=True)
class Rejected:
    """A rejected record: where it stands, why, and the sha256 of its raw text."""

    position: int
    reason: str
    sha256: str


@dataclass(frozen=True)
class Piece:
    """One batch made canonical: finished rows (with `content_id` where the source has no id), rejects, counts."""

    rows: pl.DataFrame
    rejects: list[Rejected]
    ignored: int = 0
    duplicates: int = 0
    varying: tuple[str, ...] = tuple(SCHEMA)
    """Columns that may differ from row to row; of the others each is NULL or one default throughout."""


@dataclass
class PartReader:
    """Reads one part of a file as Pieces; `records` afterwards knows how the part ended."""

    records: RecordStream
    source: Source
    source_file: str
    key: bytes | None = None
    catalog: Path | None = None
    carry: dict[str, Any] = field(default_factory=dict)
    valued: set[str] = field(default_factory=set)
    """Fields of a mapping of which some record so far has a value."""

    def pieces(self) -> Iterator[Piece]:
        """The part's pieces, in file order."""
        module = module_of(self.source.format, self.catalog)
        if hasattr(module, "fields_of"):
            yield from self._table_pieces(module)
            return
        batches: Iterable[LineBatch | BareLines] = self.records.batches()
        if module.UNIT == "file":
            batches = [_merged(batches)]
        shape = getattr(module, "SHAPE", None)
        for batch in batches:
            typed, odd = typed_rows(batch, shape, module.LENIENT_IF) if shape else (None, batch)
            given = Batch(self.source_file, odd.lines, odd.positions, self.carry, typed)
            parsed = module.canonicalise(given, self.source) if batch.positions else Parsed(pl.DataFrame())
            yield self._piece(parsed, _lookup(batch), batch.too_long, batch.blank)
        if hasattr(module, "rest"):
            yield self._piece(module.rest(self.carry, self.source), _no_raw, (), 0)

    def _table_pieces(self, module: ModuleType) -> Iterator[Piece]:
        stream = TableStream(self.records, module.fields_of(self.source), self.source_file, self.carry)
        for batch in stream.batches():
            cells = batch.table.cells
            self.valued.update(name for name in cells.columns if cells[name].null_count() < len(cells))
            parsed = (
                module.canonicalise(batch.table, self.source) if len(batch.table.positions) else Parsed(pl.DataFrame())
            )
            parsed = replace(parsed, rejects=[*parsed.rejects, *batch.rejects])
            yield self._piece(parsed, batch.raw, batch.too_long, batch.blank)

    def _piece(
        self, parsed: Parsed, raw: Callable[[int], bytes], too_long: Sequence[tuple[int, str]], blank: int
    ) -> Piece:
        given_rows = checked(parsed.rows)
        rows = completed(given_rows, self.source.format, self.source_file)
        reasons = [(r.position, r.reason) for r in parsed.rejects]
        given = set(given_rows.columns)
        lies = unusable(rows, given)
        if lies.null_count() < len(rows):
            reasons += rows.select("source_position", lies).drop_nulls("reason").rows()
            rows = rows.filter(lies.is_null())
        rejects = [Rejected(position, TOO_LONG, sha256) for position, sha256 in too_long]
        rejects += [Rejected(p, reason, sha256_hex(raw(p))) for p, reason in sorted(reasons)]
        given |= {"attempt"} if "record_id" in given else set()
        varying = tuple(name for name in SCHEMA if name in given)
        return Piece(self._identified(rows, given), rejects, parsed.ignored + blank, parsed.duplicates, varying)

    def _identified(self, rows: pl.DataFrame, given: Container[str]) -> pl.DataFrame:
        if self.key is not None and "tenant" in given:
            rows = rows.with_columns(tenant=hash_tenants(rows["tenant"], self.key))
        if "request_id" not in given:
            return rows.with_columns(content_ids(rows, self.source.format, given))
        without = rows["request_id"].is_null()
        if not without.any():
            return rows.with_columns(content_id=pl.lit(None, dtype=pl.UInt64))
        ids = content_ids(rows, self.source.format, given)
        return rows.with_columns(content_id=ids if without.all() else ids.set(~without, None))


def _lookup(batch: LineBatch | BareLines) -> Callable[[int], bytes]:
    """The raw record at a position; nothing is split or indexed until the first is asked for."""

    def raw(position: int) -> bytes:
        found = bisect_left(batch.positions, position)
        is_here = found < len(batch.positions) and batch.positions[found] == position
        return batch.lines[found] if is_here else _no_raw(position)

    return raw


def _no_raw(position: int) -> bytes:
    """No text: a call put together of records of several batches, of which the first is gone."""
    del position
    return b""


def _merged(batches: Iterable[LineBatch | BareLines]) -> LineBatch:
    out = LineBatch()
    blank = 0
    for batch in batches:
        out.lines.extend(batch.lines)
        out.positions.extend(batch.positions)
        out.too_long.extend(batch.too_long)
        blank += batch.blank
    return LineBatch(out.lines, out.positions, blank, out.too_long)


@dataclass(frozen=True)
class Reading:
    """A whole file in memory: canonical rows in order of arrival, rejects, counts and how the file ended."""

    rows: pl.DataFrame
    rejects: list[Rejected]
    ignored: int
    duplicates: int
    status: str


def read_rows(path: Path, source: Source, *, key: bytes | None = None, catalog: Path | None = None) -> Reading:
    """The file at `path` as canonical rows, without a home: for replay, calibrate, export and tests."""
    source = with_defaults(source, catalog)
    seen = look(path)
    check_format(seen, source, catalog)
    records = RecordStream(seen)
    pieces = list(PartReader(records, source, path.name, key, catalog).pieces())
    frames = [piece.rows for piece in pieces if len(piece.rows)]
    rows = numbered(pl.concat(frames)) if frames else finish(pl.DataFrame(), source.format, path.name)
    return Reading(
        rows.sort("arrived_at", "source", "request_id", "attempt", maintain_order=True),
        [reject for piece in pieces for reject in piece.rejects],
        sum(piece.ignored for piece in pieces) + records.ignored,
        sum(piece.duplicates for piece in pieces) + sum(map(len, frames)) - len(rows),
        records.status,
    )


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of one file in file order, each once, those without an id named by their content and its occurrence."""
    return settled(number_content(rows, rows.clear()).drop("content_id"))
