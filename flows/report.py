"""The report of a week: the published marts as HTML, Markdown and JSON, each file put in place whole."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from flows.shipped import shipped
from flows.warehouse import published
from transforms.errors import CatalogError, DataError, HomeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb
    import polars as pl

    from flows.home import Home
    from reports.page import Page

PREFIXES = ("dim_", "dist_", "plan_", "mart_")
"""Tables whose rows of the week the JSON has; the HTML is made of mart_* and dim_deployments."""

UNORDERED = "dist_"
"""Prefix of tables whose rows come in no order of their own: sorted, so that the same facts give the same bytes."""

EVERY_WEEK = "(none)"
"""Week of rows that belong to no week: files without usable rows."""

PACKAGES = ("kvledger", "duckdb", "polars", "pyarrow", "numpy", "numba", "altair", "vl-convert-python")

COMMANDS = (
    "kvledger review --week {week} {place}",
    "kvledger plan --week {week} {place} --json",
    """kvledger query {home} "select * from mart_decision where week = '{week}'" --json""",
)
"""What makes this report again, its figures as JSON, and its decision from the warehouse."""

ELSEWHERE = "PATH"
"""What stands for the folder of an absolute path: a report names no folder of the machine that made it."""

_WEEK = re.compile(r"\d{4}-W\d{2}")


@dataclass(frozen=True)
class Reported:
    """What a report left behind: the HTML file, the JSON object, the decision for a terminal, and the page itself."""

    html: Path
    summary: Mapping[str, Any]
    decision: tuple[str, ...]
    page: Page


def report(home: Home, week: str | None = None, fleet: Path | None = None) -> Reported:
    """The report of `week` (default: the latest) under HOME/reports/week=…/review.html, .md, -tables.md, .json.

    `fleet` is the fleet file that was used, for the commands that make the report again.
    """
    from reports.html import html, index_html
    from reports.markdown import markdown, tables_markdown
    from reports.review import review_page
    from reports.summary import json_text, summary
    from reports.terminal import decision_lines

    with published(home) as connection:
        chosen = _week(connection, week)
        tables = week_tables(connection, chosen)
        decided = _decided(connection)
    folder = home.reports / f"week={chosen}"
    path = folder / "review.html"
    known = step_time_errors(home)
    page = review_page(tables, chosen, package_versions(), reproduce(home, fleet, chosen), known)
    found = summary(tables, chosen, str(path)) | {"step_time_errors": known}
    put_text(folder / "review.json", json_text(found | {"report": path.name}))
    put_text(folder / "review.md", markdown(page, "review-tables.md"))
    put_text(folder / "review-tables.md", tables_markdown(page))
    put_text(path, html(page, charts_bundle(home)))
    put_text(home.reports / "index.html", index_html(_past_weeks(home), decided))
    return Reported(path, found, decision_lines(page), page)


def step_time_errors(home: Home) -> list[dict[str, Any]]:
    """Predicted against measured step times of the catalog's calibrations; none where they hold no comparison."""
    from flows.catalog import load_catalog
    from flows.predict import accuracy

    try:
        return accuracy(load_catalog(home))
    except CatalogError:
        return []


def reproduce(home: Home, fleet: Path | None, week: str) -> list[str]:
    """COMMANDS for `week`, naming home and fleet file as given where that is relative, else by their last part."""
    at = f"--home {named_path(home.root)}"
    place = at + fleet_flag(home, fleet)
    return [command.format(week=week, place=place, home=at) for command in COMMANDS]


def fleet_flag(home: Home, fleet: Path | None) -> str:
    """` --fleet FILE` where `fleet` is neither the home's own nor the example, else nothing."""
    is_named = fleet is not None and fleet not in (home.fleet, shipped("data", "fleet.toml"))
    return f" --fleet {named_path(fleet)}" if fleet is not None and is_named else ""


def named_path(path: Path) -> str:
    """`path` as given where it is relative, else its last part below ELSEWHERE; quoted for a shell."""
    return shlex.quote(f"{ELSEWHERE}/{path.name}" if path.is_absolute() else str(path))


def _week(connection: duckdb.DuckDBPyConnection, week: str | None) -> str:
    """`week`, checked, or the latest that has rows; DataError names the weeks there are."""
    known = [str(row[0]) for row in connection.execute("select week from mart_coverage order by week").fetchall()]
    if not known:
        raise DataError("the warehouse has no request in any week; run kvledger ingest with a log first")
    if week is None:
        return known[-1]
    if not _WEEK.fullmatch(week):
        raise DataError(f"week '{week}' is not an ISO week such as {known[-1]}")
    if week not in known:
        raise DataError(f"week {week} has no requests; the warehouse covers {known[0]} to {known[-1]}")
    return week


def week_tables(connection: duckdb.DuckDBPyConnection, week: str) -> dict[str, pl.DataFrame]:
    """Rows of `week` of every table with one of PREFIXES, and all rows of those that have no week."""
    listed = connection.execute(
        "select table_name, bool_or(column_name = 'week') from duckdb_columns() "
        "where not internal and database_name <> 'system' group by table_name order by table_name"
    ).fetchall()
    tables = {}
    for name, has_week in listed:
        if name.startswith(PREFIXES):
            relation = connection.table(name)
            kept = relation.filter(f"week in ('{week}', '{EVERY_WEEK}')") if has_week else relation
            tables[name] = (kept.order("all") if name.startswith(UNORDERED) else kept).pl()
    return tables


def _decided(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Week -> its decision in one line, for the index."""
    return {
        str(week): str(words)
        for week, words in connection.execute(
            "select week, string_agg(deployment_id || ': ' || action_text, '; ' "
            "order by short_gpus desc, deployment_id) from mart_decision group by week"
        ).fetchall()
    }


def _past_weeks(home: Home) -> list[str]:
    """Weeks that have a report, newest first."""
    names = (path.parent.name.removeprefix("week=") for path in home.reports.glob("week=*/review.html"))
    return sorted((name for name in names if _WEEK.fullmatch(name)), reverse=True)


def package_versions() -> dict[str, str]:
    """Package -> version, of those whose version can move a figure or a chart."""
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def charts_bundle(home: Home) -> str:
    """The charts' JavaScript; made once a version (it takes 2 s), then kept beside the reports."""
    from reports.bundle import bundle, bundle_version

    kept = home.reports / f".{bundle_version()}.js"
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    made = bundle()
    put_text(kept, made)
    return made


def put_text(path: Path, text: str) -> None:
    """Write `text` aside and rename it into place; HomeError where that cannot be done."""
    aside = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8", newline="\n")
        aside.replace(path)
    except OSError as error:
        raise HomeError(
            f"report {path} cannot be written ({error.strerror}); mend {path.parent} or use --home"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
