"""The warehouse: facts from the lake, plans from their Parquet, marts from both, audits, and one publish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.audit_fault import SHOWN_ROWS, audit_fault, named_rows
from flows.column_rules import audit_columns
from flows.damage import lake_damage_named, plan_damage_named
from flows.dictionary import dictionary
from flows.facts_id import FactsDue, facts_due
from flows.grains import audit_grains
from flows.lake_days import REQUESTS, Span
from flows.macros import create_macros
from flows.models import Model, of_folders
from flows.raw_inputs import lake_paths, register_lake, register_requests, select_known
from flows.renewal import register_touched, renew
from flows.tables import columns, comment, create_tables
from flows.versions import KEPT_VERSIONS
from flows.warehouse import Draft, drafting, publish

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import duckdb

    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.progress import Advance, Progress
    from flows.renewal import Renewed

EVERY_DAY = Span()


def build(home: Home, fleet: LoadedFleet, catalog: Catalog, progress: Progress, span: Span = EVERY_DAY) -> Path:
    """Path of the published warehouse, brought up to date with the lake of `home`; plans are taken over as they are."""
    due = facts_due(home, fleet, catalog, span)
    with drafting(home, copy_published=due.stale is not None) as draft:
        build_facts(draft, home, fleet, catalog, progress, due)
        build_marts(draft, home, progress)
        return publish(draft, fleet.fleet.warehouse.keep_versions)


def rebuild_marts(home: Home, progress: Progress, keep_versions: int = KEPT_VERSIONS) -> Path:
    """Path of the published warehouse, its plans loaded again and its marts rebuilt, the facts as they were."""
    with drafting(home, copy_published=True) as draft:
        build_marts(draft, home, progress)
        return publish(draft, keep_versions)


def build_facts(  # noqa: PLR0917 - the arguments of every stage, and the draft
    draft: Draft, home: Home, fleet: LoadedFleet, catalog: Catalog, progress: Progress, due: FactsDue
) -> Renewed | None:
    """What was renewed of staging, dimensions, facts and distributions in `draft`, as `due` says; None if all was."""
    from flows.deployments import register_fleet

    connection, stale = draft.connection, due.stale
    found = of_folders("staging", "core", "distributions")
    with lake_damage_named(home), progress("building facts", len(found)) as advance:
        register_lake(connection, home)
        if stale is None:
            paths, wanted = lake_paths(home), (day.arrival_date for day in due.days if day.lake_part == REQUESTS)
            register_requests(connection, [path for day in wanted for path in paths[day]])
            register_fleet(connection, fleet, catalog, due.days, due.facts_id)
            create_tables(connection, found, advance)
            return None
        days = register_touched(connection, home, stale)
        register_fleet(connection, fleet, catalog, due.days, due.facts_id)
        return renew(connection, found, days, stale, advance)


def build_marts(draft: Draft, home: Home, progress: Progress) -> None:
    """Put the plans of `home` and the marts into `draft` and audit it; DataError where an audit finds rows."""
    connection = draft.connection
    marts, audits = of_folders("marts"), of_folders("audits")
    with progress("building marts", len(marts) + len(audits)) as advance:
        load_plans(connection, home)
        create_macros(connection)
        create_tables(connection, marts, advance)
        run_audits(connection, audits, advance)
        audit_grains(connection)
        audit_columns(connection)


def load_plans(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Make every plan_* table from HOME/plans/week=*/<table>.parquet; typed and empty where there is none."""
    for name, table in dictionary().items():
        if not name.startswith("plan_"):
            continue
        connection.execute(f"create or replace table {name} ({columns(table)})")
        paths = sorted(home.plans.glob(f"week=*/{name}.parquet"))
        if paths:
            with plan_damage_named(home):
                body = select_known(connection, table.types, paths)
                connection.execute(f"insert into {name} {body} order by {', '.join(table.grain)}")
        comment(connection, table)


def run_audits(connection: duckdb.DuckDBPyConnection, audits: Sequence[Model], advance: Advance) -> None:
    """Run each of `audits`; DataError with the name and first rows of the first that finds any."""
    for audit in audits:
        relation = connection.sql(audit.sql)
        rows = relation.limit(SHOWN_ROWS).fetchall()
        if rows:
            raise audit_fault(audit.name, "that must not exist", named_rows(relation.columns, rows))
        advance()
