"""The rules of numbers.py and clock.py for whole columns of texts: casts where they hold, value by value where not.

A column of cells is a String Series. Under JSON a cell is the JSON text of the value, so that `"13"` and `13` differ;
of CSV it is the bare text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from transforms.fields.clock import EXACT_FLOAT, ISO, LATEST_US, NO_ZONE, UNIT_BELOW, Clock
from transforms.fields.decode import parse_slowly
from transforms.fields.numbers import CLOCK_SKEW, NEGATIVE, NOT_INTEGRAL, PER_SECOND, amount, count
from transforms.finish import divided

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any, list[str]], Any]


RULES_END_US = 2_114_380_800_000_000
"""2037-01-01: Polars knows the changes of a zone's clock until then (measured), zoneinfo its rule beyond."""


@dataclass
class Column:
    """Values of one column; `reasons` says why a row's cell is unusable (NULL: it is fine), `flags` what was odd."""

    values: pl.Series
    reasons: pl.Series | None = None
    flags: list[tuple[str, pl.Series]] = field(default_factory=list)


def texts(cells: pl.Series, *, is_json: bool) -> pl.Series:
    """Bare texts: JSON strings without quotes and escapes, other JSON values as they are written; "" becomes NULL."""
    if is_json:
        is_string = cells.str.starts_with('"')
        if is_string.any():
            bare = pl.select(pl.when(is_string).then(cells.str.slice(1, cells.str.len_chars() - 2)).otherwise(cells))
            has_escape = is_string & cells.str.contains("\\", literal=True)
            cells = _patched(bare.to_series(), has_escape, cells, _unescaped)
    return pl.select(pl.when(cells != "").then(cells)).to_series()


def counts(cells: pl.Series, *, is_json: bool) -> Column:
    """Whole numbers ≥ 0 as Int64, with the rules of `numbers.count`; cells may be whole numbers already."""
    if cells.dtype == pl.Int64:
        return _without_negative(cells)
    bare = texts(cells, is_json=is_json)
    whole = bare.cast(pl.Int64, strict=False)
    left = bare.is_not_null() & whole.is_null()
    if not left.any():
        return _without_negative(whole)
    real = bare.cast(pl.Float64, strict=False)
    is_real = left & real.is_finite().fill_null(value=False)
    is_whole = is_real & (real == real.floor()) & (real.abs() < EXACT_FLOAT)
    is_below = is_real & (real < 0)
    values = pl.select(
        pl.when(is_below).then(-1).when(is_whole).then(real.cast(pl.Int64, strict=False)).otherwise(whole)
    ).to_series()
    reasons = pl.select(pl.when(is_real & ~is_below & (real != real.floor())).then(pl.lit(NOT_INTEGRAL))).to_series()
    out = _without_negative(values)
    out.reasons = reasons
    rest = left & ~is_whole & ~is_below & reasons.is_null()
    return _one_by_one(out, bare, rest, count) if rest.any() else out


def amounts(cells: pl.Series, *, is_json: bool) -> Column:
    """Numbers ≥ 0 as Float64, with the rules of `numbers.amount`."""
    bare = texts(cells, is_json=is_json)
    real = bare.cast(pl.Float64, strict=False)
    rest = bare.is_not_null() & real.is_null()
    out = _without_negative(pl.select(pl.when(real.is_finite()).then(real)).to_series())
    return _one_by_one(out, bare, rest, amount) if rest.any() else out


def seconds(cells: pl.Series, unit: str, *, is_json: bool) -> Column:
    """Durations in seconds from numbers in `unit`, with the rules of `numbers.seconds`."""
    out = amounts(cells, is_json=is_json)
    out.flags = [(CLOCK_SKEW, where) for _, where in out.flags]
    out.values = divided(out.values, PER_SECOND[unit])
    return out


def instants(cells: pl.Series, clock: Clock, *, is_json: bool) -> Column:
    """Instants as Int64 microseconds UTC, with the rules of `Clock.instant_us`."""
    bare = texts(cells, is_json=is_json)
    first = _first(bare)
    if first[:1].isspace():
        bare = bare.str.strip_chars()
    is_iso = ISO.fullmatch(first.strip())
    found = _isos(bare, clock) if is_iso else _epochs(bare, clock)
    if found is not None and ((found >= 0) & (found < LATEST_US)).all():
        return Column(found)
    return _in_turn(bare, clock)


def _first(bare: pl.Series) -> str:
    """The first known text; empty where none is."""
    known = bare.drop_nulls() if bare.null_count() else bare
    return str(known[0]) if len(known) else ""


