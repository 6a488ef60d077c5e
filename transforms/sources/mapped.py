"""Flat logs by a mapping: cells become canonical columns by whole-column rules; the flat formats are mapping files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.batches import Head, Parsed, Reject, Table
from transforms.canonical import SCHEMA
from transforms.fields.clock import clock_of, origin_us
from transforms.fields.columns import Column, block_ids, counts, instants, parsed_cell, seconds, texts
from transforms.fields.kinds import operation_of, server_of
from transforms.fields.outcome import outcome
from transforms.fields.usage import settle_usage
from transforms.fields.words import UNNAMED, finish_status, finish_word
from transforms.finish import INSTANTS
from transforms.flags import flagged
from transforms.mapping import WHOLE, FieldMap, Pick, parse_mapping
from transforms.plausible import DURATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Source

FORMAT = "mapped"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {}
HASH_BLOCK_MISMATCH = "hash_block_mismatch"
WORDS = ("status", "served_by", "operation", "finish_reason", "flags")
"""Columns of few distinct words."""
MAX_WORD_CHARACTERS = 64
UNNAMED_SPELLINGS = sorted({spelling for word in UNNAMED for spelling in (word, word.upper(), word.title(), "NaN")})
"""The words for no name as they are written."""
LONGEST_UNNAMED = max(map(len, UNNAMED))


def recognise(head: Head) -> str | None:
    """Never: a mapping is always given by the user."""
    del head
    return None


def fields_of(source: Source) -> FieldMap:
    """Which fields the columnar reader has to find for `source`."""
    return parse_mapping(source.map)


@dataclass
class _Rows:
    """Columns found so far, and what was wrong or odd in each row."""

    table: Table
    source: Source
    columns: dict[str, pl.Series] = field(default_factory=dict)
    reasons: list[pl.Series] = field(default_factory=list)
    flags: list[tuple[str, pl.Series]] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)

    def take(self, target: str, column: Column) -> None:
        """Keep one column and its findings."""
        self.columns[target] = column.values
        if column.reasons is not None:
            self.reasons.append(column.reasons)
        self.flags += column.flags


def canonicalise(table: Table, source: Source) -> Parsed:
    """One row per record of `table`; records with an unusable cell are rejected, marked ones ignored."""
    mapping = fields_of(source)
    rows = _Rows(table, source)
    for target, picks in mapping.picks.items():
        _fill(rows, target, picks)
    flags = _base_flags(rows)
    frame = pl.DataFrame(rows.columns).with_columns(source_position=table.positions)
    if flags is not None:
        frame = frame.with_columns(flags=flags)
    for word, where in rows.flags:
        frame = flagged(frame, where, word)
    for word in dict.fromkeys(rows.constants):
        frame = flagged(frame, pl.repeat(value=True, n=len(frame), eager=True), word)
    frame = _settle_first_token(_settle_status(_settle_blocks(frame, source)))
    frame = settle_usage(frame, source)
    kept, rejects = _without_rejects(frame, rows.reasons)
    return _without_ignored(kept, rejects, table, mapping)


def _fill(rows: _Rows, target: str, picks: tuple[Pick, ...]) -> None:
    filled: Column | None = None
    for pick in picks:
        column = _column(rows, target, pick)
        if filled is None:
            filled = column
            continue
        is_known = filled.values.is_not_null()
        filled.values = filled.values.zip_with(is_known, column.values)
        rows.flags += [(word, where & ~is_known) for word, where in column.flags]
        if column.reasons is not None:
            rows.reasons.append(pl.select(pl.when(~is_known).then(column.reasons)).to_series())
    assert filled is not None
    rows.take(target, filled)


def _column(rows: _Rows, target: str, pick: Pick) -> Column:
    table = rows.table
    if not pick.field:
        cells = pl.repeat(_constant_cell(pick.value, is_json=table.is_json), table.positions.len(), eager=True)
    else:
        cells = _replaced(table.cells[pick.field], pick, is_json=table.is_json)
    if target in INSTANTS or target == "arrived_at":
        return _instants(rows, cells, pick)
    if target in WHOLE:
        return counts(cells, is_json=table.is_json)
    if target in DURATIONS:
        return seconds(cells, pick.unit or "s", is_json=table.is_json)
    if target == "prefix_block_ids":
        return block_ids(cells)
    if target in WORDS:
        return _by_value(cells, target, pick.field, is_json=table.is_json)
    return Column(_names(cells, is_json=table.is_json))


def _names(cells: pl.Series, *, is_json: bool) -> pl.Series:
    """Names and ids, with the rules of `words.text`; an object or a list is none."""
    bare = texts(cells, is_json=is_json)
    if (bare.str.starts_with(" ") | bare.str.ends_with(" ")).any():
        bare = bare.str.strip_chars()
    if (bare.str.len_bytes() <= LONGEST_UNNAMED).any():
        bare = pl.select(pl.when(~bare.is_in(UNNAMED_SPELLINGS)).then(bare)).to_series()
    if not is_json:
        return bare
    is_float = cells.str.contains(r"^-?\d+\.0+$").fill_null(value=False)
    if is_float.any():
        bare = bare.zip_with(~is_float, bare.str.replace(r"\.0+$", ""))
    return pl.select(pl.when(~bare.str.contains(r"^[\[{]")).then(bare)).to_series()


def _constant_cell(value: Any, *, is_json: bool) -> str:
    return json.dumps(value) if is_json or not isinstance(value, str) else value


def _replaced(cells: pl.Series, pick: Pick, *, is_json: bool) -> pl.Series:
    """Cells with the pick's `words` in place of texts and NULL for its `missing` ones; 0.0 is the text 0 here."""
    if not pick.words and not pick.missing:
        return cells
    bare = texts(cells, is_json=is_json).str.replace(r"^(-?\d+)\.0+$", "$1")
    words = {text: _constant_cell(word, is_json=is_json) for text, word in pick.words.items()}
    out = cells.clear(len(cells)) if pick.is_words_only else cells
    for text, word in words.items():
        out = out.zip_with((bare != text).fill_null(value=True), pl.Series([word], dtype=pl.String))
    unknown = bare.is_in(list(pick.missing)) if pick.missing else None
    return out if unknown is None else pl.select(pl.when(~unknown).then(out)).to_series()


