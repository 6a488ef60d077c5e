"""Which rows are the same row: ids of the source where it has them, else the content of the row."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from transforms.canonical import SCHEMA
from transforms.finish import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Container

    Bits = np.ndarray[Any, np.dtype[np.uint64]]

BESIDE_CONTENT = frozenset(
    ("request_id", "attempt", "source", "source_file", "source_position", "flags", "record_id", "precedence")
)
CONTENT = tuple((number, name) for number, name in enumerate(SCHEMA) if name not in BESIDE_CONTENT)
"""Columns that make a row's content, with their place in the schema: a tag that stays when columns are added."""


GAMMA, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Constants of the SplitMix64 generator (Steele, Lea, Flood 2014): a bijection of 64 bits that spreads every bit."""


MIXED_ROWS = 16_384
"""Rows mixed at a time: three arrays of them fit a processor's second cache (measured: half the time)."""


def content_ids(rows: pl.DataFrame, source: str, given: Container[str] = SCHEMA) -> pl.Series:
    """A 64-bit hash of each row's content as UInt64: of the format's name and every known value that is no default.

    Equal content gives an equal hash, whatever batch it came in, on any machine and with any version. `given` names
    the columns that may hold anything but NULL and defaults. Texts enter by their sha256, numbers as they are, mixed
    column by column, where DESIGN.md has a sha256 of each row. Measured on a million rows of `azure`, CPU time per row:
    this 0.06 us, a row's text and DuckDB's sha256 of it 0.65 us, hashlib 1.1 us, the whole ingest 1.9 us: a third more.
    The first 64 bits of a sha256 are no safer: either way two of a billion different rows share a hash with 2.7 %
    probability, and rows are only compared where they arrived in the same microsecond.
    """
    state = np.full(len(rows), _text_hash(source), dtype=np.uint64)
    for number, name in CONTENT:
        if name not in given or rows[name].null_count() == len(rows):
            continue
        column = rows[name]
        known = None if not column.null_count() else column.is_not_null()
        if name in DEFAULTS:
            known = (column != DEFAULTS[name]).fill_null(value=False)
        tag = np.uint64((number + 1) * GAMMA % 2**64)
        _mix_in(state, _as_bits(column), tag, None if known is None or known.all() else known.to_numpy())
    return pl.Series("content_id", state)


def _mix_in(state: Bits, bits: Bits, tag: np.uint64, known: Any) -> None:
    """Mix one column's bits into the rows' `state`, where `known`; in blocks that stay in the processor's cache."""
    spare = np.empty(MIXED_ROWS, dtype=np.uint64)
    for start in range(0, len(state), MIXED_ROWS):
        before = state[start : start + MIXED_ROWS]
        beside = spare[: len(before)]
        mixed = bits[start : start + MIXED_ROWS] + tag
        _mix(mixed, beside)
        mixed ^= before
        _mix(mixed, beside)
        before[:] = mixed if known is None else np.where(known[start : start + MIXED_ROWS], mixed, before)


def _mix(state: Bits, spare: Bits) -> None:
    """SplitMix64's output function, in place."""
    for shift, factor in ((30, MIX_1), (27, MIX_2), (31, None)):
        np.right_shift(state, np.uint64(shift), out=spare)
        np.bitwise_xor(state, spare, out=state)
        if factor is not None:
            np.multiply(state, factor, out=state)


def _as_bits(column: pl.Series) -> Bits:
    """64 bits per value; those of NULL say nothing."""
    if isinstance(column.dtype, pl.List):
        column = column.cast(pl.List(pl.String)).list.join(",")
    if column.dtype == pl.String:
        known = column.unique().drop_nulls()
        hashes = pl.Series([int(_text_hash(text)) for text in known], dtype=pl.UInt64)
        return column.replace_strict(known, hashes, default=0, return_dtype=pl.UInt64).to_numpy()
    if column.dtype == pl.Float64:
        return (column.fill_null(0.0) + 0.0).to_numpy().view(np.uint64)
    return column.to_physical().fill_null(0).cast(pl.Int64).to_numpy().view(np.uint64)


