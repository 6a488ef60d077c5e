"""Plans that were made before requests of their week came in: their week's attempts held against those they count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flows.notes import MOST_FILES as MOST_WEEKS
from flows.notes import Note
from flows.query import asked

if TYPE_CHECKING:
    from flows.home import Home

OLDER_CODE = "plan_older"
HEAD_CHARACTERS = 512
"""Of a report's JSON, which begins with its run_id and may have millions after it."""

OLDER_SQL = """
with differing as (
    select
        plan.week,
        coalesce(counts.attempts_requests, 0)
        - coalesce(held.attempts_requests + held.unknown_requests, 0) as more_requests
    from mart_decision as plan
    inner join mart_coverage as covered on plan.week = covered.week
    left join mart_counts as counts on plan.week = counts.week and plan.deployment_id = counts.deployment_id
    left join mart_kv_time as held
        on
            plan.week = held.week and plan.deployment_id = held.deployment_id
            and held.tenant = '(all)' and held.phase = '(all)'
)

select
    week,
    coalesce(sum(more_requests) filter (where more_requests > 0), 0) as came_requests,
    coalesce(-sum(more_requests) filter (where more_requests < 0), 0) as gone_requests
from differing
group by week
having bool_or(more_requests <> 0)
order by week desc
"""

_RUN_ID = re.compile(r'"run_id": "(\w+)"')


def older_plans(home: Home) -> list[Note]:
    """One note where plans of the published warehouse count other attempts than it has of their weeks; else none.

    A plan keeps no list of its requests: others of the same number are not noticed. DataError as of a query.
    """
    with asked(home, OLDER_SQL) as answer:
        older = [(str(week), int(came), int(gone)) for week, came, gone in answer.rows]
    if not older:
        return []
    named = [f"{week} ({_since(came, gone)})" for week, came, gone in older[:MOST_WEEKS]]
    more = f" and {len(older) - MOST_WEEKS:,} more" if len(older) > MOST_WEEKS else ""
    are = "plan of {} is older than its" if len(older) == 1 else "plans of {} are older than their"
    others = "" if len(older) == 1 else ", and so for the others"
    text = f"{are.format(', '.join(named) + more)} requests; run kvledger plan --week {older[0][0]}{others}"
    return [Note(OLDER_CODE, text)]


def reports_of_other_plans(home: Home) -> list[str]:
    """Weeks, oldest first, whose report on disk is of another run than the plan in the published warehouse."""
    with asked(home, "select distinct week, run_id from mart_decision order by week") as answer:
        planned = [(str(week), str(run_id)) for week, run_id in answer.rows]
    return [week for week, run_id in planned if _reported_run(home, week) not in {None, run_id}]


def _since(came: int, gone: int) -> str:
    told = [f"{came:,} attempts came in since" * (came > 0), f"{gone:,} attempts are gone since" * (gone > 0)]
    return ", ".join(filter(None, told))


def _reported_run(home: Home, week: str) -> str | None:
    """run_id of the report of `week` on disk; None where there is none to read."""
    try:
        with (home.reports / f"week={week}" / "review.json").open(encoding="utf-8") as text:
            found = _RUN_ID.search(text.read(HEAD_CHARACTERS))
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found else None