def _instants(rows: _Rows, cells: pl.Series, pick: Pick) -> Column:
    clock = clock_of(rows.source, rows.table.carry.setdefault(pick.field, {}), pick.unit)
    if pick.unit:
        clock.unit = pick.unit
    column = instants(cells, clock, is_json=rows.table.is_json)
    if pick.is_relative or rows.source.origin is not None:
        column.values = column.values + origin_us(rows.source, rows.constants)
    column.values = column.values.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return column


def _by_value(cells: pl.Series, target: str, field_name: str, *, is_json: bool) -> Column:
    """Columns of few distinct words, worked out once for each distinct cell."""
    known: list[str] = cells.unique().drop_nulls().to_list()
    if not known:
        return Column(pl.Series([None] * len(cells), dtype=SCHEMA[target]))
    found: list[tuple[Any, str | None]] = []
    for cell in known:
        try:
            value = parsed_cell(cell) if is_json or target == "flags" else cell
            found.append((_meaning(value, target, field_name), None))
        except ValueError as error:
            found.append((None, str(error)))
    values, reasons = zip(*found, strict=True)
    table = pl.DataFrame(
        {
            "cell": known,
            "value": pl.Series(values, dtype=SCHEMA[target]),
            "reason": pl.Series(reasons, dtype=pl.String),
        }
    )
    joined = cells.alias("cell").to_frame().join(table, on="cell", how="left", maintain_order="left")
    return Column(joined["value"], joined["reason"] if any(reasons) else None)


def _meaning(value: Any, target: str, field_name: str) -> Any:
    """The value of one cell in the lake's words; ValueError with a fixed reason where it is none."""
    if target == "status":
        return outcome(value, field_name)
    if target == "served_by":
        return server_of(value)
    if target == "operation":
        return operation_of(value)
    if target == "finish_reason":
        word = finish_word(value)
        return word if word is None or len(word) <= MAX_WORD_CHARACTERS else None
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _base_flags(rows: _Rows) -> pl.Expr | None:
    """The flags each row brings, never NULL: what is added to NULL would be lost. None where none brings any."""
    own = rows.columns.pop("flags", None)
    if own is None and rows.table.flags is None:
        return None
    none = pl.lit([], dtype=pl.List(pl.String))
    base = none if own is None or own.null_count() == len(own) else pl.lit(own).fill_null([])
    return base if rows.table.flags is None else base.list.concat(pl.lit(rows.table.flags))


