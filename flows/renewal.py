"""Facts brought up to date: only what hangs on the days of the lake that changed is made again.

A request may have attempts on two days and a session may go on for weeks, so what hangs on a day is found by its
requests and sessions: the rows of the day as they were and as they are, the rows of other days that share a request or
a session with one of them, and so on until nothing more is met. The models of `-- incremental: session` then run over
these rows alone, as if they were the whole lake, and their rows take the place of the old ones. Models of
`-- incremental: week` run over the weeks that were touched, all others, and those that hang on an edit of the fleet
file, over everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from flows.dictionary import dictionary
from flows.lake import requests_paths
from flows.lake_days import REQUESTS, held_days, weeks_of
from flows.raw_inputs import lake_paths, register_requests, requests_of
from flows.tables import create_table, typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    import duckdb

    from flows.home import Home
    from flows.lake_days import Stale
    from flows.models import Model
    from flows.progress import Advance

MAIN = "kvledger.main"
KEYS = {"requests": "hash('request', source, request_id)", "sessions": "hash('session', source, session_id)"}
"""What a row hangs together by. Equal hashes of unequal names only make more rows again than need be."""
RECORD_KEY = "hash('request', source, record_id)"
"""A repeat from the gateway's cache is in the warehouse under the id of its own record."""


@dataclass
class Renewed:
    """What an incremental build has done: days brought up to date or left, rows written by table, weeks touched."""

    days: tuple[date, ...]
    left: tuple[date, ...]
    weeks: set[str]
    written_rows: dict[str, int] = field(default_factory=dict)


def register_touched(connection: duckdb.DuckDBPyConnection, home: Home, stale: Stale) -> tuple[date, ...]:
    """Days that hold rows to make again; makes touched_requests, touched_sessions and raw_requests over those rows."""
    _touch_stale(connection, home, stale)
    met = _touch_connected(connection, home, stale)
    days = tuple(sorted({*stale.requests, *met}))
    paths = [path for day in days for path in requests_paths(home, str(day))]
    is_touched = (
        f"date in ({_listed(stale.requests)}) or {KEYS['requests']} in (from touched_requests) "
        f"or {KEYS['sessions']} in (from touched_sessions) or {RECORD_KEY} in (from touched_requests)"
    )
    register_requests(connection, paths, where=is_touched if met else "")
    return days


def renew(
    connection: duckdb.DuckDBPyConnection, found: Sequence[Model], days: Sequence[date], stale: Stale, advance: Advance
) -> Renewed:
    """What was written, once every table of `found` is as a build anew would make it."""
    done = Renewed(stale.requests, stale.left, weeks_of([*stale.requests, *stale.rejects]))
    by_session = [model for model in found if model.incremental == "session"]
    for place, model in enumerate(by_session):
        if days:
            _renew_rows(connection, model, days, done)
            _drop_read(connection, by_session[: place + 1], by_session[place + 1 :])
        advance()
    for model in (model for model in found if model.incremental != "session"):
        if model.incremental == "week" and model.name not in stale.remade:
            _renew_weeks(connection, model, done)
        else:
            done.written_rows[model.name] = create_table(connection, model)
        advance()
    return done


def _touch_stale(connection: duckdb.DuckDBPyConnection, home: Home, stale: Stale) -> None:
    """Make touched_requests and touched_sessions of the stale days, as the warehouse has them and as the lake does."""
    paths = [path for day in stale.requests for path in requests_paths(home, str(day))]
    register_requests(connection, paths)
    before = f"from {MAIN}.stg_requests where arrival_date in ({_listed(stale.requests)})"
    connection.execute(
        "create or replace temp table touched_requests as "  # noqa: S608
        f"select {KEYS['requests']} as key {before} "
        f"union select {KEYS['requests']} from raw_requests "
        f"union select {RECORD_KEY} from raw_requests where record_id is not null"
    )
    connection.execute(
        "create or replace temp table touched_sessions as "  # noqa: S608
        f"select {KEYS['sessions']} as key {before} and session_id is not null "
        f"union select {KEYS['sessions']} from raw_requests where session_id is not null"
    )


