"""The one audit that every table has: the columns of its grain name one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.audit_fault import SHOWN_ROWS, audit_fault
from flows.dictionary import dictionary

if TYPE_CHECKING:
    import duckdb

    from flows.dictionary import Table

COUNTED_ELSEWHERE = (
    "stg_requests",  # audit_attempts_unique
    "fct_attempts",  # audit_attempts_unique, audit_requests_conserved
    "fct_requests",  # audit_requests_unique
    "fct_sessions",  # audit_sessions_conserved
    "fct_tool_waits",  # audit_sessions_conserved
    "fct_output_ends",  # audit_lengths_conserved
    "fct_arrival_seconds",  # audit_arrivals_conserved
    "dist_length_counts",  # audit_lengths_conserved
    "dist_group_length_counts",  # audit_groups_conserved
)
"""Tables too large to count the distinct of: audits of their own hold them by sums and hashes."""


def audit_grains(connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing, if each table of the dictionary has as many rows as grains; DataError names table and rows otherwise."""
    tables = [table for table in dictionary().values() if table.name not in COUNTED_ELSEWHERE]
    counted = " union all ".join(
        f"select '{table.name}' as relation, count(*) - count(distinct {_grain(table)}) as more from {table.name}"  # noqa: S608
        for table in tables
    )
    found = connection.execute(f"select relation from ({counted}) where more <> 0 order by 1").fetchall()  # noqa: S608
    for (name,) in found:
        listed = ", ".join(dictionary()[name].grain)
        rows = connection.execute(
            f"select {listed} from {name} group by all having count(*) > 1 order by all limit {SHOWN_ROWS}"  # noqa: S608
        ).fetchall()
        shown = "; ".join(", ".join(map(str, row)) for row in rows)
        raise audit_fault("audit_grains", f"of {name} that are not one each of {listed}", shown)


def _grain(table: Table) -> str:
    return f"({', '.join(table.grain)})" if len(table.grain) > 1 else table.grain[0]
