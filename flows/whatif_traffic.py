"""The traffic of a deployment's week from the published warehouse, as scenarios are asked with it."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from flows.warehouse import published
from transforms.planner.whatif.offered import OFFERED_COLUMNS, offered
from transforms.workload import week_start

if TYPE_CHECKING:
    from flows.home import Home
    from transforms.planner.whatif.offered import Offered

_QUERY = """
with attempts as (
    select
        fct_attempts.*,
        stg_requests.tool_calls, stg_requests.tool_results, stg_requests.logged_tool_wait_s,
        fct_attempts.is_failed and fct_attempts.prompt_tokens >= $limit as was_refused
    from fct_attempts
    left join stg_requests
        on fct_attempts.source = stg_requests.source and fct_attempts.request_id = stg_requests.request_id
        and fct_attempts.attempt = stg_requests.attempt
    where fct_attempts.deployment_id = $deployment and (fct_attempts.week = $week or (
        fct_attempts.arrived_at < $start and fct_attempts.arrived_at >= $before and fct_attempts.ended_at > $start
    ))
),

refused as (
    select *, true as is_failed, true as was_refused
    from stg_requests
    where deployment_id = $deployment and week = $week and is_chat and served_by = 'backend' and status = 'rejected'
        and (prompt_tokens >= $limit or prompt_tokens + requested_output_tokens > $limit)
)

select {columns} from attempts
union all by name
select {columns} from refused
order by arrived_at, turn nulls last, source, request_id, attempt
"""


@lru_cache(maxsize=2)
def traffic_of(home: Home, deployment_id: str, week: str, limit: int | None, seed: int, has_blocks: bool) -> Offered:  # noqa: PLR0917 - a cache's key
    """Attempts of the week, those running into it, and the prompts that `limit` tokens refused, by their log.

    What was refused for another reason (a full queue, a rate limit) is no traffic of the engine's.
    """
    start = week_start(week).replace(tzinfo=None)
    columns = ", ".join(OFFERED_COLUMNS)
    if not has_blocks:
        columns = columns.replace("prefix_block_ids", "cast(null as ubigint[]) as prefix_block_ids")
    query = _QUERY.format(columns=columns)
    named = {
        "deployment": deployment_id,
        "week": week,
        "start": start,
        "before": start - timedelta(days=7),
        "limit": limit if limit is not None else 2**62,
    }
    with published(home) as connection:
        rows = connection.sql(query, params=named).pl()
    return offered(rows.select(pl.col(OFFERED_COLUMNS)), deployment_id, week, seed)