def _touch_connected(connection: duckdb.DuckDBPyConnection, home: Home, stale: Stale) -> set[date]:
    """Days not stale that share requests or sessions with those that are, whose keys become touched as well.

    Days that the warehouse does not hold are not met: a build of a range leaves them out whole.
    """
    held = {day for part, day in held_days(connection) if part == REQUESTS} - {*stale.requests}
    others = [path for day, paths in lake_paths(home).items() if day in held for path in paths]
    met: set[date] = set()
    if not others or not stale.requests:
        return met
    rows = requests_of(connection, others, ("source", "request_id", "record_id", "session_id", "date"))
    connection.execute(
        "create or replace temp table fresh_requests as from touched_requests; "
        "create or replace temp table fresh_sessions as from touched_sessions"
    )
    while True:
        connection.execute(
            f"create or replace temp table met as select distinct date, {KEYS['requests']} as request_key, "  # noqa: S608
            f"if(record_id is not null, {RECORD_KEY}, null) as record_key, "
            f"if(session_id is not null, {KEYS['sessions']}, null) as session_key from ({rows}) "
            f"where {KEYS['requests']} in (from fresh_requests) "
            f"or (session_id is not null and {KEYS['sessions']} in (from fresh_sessions)) "
            f"or (record_id is not null and {RECORD_KEY} in (from fresh_requests))"
        )
        met |= {row[0] for row in connection.execute("select distinct date from met").fetchall()}
        if not _spread(connection):
            return met


def _spread(connection: duckdb.DuckDBPyConnection) -> int:
    """Keys of the rows just met that were not touched before; they are now."""
    connection.execute(
        "create or replace temp table fresh_requests as "
        "(select request_key as key from met union select record_key from met where record_key is not null) "
        "except from touched_requests; "
        "create or replace temp table fresh_sessions as "
        "select session_key as key from met where session_key is not null except from touched_sessions; "
        "insert into touched_requests from fresh_requests; insert into touched_sessions from fresh_sessions"
    )
    found = connection.execute("select (select count(*) from fresh_requests) + (select count(*) from fresh_sessions)")
    return int(found.fetchall()[0][0])


def _renew_rows(connection: duckdb.DuckDBPyConnection, model: Model, days: Sequence[date], done: Renewed) -> None:
    """Run `model` over the rows touched and put what it gives in the place of what the table has of them."""
    connection.execute(f"create or replace temp table {model.name} as {typed(model)}")
    is_gone = _is_gone(model, days)
    touched = connection.execute(
        f"select week from temp.main.{model.name} union select week from {MAIN}.{model.name} where {is_gone}"  # noqa: S608
    )
    done.weeks |= {str(row[0]) for row in touched.fetchall()}
    connection.execute(f"delete from {MAIN}.{model.name} where {is_gone}")  # noqa: S608
    written = connection.execute(f"insert into {MAIN}.{model.name} from temp.main.{model.name}").fetchall()
    done.written_rows[model.name] = int(written[0][0])


def _is_gone(model: Model, days: Sequence[date]) -> str:
    """SQL for the rows of a table that are made again; rows of requests lie on the days of their attempts."""
    if "request_id" not in model.grain:
        return f"session_id is not null and {KEYS['sessions']} in (from touched_sessions)"
    until = max(days) + timedelta(days=1)
    return f"arrived_at >= '{min(days)}' and arrived_at < '{until}' and {KEYS['requests']} in (from touched_requests)"


def _drop_read(connection: duckdb.DuckDBPyConnection, made: Sequence[Model], to_come: Sequence[Model]) -> None:
    """Drop the temporary tables of `made` that none of `to_come` reads."""
    read = {name for model in to_come for name in model.reads}
    for model in made:
        if model.name not in read:
            connection.execute(f"drop table if exists temp.main.{model.name}")


def _renew_weeks(connection: duckdb.DuckDBPyConnection, model: Model, done: Renewed) -> None:
    """Run `model` over the weeks touched, which is all that it sees of tables by week, and replace their rows."""
    if not done.weeks:
        return
    in_weeks = f"week in ({_listed(sorted(done.weeks))})"
    tables = dictionary()
    by_week = [name for name in sorted(model.reads) if name in tables and "week" in tables[name].types]
    for name in by_week:
        connection.execute(f"create temp view {name} as select * from {MAIN}.{name} where {in_weeks}")  # noqa: S608
    connection.execute(f"delete from {MAIN}.{model.name} where {in_weeks}")  # noqa: S608
    written = connection.execute(f"insert into {MAIN}.{model.name} {typed(model)}").fetchall()
    done.written_rows[model.name] = int(written[0][0])
    for name in by_week:
        connection.execute(f"drop view temp.main.{name}")


def _listed(values: Iterable[date | str]) -> str:
    return ", ".join(f"'{value}'" for value in values) or "null"
