"""A week's traffic out of the published warehouse into a file that a load generator or simulator reads."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson

from flows.warehouse import published
from flows.whole_file import whole_file
from transforms.errors import DataError
from transforms.exports.blocks import with_blocks
from transforms.exports.traffic import COLUMNS, Request
from transforms.workload import week_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import duckdb

    from flows.home import Home
    from flows.progress import Advance, Progress

BLOCK_TOKENS = {"mooncake": 512, "vllm-timed-trace": 16}
"""Tokens of a block in the formats that say which blocks a prompt is made of, unless asked otherwise."""
BATCH_ROWS = 20_000

_SELECTED = """
select
    *, prompt_tokens > 0 and output_tokens is not null as is_known,
    session_id || coalesce('/' || agent_id, '') as session
from fct_attempts
where ($week is null or week = $week) and ($deployment is null or deployment_id = $deployment)
qualify row_number() over (partition by source, request_id order by attempt desc) = 1
"""
_COUNTS = f"""
select
    count(*), count(*) filter (is_known), count(distinct session) filter (is_known),
    min(arrived_at) filter (is_known), coalesce(bool_or(prefix_block_ids is not null) filter (is_known), false)
from ({_SELECTED})
"""  # noqa: S608 - constant text
_ROWS = f"""
select
    date_diff('microsecond', $origin, arrived_at) as offset_us,
    date_diff('microsecond', $origin, ended_at) as end_offset_us,
    session, prompt_tokens, cached_prompt_tokens, output_tokens,
    prefix_block_tokens as block_tokens, prefix_block_ids as block_ids,
    lead(session) over (partition by session order by arrived_at, source, request_id) is null as is_last_of_session
from ({_SELECTED})
where is_known
order by arrived_at, source, request_id
"""  # noqa: S608 - constant text


@dataclass(frozen=True)
class Asked:
    """What to export: the format, the week (None: the latest), one deployment (None: all), tokens of a block."""

    form: str
    week: str | None = None
    deployment: str | None = None
    block_tokens: int | None = None


@dataclass(frozen=True)
class Exported:
    """What was written: requests and sessions, requests left out for want of a length, and where stamps count from."""

    week: str
    requests: int
    sessions: int
    left_out: int
    origin: datetime
    block_tokens: int | None
    """Tokens of a block of `hash_ids`; None where the file has none."""


def export(home: Home, output: Path, asked: Asked, progress: Progress) -> Exported:
    """Counts of what was written to `output`: each request of the week that reached a backend, by its last attempt.

    Retries are for the load generator to make. DataError where the week or
    deployment has none, HomeError where the file cannot be written; then nothing is left behind.
    """
    with published(home) as connection:
        chosen = _week(connection, asked.week)
        named = {"week": chosen, "deployment": asked.deployment}
        counts = connection.execute(_COUNTS, named).fetchone()
        if counts is None or not counts[1]:
            raise DataError(_nothing(connection, chosen, asked.deployment))
        total, requests, sessions, first, has_blocks = counts
        origin = first.replace(microsecond=0)
        rows = _requests(connection, {**named, "origin": origin})
        block_tokens = (asked.block_tokens or BLOCK_TOKENS.get(asked.form)) if sessions or has_blocks else None
        with progress("exporting", requests) as advance:
            found = with_blocks(rows, block_tokens) if block_tokens else rows
            with whole_file(output) as aside, aside.open("wb") as handle:
                handle.writelines(_encoded(asked.form, found, advance))
    return Exported(chosen, requests, sessions, total - requests, origin.replace(tzinfo=UTC), block_tokens)


def _week(connection: duckdb.DuckDBPyConnection, week: str | None) -> str:
    known = [str(row[0]) for row in connection.execute("select week from dist_coverage order by week").fetchall()]
    if not known:
        raise DataError("the warehouse holds no requests; run kvledger review first")
    if week is not None and week not in known:
        week_start(week)
        raise DataError(f"week {week} has no requests; the warehouse has {known[0]} to {known[-1]}")
    return week or known[-1]


def _nothing(connection: duckdb.DuckDBPyConnection, week: str, deployment: str | None) -> str:
    known = [
        str(row[0]) for row in connection.execute("select deployment_id from dim_deployments order by 1").fetchall()
    ]
    if deployment is not None and deployment not in known:
        return f"no deployment '{deployment}'; the warehouse has {', '.join(known)}"
    return f"week {week} has no request with known lengths to export; ask for another --week or --deployment"


def _requests(connection: duckdb.DuckDBPyConnection, named: Mapping[str, Any]) -> Iterator[Request]:
    result = connection.execute(f"select {', '.join(COLUMNS)} from ({_ROWS})", dict(named))  # noqa: S608
    while batch := result.fetchmany(BATCH_ROWS):
        yield from (Request(*row) for row in batch)


def _encoded(form: str, requests: Iterable[Request], advance: Advance) -> Iterator[bytes]:
    module = import_module(f"transforms.exports.{form.replace('-', '_')}")
    lines: Iterator[dict[str, Any]] = module.lines(requests)
    columns: tuple[str, ...] | None = getattr(module, "COLUMNS", None)
    if columns:
        yield _csv_line(columns)
    for number, line in enumerate(lines, start=1):
        yield _csv_line(line.values()) if columns else orjson.dumps(line) + b"\n"
        if number % BATCH_ROWS == 0:
            advance(BATCH_ROWS)


def _csv_line(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()
