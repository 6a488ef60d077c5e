"""SQL models as data: tests/sql/<model>/<case>/ holds the input tables and the rows expected, one CSV each.

An empty field is NULL. Columns that an input leaves out are NULL, tables it leaves out are empty; only the columns
named in expected.csv are compared, whatever the order of rows.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from flows.deployments import DEPLOYMENTS, KV_GROUPS, MEMORY, SETTINGS
from flows.dictionary import dictionary
from flows.lake_days import LAKE_DAYS
from flows.macros import macros
from flows.models import Model, models
from flows.raw_inputs import FILES, HOURS, REJECTS, REQUESTS, SERVES

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/*/expected.csv"))
POLARS_TYPES = {
    pl.String(): "varchar",
    pl.Int32(): "integer",
    pl.Int64(): "bigint",
    pl.Float64(): "double",
    pl.Boolean(): "boolean",
    pl.Datetime("us"): "timestamp",
    pl.Date(): "date",
}
RAW: dict[str, Mapping[str, str]] = {
    "raw_requests": REQUESTS,
    "raw_rejects": REJECTS,
    "raw_files": FILES,
    **{
        name: {column: POLARS_TYPES[dtype] for column, dtype in schema.items()}
        for name, schema in {
            "raw_deployments": DEPLOYMENTS,
            "raw_kv_groups": KV_GROUPS,
            "raw_memory": MEMORY,
            "raw_settings": SETTINGS,
            "raw_lake_days": LAKE_DAYS,
            "raw_serves": SERVES,
            "raw_hours": HOURS,
        }.items()
    },
}
BY_NAME = {model.name: model for model in models()}


def types_of(relation: str) -> Mapping[str, str]:
    return RAW[relation] if relation in RAW else dictionary()[relation].types


def read_rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


def load(connection: duckdb.DuckDBPyConnection, relation: str, path: Path) -> None:
    types = types_of(relation)
    rows = read_rows(path) if path.exists() else [[]]
    unknown = set(rows[0]) - set(types)
    assert not unknown, f"{path}: unknown columns {sorted(unknown)}"
    listed = ", ".join(f"{column} {type_}" for column, type_ in types.items())
    connection.execute(f"create table {relation} ({listed})")
    if rows[1:]:
        listed = ", ".join(rows[0])
        body, values = typed_rows(rows[1:], [types[column] for column in rows[0]])
        connection.execute(f"insert into {relation} ({listed}) {body}", values)


def typed_rows(rows: list[list[str]], types: list[str]) -> tuple[str, list[str | None]]:
    """VALUES with each field of `rows` cast to its type, and the parameters in it: one statement for all rows."""
    marks = ", ".join(f"cast(? as {type_})" for type_ in types)
    assert all(len(row) == len(types) for row in rows)
    return "values " + ", ".join([f"({marks})"] * len(rows)), [value or None for row in rows for value in row]


def run(model: Model, case: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"preserve_insertion_order": False, "threads": 2})
    connection.execute("set TimeZone = 'UTC'")
    for relation in sorted(model.reads):
        load(connection, relation, case / f"{relation}.csv")
    given = {path.stem for path in case.glob("*.csv")} - {"expected"}
    assert given <= model.reads, f"{model.name} does not read {sorted(given - model.reads)}"
    for macro in macros():
        if f"{macro.name}(" in model.sql:
            connection.execute(macro.sql)
    connection.execute(f"create table result as {model.sql}")
    return connection


@pytest.mark.parametrize("case", CASES, ids=[f"{case.parent.name}-{case.name}" for case in CASES])
def test_model_gives_the_expected_rows(case: Path) -> None:
    model = BY_NAME[case.parent.name]
    connection = run(model, case)
    header, *expected = read_rows(case / "expected.csv")
    types = dict(connection.execute("select column_name, column_type from (describe result)").fetchall())
    if model.folder != "audits":
        types |= types_of(model.name)
    listed = ", ".join(f"cast({c} as {types[c]})" for c in header)
    found = connection.execute(f"select {listed} from result").fetchall()  # noqa: S608
    wanted = connection.execute(*typed_rows(expected, [types[c] for c in header])).fetchall() if expected else []
    found, wanted = sorted(found, key=repr_key), sorted(wanted, key=repr_key)
    assert len(found) == len(wanted), found
    for found_row, wanted_row in zip(found, wanted, strict=True):
        assert dict(zip(header, found_row, strict=True)) == {
            c: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            for c, value in zip(header, wanted_row, strict=True)
        }


def repr_key(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else value for value in row])


@pytest.mark.parametrize("model", models(), ids=[model.name for model in models()])
def test_every_model_has_a_case(model: Model) -> None:
    assert any(case.parent.name == model.name for case in CASES), f"write tests/sql/{model.name}/<case>/expected.csv"


@pytest.mark.parametrize(
    "model", [m for m in models() if m.folder == "audits"], ids=[m.name for m in models() if m.folder == "audits"]
)
def test_every_audit_finds_what_it_is_for_and_nothing_in_empty_tables(model: Model, tmp_path: Path) -> None:
    assert any(len(read_rows(case / "expected.csv")) > 1 for case in CASES if case.parent.name == model.name)
    assert run(model, tmp_path).execute("select count(*) from result").fetchall() == [(0,)]
