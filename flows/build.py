"""The warehouse: facts from the lake, plans from their Parquet, marts from both, audits, and one publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.damage import lake_damage_named, plan_damage_named
from flows.dictionary import Table, dictionary
from flows.macros import create_macros
from flows.models import Model, of_folders
from flows.raw_inputs import register_lake, select_known
from flows.warehouse import Draft, drafting, publish
from transforms.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import duckdb

    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.progress import Advance, Progress

SHOWN_ROWS = 3
"""Offending rows that a failed audit shows."""


def build(home: Home, fleet: LoadedFleet, catalog: Catalog, progress: Progress) -> Path:
    """Path of the published warehouse, built anew from the lake of `home`; plans are taken over as they are."""
    with drafting(home) as draft:
        build_facts(draft, home, fleet, catalog, progress)
        build_marts(draft, home, progress)
        return publish(draft)


def rebuild_marts(home: Home, progress: Progress) -> Path:
    """Path of the published warehouse, its plans loaded again and its marts rebuilt, the facts as they were."""
    with drafting(home, copy_published=True) as draft:
        build_marts(draft, home, progress)
        return publish(draft)


def build_facts(draft: Draft, home: Home, fleet: LoadedFleet, catalog: Catalog, progress: Progress) -> None:
    """Put staging, dimensions, facts and distributions into `draft`; DataError where the lake is empty."""
    from flows.deployments import register_fleet

    connection = draft.connection
    with lake_damage_named(home):
        register_lake(connection, home)
        register_fleet(connection, home, fleet, catalog)
        found = of_folders("staging", "core", "distributions")
        with progress("building facts", len(found)) as advance:
            _create(connection, found, advance)


def build_marts(draft: Draft, home: Home, progress: Progress) -> None:
    """Put the plans of `home` and the marts into `draft` and audit it; DataError where an audit finds rows."""
    connection = draft.connection
    marts, audits = of_folders("marts"), of_folders("audits")
    with progress("building marts", len(marts) + len(audits)) as advance:
        load_plans(connection, home)
        create_macros(connection)
        _create(connection, marts, advance)
        run_audits(connection, audits, advance)


def load_plans(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Make every plan_* table from HOME/plans/week=*/<table>.parquet; typed and empty where there is none."""
    for name, table in dictionary().items():
        if not name.startswith("plan_"):
            continue
        connection.execute(f"create or replace table {name} ({_columns(table)})")
        paths = sorted(home.plans.glob(f"week=*/{name}.parquet"))
        if paths:
            with plan_damage_named(home):
                body = select_known(connection, table.types, paths)
                connection.execute(f"insert into {name} {body} order by {', '.join(table.grain)}")
        _comment(connection, table)


def run_audits(connection: duckdb.DuckDBPyConnection, audits: Sequence[Model], advance: Advance) -> None:
    """Run each of `audits`; DataError with the name and first rows of the first that finds any."""
    for audit in audits:
        relation = connection.sql(audit.sql)
        rows = relation.limit(SHOWN_ROWS).fetchall()
        if rows:
            shown = "; ".join(", ".join(f"{c} {v}" for c, v in zip(relation.columns, row, strict=True)) for row in rows)
            raise DataError(
                f"{audit.name} found rows that must not exist, so nothing is published and the old warehouse stands: "
                f"{shown}"
            )
        advance()


def _create(connection: duckdb.DuckDBPyConnection, found: Sequence[Model], advance: Advance) -> None:
    tables = dictionary()
    for model in found:
        table = tables[model.name]
        typed = ", ".join(f"cast({c.name} as {c.type}) as {c.name}" for c in table.columns)
        connection.execute(f"create or replace table {model.name} as select {typed} from ({model.sql})")  # noqa: S608
        _comment(connection, table)
        advance()


def _comment(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    text = f"{table.text}. Grain: {', '.join(table.grain)}"
    statements = [f"comment on table {table.name} is {_quoted(text)}"]
    statements += [f"comment on column {table.name}.{c.name} is {_quoted(c.comment)}" for c in table.columns]
    connection.execute(f"begin; {'; '.join(statements)}; commit")


def _columns(table: Table) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in table.columns)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
