"""From a format's own columns to lake columns: types, defaults, derived durations and the plausibility of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.canonical import SCHEMA
from transforms.plausible import doubted

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULTS = {"operation": "chat", "served_by": "backend", "status": "ok"}
INSTANTS = {"ended_at": pl.Datetime("us", "UTC"), "first_token_at": pl.Datetime("us", "UTC")}
FORMAT_SCHEMA: dict[str, pl.DataType] = {**SCHEMA, **INSTANTS}


def frame(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Rows given as dicts, as a frame of canonical columns; `arrived_at` and its kin as integers count us UTC."""
    names = {name for row in rows for name in row}
    columns = {}
    for name, dtype in FORMAT_SCHEMA.items():
        if name in names:
            columns[name] = _column(name, [row.get(name) for row in rows], _input_type(dtype))
    return pl.DataFrame(columns)


def _column(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    if any(isinstance(value, pl.Series) for value in values):
        return pl.Series(name, values).cast(dtype)  # with a dtype given, polars walks every element in Python
    return pl.Series(name, values, dtype=dtype, strict=True)


def _input_type(dtype: pl.DataType) -> pl.DataType:
    return pl.Int64() if isinstance(dtype, pl.Datetime) else dtype


def finish(rows: pl.DataFrame, source: str, source_file: str) -> pl.DataFrame:
    """One row per row of `rows`, every column of SCHEMA in order; rows without an arrival keep a NULL there.

    Durations come from `ended_at` and `first_token_at` where not given; what cannot be is unknown (plausible.doubted).
    """
    return completed(checked(rows), source, source_file)


def checked(rows: pl.DataFrame) -> pl.DataFrame:
    """The given columns of `rows` in the lake's types, with durations derived and without what cannot be.

    `flags` are among them only where they were given or something is odd: a column of empty lists costs more to make
    and to look at than one of numbers (measured on `azure`: a tenth of a worker's time).
    """
    given = [name for name in FORMAT_SCHEMA if name in rows.columns]
    rows = rows.select(_typed(name, rows.schema[name]) for name in given)
    if "flags" in given:
        rows = rows.with_columns(pl.col("flags").fill_null([]))
    return doubted(_derive_durations(rows))


def completed(rows: pl.DataFrame, source: str, source_file: str) -> pl.DataFrame:
    """`rows` as `checked` gives them with every column of SCHEMA in order: defaults, else NULL."""
    if not rows.width:
        return pl.DataFrame(schema=SCHEMA)
    present = set(rows.columns)
    defaults = [
        pl.col(name).fill_null(value) if name in present else pl.lit(value, dtype=SCHEMA[name]).alias(name)
        for name, value in DEFAULTS.items()
    ]
    if "flags" not in present:
        defaults.append(pl.lit([], dtype=pl.List(pl.String)).alias("flags"))
    rows = _with_attempts(rows).with_columns(*defaults, source=pl.lit(source), source_file=pl.lit(source_file))
    missing = [pl.lit(None, dtype=dtype).alias(n) for n, dtype in SCHEMA.items() if n not in rows.columns]
    return rows.with_columns(missing).select(*SCHEMA)


def _with_attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with attempt 1 where none is given; rows with a `record_id` are numbered among their call's later."""
    attempt = pl.col("attempt") if "attempt" in rows.columns else pl.lit(None, dtype=pl.Int32)
    if "record_id" not in rows.columns:
        return rows.with_columns(attempt=attempt.fill_null(1))
    alone = pl.col("record_id").is_null()
    return rows.with_columns(attempt=pl.when(alone).then(attempt.fill_null(1)).otherwise(attempt))


def _typed(name: str, dtype: pl.DataType) -> pl.Expr:
    """Column `name` in the lake's type; a turn or a number of calls that no 32 bits hold is damage, and unknown."""
    wanted = FORMAT_SCHEMA[name]
    return pl.col(name) if dtype == wanted else pl.col(name).cast(wanted, strict=wanted != pl.Int32)


def _derive_durations(rows: pl.DataFrame) -> pl.DataFrame:
    if "arrived_at" not in rows.columns:
        return rows.drop(n for n in INSTANTS if n in rows.columns)
    for instant, duration in (("ended_at", "e2e_s"), ("first_token_at", "ttft_s")):
        if instant not in rows.columns:
            continue
        derived = divided((rows[instant] - rows["arrived_at"]).dt.total_microseconds(), 1_000_000)
        if duration in rows.columns:
            derived = rows[duration].zip_with(rows[duration].is_not_null(), derived)
        rows = rows.with_columns(derived.alias(duration)).drop(instant)
    return rows


def divided(values: pl.Series, divisor: float) -> pl.Series:
    """`values` / `divisor` as floats, each rounded once.

    Polars multiplies by the reciprocal of a scalar, and does so or not by the number of rows: the last bit of a
    duration would depend on the batch it was read in.
    """
    return values.cast(pl.Float64) / pl.repeat(float(divisor), len(values), eager=True)