def _epochs(bare: pl.Series, clock: Clock) -> pl.Series | None:
    """Microseconds where every cell is a whole epoch number of one unit; None where that does not hold."""
    whole = bare.cast(pl.Int64, strict=False)
    if whole.null_count() > bare.null_count() or whole.null_count() == len(whole):
        return None
    units = [clock.unit] if clock.unit else _units(whole)
    if len(units) != 1 or clock.carry.setdefault("time_unit", units[0]) != units[0]:
        return None
    per_second = PER_SECOND[units[0]]
    if per_second > PER_SECOND["us"]:
        return whole // (per_second // PER_SECOND["us"])
    return whole * (PER_SECOND["us"] // per_second) if int(whole.abs().max() or 0) < LATEST_US else None  # type: ignore[arg-type]


def _units(whole: pl.Series) -> list[str]:
    size = whole.abs()
    bounds = [0.0, *(below for below, _ in UNIT_BELOW), float("inf")]
    names = [*(unit for _, unit in UNIT_BELOW), "ns"]
    spans = zip(names, bounds, bounds[1:], strict=False)
    return [unit for unit, low, high in spans if ((size >= low) & (size < high)).any()]


def _isos(bare: pl.Series, clock: Clock) -> pl.Series | None:
    """Microseconds where every cell is an ISO text and all or none name a zone; None where that does not hold."""
    match = ISO.fullmatch(_first(bare).strip())
    assert match is not None
    # Nanoseconds: Arrow refuses a fraction longer than the unit, and takes long over refusing.
    kind = pa.timestamp("ns", "UTC" if match[8] else None)
    try:
        stamps = pc.cast(bare.to_arrow(compat_level=pl.CompatLevel.oldest()), kind).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    us = pl.DataFrame(pa.table({"us": stamps}))["us"] // (PER_SECOND["ns"] // PER_SECOND["us"])
    return us if match[8] else _local(us, clock)


def _local(us: pl.Series, clock: Clock) -> pl.Series | None:
    """UTC of wall-clock microseconds; None where an hour happens twice or never, which is settled row by row."""
    if us.null_count() == len(us):
        return us
    if clock.zone is None:
        raise InputError(NO_ZONE)
    if clock.zone.key == "UTC":
        return us
    if int(us.max() or 0) >= RULES_END_US:  # type: ignore[arg-type]
        return None
    naive = us.cast(pl.Datetime("us"))
    key = clock.zone.key
    early = naive.dt.replace_time_zone(key, ambiguous="earliest", non_existent="null")
    late = naive.dt.replace_time_zone(key, ambiguous="latest", non_existent="null")
    if early.null_count() > us.null_count() or (early != late).any():
        return None
    clock.carry.pop("ambiguous_us", None)
    clock.carry.pop("fold", None)
    return early.to_physical()


def _in_turn(bare: pl.Series, clock: Clock) -> Column:
    """Instants cell by cell, in order: the way that settles everything."""
    values: list[int | None] = []
    reasons: list[str | None] = []
    flags: dict[str, list[bool]] = {}
    for number, text in enumerate(bare):
        odd: list[str] = []
        try:
            values.append(clock.instant_us(_number_or_text(text), odd))
            reasons.append(None)
        except ValueError as error:
            values.append(None)
            reasons.append(str(error))
        for word in odd:
            flags.setdefault(word, [False] * len(bare))[number] = True
    found = [(word, pl.Series(word, rows, dtype=pl.Boolean)) for word, rows in flags.items()]
    return Column(pl.Series(values, dtype=pl.Int64), pl.Series(reasons, dtype=pl.String), found)


def _number_or_text(text: str | None) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return text


def block_ids(cells: pl.Series) -> Column:
    """Lists of unsigned 64-bit block ids from JSON arrays of whole numbers."""
    from transforms.fields.numbers import block_ids as ids_of

    empty = pl.Series([None] * len(cells), dtype=pl.List(pl.UInt64))
    return _one_by_one(Column(empty), cells, cells.is_not_null(), lambda value, _: ids_of(parsed_cell(value)))


def _without_negative(values: pl.Series) -> Column:
    below = values < 0
    if not below.any():
        return Column(values)
    return Column(pl.select(pl.when(~below).then(values)).to_series(), flags=[(NEGATIVE, below.fill_null(value=False))])


def _one_by_one(column: Column, bare: pl.Series, where: pl.Series, convert: Convert) -> Column:
    """`column` with the rows `where` is true converted by `convert`, each distinct text once."""
    known: dict[str, tuple[Any, str | None, list[str]]] = {}
    for text in bare.filter(where).unique():
        odd: list[str] = []
        try:
            known[text] = (convert(text, odd), None, odd)
        except ValueError as error:
            known[text] = (None, str(error), odd)
    values, reasons = (
        column.values.to_list(),
        [None] * len(bare) if column.reasons is None else column.reasons.to_list(),
    )
    negative = [False] * len(bare)
    for number in where.arg_true():
        value, reason, odd = known[bare[number]]
        values[number], reasons[number], negative[number] = value, reason, bool(odd)
    flags = column.flags + ([(NEGATIVE, pl.Series(negative))] if any(negative) else [])
    return Column(pl.Series(values, dtype=column.values.dtype), pl.Series(reasons, dtype=pl.String), flags)


def _patched(values: pl.Series, where: pl.Series, cells: pl.Series, convert: Callable[[str], str | None]) -> pl.Series:
    """`values` with the rows where `where` is true replaced by what `convert` makes of their cell."""
    if not where.any():
        return values
    patched = values.to_list()
    for number in where.fill_null(value=False).arg_true():
        patched[number] = convert(cells[number])
    return pl.Series(patched, dtype=pl.String)


def _unescaped(cell: str) -> str | None:
    value = parsed_cell(cell)
    return value if isinstance(value, str) else None


def parsed_cell(cell: str) -> Any:
    """The value of one JSON cell; ValueError where it is none."""
    try:
        return parse_slowly(cell.encode("utf-8", errors="replace"))[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None
