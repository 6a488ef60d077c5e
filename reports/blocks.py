"""What a page is made of: charts and printed tables, the same for HTML, Markdown and the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

CHART_ROWS = 5000
"""Most rows one chart may hold; beyond that the marts must aggregate further."""

DATA_DIGITS = 6
"""Significant digits of the floats a chart carries; the warehouse has them all."""


@dataclass(frozen=True)
class Column:
    """One column of a printed table: mart column, heading and how its values are printed."""

    name: str
    label: str
    show: Callable[[Any], str]
    is_text: bool = False
    is_optional: bool = False
    """Whether the column is left out where no row knows it."""


@dataclass(frozen=True)
class Table:
    """A printed table: `rows` of texts under `labels`; `source` names the mart it is read from."""

    title: str
    labels: tuple[str, ...]
    is_text: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    source: str
    note: str = ""
    empty: str = "No rows this week."


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite `spec` reading the dataset "rows", with the rows and the words around it.

    `headings` names each column of `rows` (unit included) for the data table one click away.
    """

    chart_id: str
    title: str
    note: str
    alt: str
    source: str
    spec: Mapping[str, Any]
    rows: pl.DataFrame
    headings: Mapping[str, str]
    is_wide: bool = False
    is_tall: bool = False


def table(
    title: str, frame: pl.DataFrame, columns: Sequence[Column], source: str, *, note: str = "", empty: str = ""
) -> Table:
    """The printed table of `frame`: one row each, one text per column."""
    kept = [c for c in columns if not c.is_optional or frame[c.name].is_not_null().any()]
    rows = tuple(
        tuple(column.show(value) for column, value in zip(kept, row, strict=True))
        for row in frame.select(column.name for column in kept).iter_rows()
    )
    return Table(
        title=title,
        labels=tuple(column.label for column in kept),
        is_text=tuple(column.is_text for column in kept),
        rows=rows,
        source=source,
        note=note,
        empty=empty or "No rows this week.",
    )


def present(*parts: T | None) -> tuple[T, ...]:
    """The charts, tables or sections among `parts` that there are, in their order."""
    return tuple(part for part in parts if part is not None)


def text(value: object) -> str:
    """A text column's value as printed; "–" if unknown."""
    return "–" if value is None else str(value)


def chart_document(chart: Chart) -> dict[str, Any]:
    """`chart` as the JSON object the page's script draws: spec, fields with kind and heading, rows as lists."""
    frame = chart.rows
    if frame.height > CHART_ROWS:
        raise ValueError(f"chart {chart.chart_id} has {frame.height} rows, above {CHART_ROWS}: aggregate in the mart")
    fields = [
        {"name": name, "kind": _kind(dtype), "heading": chart.headings.get(name, name)}
        for name, dtype in frame.schema.items()
    ]
    return {"spec": dict(chart.spec), "fields": fields, "rows": [list(row) for row in _plain(frame).iter_rows()]}


def _kind(dtype: pl.DataType) -> str:
    return "moment" if dtype.is_temporal() else "number" if dtype.is_numeric() else "text"


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Moments as epoch ms, floats cut to the digits a chart can show, NaN and Infinity as NULL."""
    moments = [name for name, dtype in frame.schema.items() if dtype == pl.Datetime]
    floats = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    return frame.with_columns(
        *(pl.col(name).dt.epoch("ms") for name in moments),
        *(
            pl.when(pl.col(name).is_finite()).then(pl.col(name).round_sig_figs(DATA_DIGITS)).alias(name)
            for name in floats
        ),
    )