def _text_hash(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


TWIN_US = 50_000
"""LiteLLM logs a call bridged between APIs twice, with starts within 50 ms (BerriAI/litellm#15740)."""

RESOLVE_COLUMNS = (
    "source", "request_id", "attempt", "record_id", "precedence", "arrived_at", "status", "prompt_tokens",
    "output_tokens", "source_file", "source_position",
)  # fmt: skip
"""What `resolve` looks at, beside `origin` (run number; the lake's are negative) and `row` (row number inside it)."""


def resolve(rows: pl.DataFrame) -> pl.DataFrame:
    """Of rows with ids: which do not stay, and which attempt number changes; columns origin, row, keep, attempt.

    All rows that share a (source, request_id) must be among `rows`. Of several records of one row the one of highest
    precedence stays, then of most output, then the earliest. Attempts of one call without distinct numbers of their
    own are numbered by arrival; a call that was logged on two paths at once is one.
    """
    calls = rows.select(pl.col("source").hash() ^ pl.col("request_id").hash()).to_series()
    rows = rows.filter(calls.is_duplicated())  # one that is alone has nothing to settle
    own = pl.coalesce("record_id", pl.concat_str("request_id", pl.lit("#"), pl.col("attempt").fill_null(0)))
    by_rank = ["precedence", "output_tokens", "arrived_at", "origin", "source_file", "source_position", "row"]
    ranked = rows.with_columns(own.alias("key"), pl.col("precedence").fill_null(0)).sort(
        by_rank, descending=[True, True] + [False] * 5, nulls_last=True, maintain_order=True
    )
    ranked = ranked.with_columns(keep=pl.struct("source", "key").is_first_distinct())
    kept = ranked.filter("keep").sort("source", "request_id", "arrived_at", "attempt", "key", nulls_last=True)
    kept = kept.with_columns(keep=~_is_twin())
    kept = kept.with_columns(number=_attempt_number().over("source", "request_id"))
    changed = kept.filter(~pl.col("keep") | (pl.col("number") != pl.col("attempt").fill_null(1)))
    columns = ("origin", "row", "keep", "attempt")
    dropped = ranked.filter(~pl.col("keep"))
    return pl.concat([dropped.select(columns), changed.with_columns(attempt="number").select(columns)])


def settled(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of one file in memory, each once and with its attempt number, as `resolve` finds them."""
    placed = rows.with_columns(origin=pl.lit(0, dtype=pl.Int32), row=pl.int_range(pl.len(), dtype=pl.UInt32))
    found = resolve(placed.filter(pl.col("request_id").is_not_null()).select(*RESOLVE_COLUMNS, "origin", "row"))
    return decided(placed, found).drop("origin", "row").with_columns(pl.col("attempt").fill_null(1))


def decided(rows: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """`rows` without those that do not stay, with the attempt numbers that `resolve` found."""
    if decisions.is_empty() or rows.is_empty():
        return rows
    joined = rows.join(decisions.rename({"attempt": "found"}), on=("origin", "row"), how="left", maintain_order="left")
    kept = joined.filter(pl.col("keep").fill_null(value=True))
    return kept.with_columns(attempt=pl.coalesce("found", "attempt")).drop("found", "keep")


def _is_twin() -> pl.Expr:
    """Whether a row, sorted by call and arrival, is its predecessor logged once more on another path."""
    same = [pl.col(n) == pl.col(n).shift() for n in ("source", "request_id", "prompt_tokens", "output_tokens")]
    near = (pl.col("arrived_at") - pl.col("arrived_at").shift()).dt.total_microseconds() <= TWIN_US
    well = pl.col("status").is_in(("ok", "length"))
    counted = (pl.col("output_tokens") > 0) & pl.col("record_id").is_not_null()
    return pl.all_horizontal(*same, near, well, well.shift(), counted).fill_null(value=False)


def _attempt_number() -> pl.Expr:
    """The attempt's number inside its call: as logged where these are distinct, else its place by arrival."""
    logged = pl.col("attempt").filter("keep")
    is_clear = (logged.null_count() == 0) & (logged.n_unique() == logged.len())
    place = pl.col("keep").cast(pl.Int32).cum_sum()
    return pl.when(is_clear).then("attempt").otherwise(place)


def number_content(fresh: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """`fresh` rows with a `request_id` made of content and its occurrence in the file, where the source has none.

    `fresh` is in order of file and position; `kept` are the lake's rows of the same instants: a file read on from where
    an earlier run ended goes on counting there.
    """
    if fresh["content_id"].null_count() == len(fresh):
        return fresh
    keys = ("source", "source_file", "content_id")
    number = pl.int_range(1, pl.len() + 1).over(keys)
    if len(kept):
        earlier = pl.col("request_id").str.extract(r"^([0-9a-f]{16})-\d+$").str.to_integer(base=16, dtype=pl.UInt64)
        before = kept.select("source", "source_file", content_id=earlier).drop_nulls()
        counted = fresh.join(before.group_by(keys).len("before"), on=keys, how="left", maintain_order="left")
        number += counted["before"].fill_null(0)
    numbered = fresh.with_columns(number=number)
    ids = request_ids(numbered["content_id"], numbered["number"])
    return fresh.with_columns(request_id=fresh["request_id"].zip_with(fresh["content_id"].is_null(), ids))


def request_ids(content_ids: pl.Series, numbers: pl.Series | None = None) -> pl.Series:
    """The id of a row without one: its content in 16 hex digits, "-", and its occurrence (1 where not given)."""
    first = pl.DataFrame(pa.table({"request_id": id_texts(id_bytes(content_ids))}))["request_id"]
    if numbers is None or (numbers == 1).all():
        return first
    return pl.select(pl.concat_str(first.str.head(ID_BYTES - 1), numbers.cast(pl.String))).to_series()


def id_bytes(content_ids: pl.Series, own: pl.Series | None = None) -> Any:
    """`request_ids` of first occurrences as an array of ID_BYTES bytes each, and where a row has no content its `own`.

    None where one of these has another length.
    """
    values = content_ids.fill_null(0).to_numpy()
    text = np.empty(len(values), dtype=ID_PARTS)
    for start in range(0, len(values), MIXED_ROWS):
        part, block = values[start : start + MIXED_ROWS], text[start : start + MIXED_ROWS]
        block["high"] = _hex_digits(part >> np.uint64(32))
        block["low"] = _hex_digits(part & np.uint64(0xFFFFFFFF))
        block["end"] = FIRST
    if own is not None:
        places = np.flatnonzero(content_ids.is_null().to_numpy())
        given = own.gather(places).cast(pl.Binary)
        if not (given.bin.size() == ID_BYTES).fill_null(value=False).all():
            return None
        text.view(f"S{ID_BYTES}")[places] = given.to_numpy()
    return text


def id_texts(ids: Any) -> Any:
    """An array of ids of one length in bytes as an Arrow array of large texts."""
    offsets = np.arange(0, ids.nbytes + 1, ids.dtype.itemsize, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(ids), pa.py_buffer(offsets.data), pa.py_buffer(ids.data))


def _hex_digits(values: Bits) -> Bits:
    """The eight hex digits of numbers of 32 bits, as the bytes of big-endian 64-bit numbers."""
    for shift, kept in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F)):
        values = (values | (values << np.uint64(shift))) & np.uint64(kept)
    letters = ((values + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return values + np.uint64(0x3030303030303030) + letters * np.uint64(ord("a") - ord("9") - 1)


def shares_instant(stamps: pl.Series) -> pl.Series:
    """Whether each of the sorted `stamps` has an equal one beside it: only then can two contents be equal."""
    us = stamps.to_physical().to_numpy()
    same = us[1:] == us[:-1]
    return pl.Series(np.append(same, False) | np.append(False, same)) if len(us) else pl.Series([], dtype=pl.Boolean)


ID_BYTES = 18
ID_PARTS = np.dtype([("high", ">u8"), ("low", ">u8"), ("end", "S2")])
FIRST = b"-1"