def _settle_status(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the status that finish reasons give where the status itself says nothing worse than ok."""
    if "finish_reason" not in frame.columns:
        return frame
    odd: dict[str, list[str]] = {}
    words = {
        word: finish_status(word, odd.setdefault(word, [])) for word in frame["finish_reason"].unique().drop_nulls()
    }
    if not words:
        return frame
    by_reason = pl.col("finish_reason").replace_strict(words, default=None, return_dtype=pl.String)
    if "status" in frame.columns:
        by_reason = (
            pl.when(pl.col("status").fill_null("ok") == "ok").then(by_reason.fill_null("ok")).otherwise("status")
        )
    frame = frame.with_columns(status=by_reason)
    for word, flags in odd.items():
        for flag in flags:
            frame = flagged(frame, frame["finish_reason"] == word, flag)
    return frame


def _settle_blocks(frame: pl.DataFrame, source: Source) -> pl.DataFrame:
    """`frame` with block ids dropped where their number does not fit the prompt, and the block's size beside them."""
    if "prefix_block_ids" not in frame.columns or source.block_tokens is None:
        return frame
    block = source.block_tokens
    frame = frame.with_columns(prefix_block_tokens=pl.when(pl.col("prefix_block_ids").is_not_null()).then(block))
    if "prompt_tokens" not in frame.columns:
        return frame
    blocks = pl.col("prefix_block_ids").list.len().cast(pl.Int64)
    fits = blocks.is_between(pl.col("prompt_tokens") // block, (pl.col("prompt_tokens") + block - 1) // block)
    wrong = frame.select(~fits.fill_null(value=True)).to_series()
    if not wrong.any():
        return frame
    dropped = [pl.when(~wrong).then(pl.col(name)).alias(name) for name in ("prefix_block_ids", "prefix_block_tokens")]
    return flagged(frame.with_columns(dropped), wrong, HASH_BLOCK_MISMATCH)


def _settle_first_token(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` without first tokens that came with the end: those of answers that were not streamed.

    Only an answer of one token has its first token at its end.
    """
    is_longer = pl.col("output_tokens").fill_null(0) != 1 if "output_tokens" in frame.columns else pl.lit(value=True)
    for first, end in (("ttft_s", "e2e_s"), ("first_token_at", "ended_at")):
        if {first, end} <= set(frame.columns):
            is_stand_in = ((pl.col(first) == pl.col(end)) & is_longer).fill_null(value=False)
            frame = frame.with_columns(pl.when(~is_stand_in).then(first).alias(first))
    return frame


def _without_rejects(frame: pl.DataFrame, reasons: list[pl.Series]) -> tuple[pl.DataFrame, list[Reject]]:
    if not reasons:
        return frame, []
    reason = pl.select(pl.coalesce(reasons).alias("reason")).to_series()
    bad = frame.filter(reason.is_not_null())["source_position"]
    rejects = [Reject(p, r) for p, r in zip(bad, reason.drop_nulls(), strict=True)]
    return frame.filter(reason.is_null()), rejects


def _without_ignored(frame: pl.DataFrame, rejects: list[Reject], table: Table, mapping: FieldMap) -> Parsed:
    marks = [pl.col(name).is_not_null() for name in mapping.ignored_if]
    if mapping.ignored_unless:
        marks.append(pl.all_horizontal(pl.col(name).is_null() for name in mapping.ignored_unless))
    if not marks:
        return Parsed(frame, rejects)
    ignored = set(table.positions.filter(table.cells.select(pl.any_horizontal(marks)).to_series()))
    rejects = [reject for reject in rejects if reject.position not in ignored]
    return Parsed(frame.filter(~pl.col("source_position").is_in(list(ignored))), rejects, len(ignored))
