"""The audit of columns: what the dictionary says of units, shares, deployments and quantiles holds in every row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from flows.audit_fault import SHOWN_ROWS, audit_fault, named_rows
from flows.dictionary import dictionary
from flows.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from flows.dictionary import Table
    from transforms.errors import DataError

QUANTILES = ("min", "p50", "p75", "p90", "p95", "p99", "p999", "max")
"""Statistics in a column's name, none of which is above the next."""

ROUNDING = 1e-9
"""Share of itself by which a mean may be above the largest: sums of doubles round."""

GROUPINGS = ("model", "tenant", "deployment")
TOTALS = ("(none)", "(all)")
"""What stands in place of a deployment."""

_STATISTIC = re.compile(rf"(?P<stem>\w+)_(?P<statistic>mean|{'|'.join(QUANTILES)})_(?P<unit>\w+)")
_LOW = re.compile(r"(?<![^_])low_")


@dataclass(frozen=True)
class Rule:
    """What no row may show: the condition in SQL, the words of a message, and the columns it is about."""

    broken: str
    words: str
    columns: tuple[str, ...]


def audit_columns(connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing, if every column holds what the dictionary says of it; DataError names table, rule and rows otherwise."""
    fleet, planned = _named(connection, "dim_deployments"), _named(connection, "plan_replicas", "plan_scenarios")
    filled = connection.execute("select table_name from duckdb_tables() where estimated_size > 0").fetchall()
    for table in (table for name, table in dictionary().items() if (name,) in filled):
        is_plan = table.name.startswith(("plan_", "mart_"))  # plans outlive the fleet that they were made for
        rules = rules_of(table, [*fleet, *planned] if is_plan else fleet)
        asked = ", ".join(f"bool_or({rule.broken})" for rule in rules) or "null"
        found = connection.execute(f"select {asked} from {table.name}").fetchall()[0]  # noqa: S608
        for rule, is_broken in zip(rules, found, strict=False):
            if is_broken:
                raise _broken(connection, table, rule)


def rules_of(table: Table, deployments: Sequence[str]) -> list[Rule]:
    """Rules of `table`, in which no row names a deployment beside `deployments`."""
    known = ", ".join(quoted(name) for name in (*deployments, *TOTALS))
    return [*_bounds(table), *_deployments(table, known), *_quantiles(table), *_intervals(table)]


def _named(connection: duckdb.DuckDBPyConnection, *tables: str) -> list[str]:
    """Deployments that `tables` name."""
    asked = " union ".join(f"select deployment_id from {table}" for table in tables)  # noqa: S608
    return [name for (name,) in connection.execute(f"{asked} order by 1").fetchall()]


def _bounds(table: Table) -> Iterator[Rule]:
    """No amount below 0, no share outside 0 to 1, no double that is infinite or NaN (which DuckDB sorts above all)."""
    for column in table.columns:
        name, is_real = column.name, column.type == "double"
        if column.bounds is None or not (is_real or column.bounds[0] > -inf):
            continue
        least, most = column.bounds
        below = f"{name} = '-inf'" if least == -inf else f"{name} < {least}"
        above = f"{name} >= 'inf'" if most == inf else f"{name} > {most}"
        words = [f"below {least}"] * (least > -inf) + [f"above {most}"] * (most < inf) + ["infinite or NaN"] * is_real
        yield Rule(f"{below} or {above}" if is_real else below, f"{name} is {' or '.join(words)}", (name,))


def _deployments(table: Table, known: str) -> Iterator[Rule]:
    """No deployment that nobody knows, no grouping but the three, no member of deployments that is none."""
    if "deployment_id" in table.types:
        yield Rule(f"deployment_id not in ({known})", "deployment_id is no deployment of the fleet", ("deployment_id",))
    if "grouping_name" in table.types:
        words = "grouping_name is none of " + ", ".join(GROUPINGS)
        yield Rule(f"grouping_name not in {GROUPINGS}", words, ("grouping_name",))
        is_other = f"grouping_name = 'deployment' and member not in ({known})"
        yield Rule(is_other, "member is no deployment of the fleet", ("grouping_name", "member"))


def _quantiles(table: Table) -> Iterator[Rule]:
    """No quantile above a higher one of the same stem and unit, no mean outside the least and the largest."""
    stems: dict[tuple[str, str], dict[str, str]] = {}
    for column in table.columns:
        if found := _STATISTIC.fullmatch(column.name):
            stems.setdefault((found["stem"], found["unit"]), {})[found["statistic"]] = column.name
    for of_stem in stems.values():
        rising = [of_stem[statistic] for statistic in QUANTILES if statistic in of_stem]
        yield from (_above(lower, upper) for lower, upper in pairwise(rising))
        for lower, upper in (("min", "mean"), ("mean", "max")):
            if lower in of_stem and upper in of_stem:
                yield _above(of_stem[lower], of_stem[upper], f" + {ROUNDING} * {of_stem['mean']}")


def _intervals(table: Table) -> Iterator[Rule]:
    """No lower end of an interval above its upper end; a bin's ends differ."""
    for column in table.columns:
        upper = _LOW.sub("high_", column.name)
        if upper != column.name and upper in table.types:
            yield _above(column.name, upper, is_equal_above="bin_" in upper)


def _above(lower: str, upper: str, slack: str = "", *, is_equal_above: bool = False) -> Rule:
    """No `lower` above `upper` by more than `slack`."""
    sign, words = (">=", "is not below") if is_equal_above else (">", "is above")
    return Rule(f"{lower} {sign} {upper}{slack}", f"{lower} {words} {upper}", (lower, upper))


def _broken(connection: duckdb.DuckDBPyConnection, table: Table, rule: Rule) -> DataError:
    """The error that names the first rows of `table` which break `rule`, each by its grain and values."""
    shown = list(dict.fromkeys((*table.grain, *rule.columns)))
    rows = connection.execute(
        f"select {', '.join(shown)} from {table.name} where {rule.broken} limit {SHOWN_ROWS}"  # noqa: S608
    ).fetchall()
    return audit_fault("audit_columns", f"of {table.name} whose {rule.words}", named_rows(shown, rows))
