"""Every table has an audit, and the grain of each is one row's name: a doubled row is named and stops a publish."""

from __future__ import annotations

import duckdb
import pytest

from flows.dictionary import dictionary
from flows.grains import COUNTED_ELSEWHERE, audit_grains
from flows.models import of_folders
from flows.tables import columns
from transforms.errors import DataError


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    connected = duckdb.connect()
    for table in dictionary().values():
        connected.execute(f"create table {table.name} ({columns(table)})")
    return connected


def test_every_table_has_an_audit() -> None:
    read = frozenset().union(*(audit.reads for audit in of_folders("audits")))
    counted = set(dictionary()) - set(COUNTED_ELSEWHERE)
    assert set(dictionary()) - counted - read == set()
    assert set(COUNTED_ELSEWHERE) <= set(dictionary())


@pytest.mark.parametrize("name", ["mart_hours", "plan_kv_time", "dist_length_histogram", "dim_deployments"])
def test_two_rows_of_one_grain_are_named(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    grain = dictionary()[name].grain
    marks = ", ".join("null" if column == "tenant" else "1" for column in grain)
    connection.execute(f"insert into {name} ({', '.join(grain)}) values ({marks})")  # noqa: S608
    audit_grains(connection)
    connection.execute(f"insert into {name} ({', '.join(grain)}) values ({marks})")  # noqa: S608
    with pytest.raises(DataError, match=f"audit_grains found rows of {name} that are not one each of .*: 1"):
        audit_grains(connection)
