"""Cells of fields that lie inside the JSON of a column: `usage.in` of a CSV or Parquet column `usage`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.fields.decode import inner

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def column_of(name: str, known: Container[str]) -> str | None:
    """The column that holds field `name`: the one of that name, else the one named by the longest path before it."""
    path = name
    while path not in known:
        path, dot, _ = path.rpartition(".")
        if not dot:
            return None
    return path


def columns_of(names: Iterable[str], known: Container[str]) -> list[str]:
    """The columns that hold the fields `names`, each once."""
    return list(dict.fromkeys(held for name in names if (held := column_of(name, known)) is not None))


def field_cells(cells: pl.DataFrame, name: str) -> pl.Series:
    """Texts of field `name`, one a row of `cells`: a column, or what a column's JSON holds; NULL where absent."""
    held = column_of(name, cells.columns)
    if held is None:
        return pl.repeat(None, len(cells), dtype=pl.String, eager=True).alias(name)
    column = cells[held]
    if held == name:
        return column
    path = name[len(held) + 1 :]
    found = {text: _text_of(look_up(inner(text), path)) for text in column.unique().drop_nulls()}
    if not found:
        return column.cast(pl.String).alias(name)
    return column.replace_strict(found, default=None, return_dtype=pl.String).alias(name)


def look_up(value: Any, name: str) -> Any:
    """What key `name`, dots and all, else the path of keys it may stand for, leads to; texts of JSON are gone into."""
    if not isinstance(value, dict):
        return None
    if (found := value.get(name)) is not None:
        return found
    for key in name.split("."):
        value = inner(value)
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text_of(value: Any) -> str | None:
    """A JSON value as the bare text a CSV would have."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
