"""Which rows are the same row: ids of the source where it has them, else the content of the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from transforms.canonical import SCHEMA
from transforms.finish import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Container

BESIDE_CONTENT = frozenset(
    ("request_id", "attempt", "source", "source_file", "source_position", "flags", "record_id", "precedence")
)
CONTENT = tuple((number, name) for number, name in enumerate(SCHEMA) if name not in BESIDE_CONTENT)
"""Columns that make a row's content, with their place in the schema: a tag that stays when columns are added."""


def content_text(rows: pl.DataFrame, source: str, given: Container[str] = SCHEMA) -> pl.Series:
    """One text per row: the format's name, then tag and value of every column that is known and no default.

    Two rows have equal texts when format and canonical values are equal, whatever batch they came in. `given` names
    the columns that may hold anything but NULL and defaults.
    """
    pieces = [pl.lit(source)]
    for number, name in CONTENT:
        if name not in given or rows[name].null_count() == len(rows):
            continue
        value = _as_text(name)
        if name in DEFAULTS:
            value = pl.when(pl.col(name) != DEFAULTS[name]).then(value)
        pieces.append(pl.lit(f"\x1f{number}=") + value)
    return rows.select(pl.concat_str(pieces, ignore_nulls=True).alias("content")).to_series()


def _as_text(name: str) -> pl.Expr:
    dtype = SCHEMA[name]
    column = pl.col(name)
    if isinstance(dtype, pl.List):
        return column.cast(pl.List(pl.String)).list.join(",")
    if isinstance(dtype, pl.Datetime):
        return column.to_physical().cast(pl.String)
    return column.cast(pl.String)


def occurrence(content_ids: pl.Series) -> pl.Series:
    """1-based occurrence of each content id, in the order given."""
    frame = content_ids.alias("id").to_frame()
    return frame.select(pl.int_range(1, pl.len() + 1).over("id")).to_series()


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
    own = pl.coalesce("record_id", pl.concat_str("request_id", pl.lit("#"), pl.col("attempt").fill_null(0)))
    by_rank = ["precedence", "output_tokens", "arrived_at", "origin", "source_file", "source_position", "row"]
    ranked = rows.with_columns(own.alias("key"), pl.col("precedence").fill_null(0)).sort(
        by_rank, descending=[True, True] + [False] * 5, nulls_last=True, maintain_order=True
    )
    ranked = ranked.with_columns(keep=pl.struct("source", "key").is_first_distinct())
    kept = ranked.filter("keep").sort("source", "request_id", "arrived_at", "attempt", "key", nulls_last=True)
    kept = kept.with_columns(keep=~_is_twin())
    kept = kept.with_columns(number=_attempt_number().over("source", "request_id"))
    changed = kept.filter(~pl.col("keep") | pl.col("number").ne_missing(pl.col("attempt")))
    columns = ("origin", "row", "keep", "attempt")
    dropped = ranked.filter(~pl.col("keep"))
    return pl.concat([dropped.select(columns), changed.with_columns(attempt="number").select(columns)])


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
    """`fresh` rows with a `request_id` made of `content_id` and its occurrence in the file, where the source has none.

    `fresh` is in order of file and position; `kept` are the lake's rows of the same span: a file read on from where an
    earlier run ended goes on counting there.
    """
    if fresh["content_id"].null_count() == len(fresh):
        return fresh
    number = pl.int_range(1, pl.len() + 1).over("source", "source_file", "content_id")
    if fresh["content_id"].is_duplicated().any() or len(kept):
        before = kept.select(
            "source", "source_file", content_id=pl.col("request_id").str.extract(r"^([0-9a-f]{16})-\d+$")
        )
        counted = before.drop_nulls().group_by("source", "source_file", "content_id").len("before")
        fresh = fresh.join(counted, on=("source", "source_file", "content_id"), how="left", maintain_order="left")
        number = number + pl.col("before").fill_null(0)
    else:
        number = pl.lit(1)
    ids = pl.concat_str("content_id", pl.lit("-"), number.cast(pl.String))
    return fresh.with_columns(request_id=pl.coalesce("request_id", ids))
