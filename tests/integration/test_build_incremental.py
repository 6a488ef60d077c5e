"""Builds that bring a warehouse up to date: the same tables as a build anew, and only what changed is written."""

from __future__ import annotations

import logging
import random
import shutil
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lakes import FLEET, MONDAY, no_progress, random_rows, row, write_fleet, write_lake

from flows.build import EVERY_DAY, build, build_facts, build_marts
from flows.catalog import load_catalog
from flows.dictionary import dictionary
from flows.facts_id import facts_due, has_current_facts
from flows.home import Home
from flows.lake_days import Span
from flows.log import LOGGER
from flows.models import models
from flows.renewal import Renewed
from flows.warehouse import drafting, publish
from transforms.errors import DataError

DAY = timedelta(days=1)


def brought_up_to_date(home: Home, span: Span = EVERY_DAY, fleet_text: str = FLEET) -> Renewed | None:
    """What a build wrote, None for one that made everything anew."""
    fleet, catalog = write_fleet(home, fleet_text), load_catalog(home)
    due = facts_due(home, fleet, catalog, span)
    with drafting(home, copy_published=due.stale is not None) as draft:
        renewed = build_facts(draft, home, fleet, catalog, no_progress, due)
        build_marts(draft, home, no_progress)
        publish(draft)
    return renewed


def everything(path: Path) -> dict[str, list[str]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return {name: sorted(map(repr, connection.execute(f"from {name}").fetchall())) for name in dictionary()}


def anew(root: Path, rows: list[dict[str, Any]], rejects: list[dict[str, Any]] | None = None) -> dict[str, list[str]]:
    """All tables of a build of `rows` in a home of its own."""
    shutil.rmtree(root, ignore_errors=True)
    home = write_lake(root, rows, rejects)
    assert brought_up_to_date(home) is None
    return everything(home.warehouse)


def rewritten(home: Home, rows: list[dict[str, Any]], rejects: list[dict[str, Any]] | None = None) -> None:
    """Put a lake of `rows` in the place of the one of `home`."""
    shutil.rmtree(home.lake)
    write_lake(home.root, sorted(rows, key=lambda r: r["arrived_at"]), rejects)


def hostile_rows(seed: int) -> list[dict[str, Any]]:
    """Random sessions over two weeks with what ties days together: retries a day later, repeats from the gateway's
    cache under an id of their own, sessions that only a fall-back id names, turns that no log numbers."""
    draw = random.Random(seed)
    rows = random_rows(seed, sessions=100, days=11)
    for number in range(40):
        at = MONDAY + timedelta(seconds=draw.randrange(11 * 86_400))
        name = 9_000_000 + number
        doubtful = {"session_id": f"u{number}", "flags": ["session_unproven"]}
        rows.append(row(name, arrived_at=at, e2e_s=2.0, **doubtful))
        if draw.random() < 0.5:
            rows.append(row(name + 1000, arrived_at=at + draw.randrange(3) * DAY, e2e_s=1.0, **doubtful))
        if draw.random() < 0.5:
            later = at + draw.choice([1, 5]) * DAY
            rows.append(row(name, attempt=2, arrived_at=later, **{**doubtful, "status": "error"}))
        if draw.random() < 0.5:
            repeat = f"{row(name)['request_id']}_cache_hit{number}"
            cached = {"served_by": "gateway_cache", "record_id": repeat, "attempt": 1 + draw.randrange(2)}
            rows.append(row(name, arrived_at=at + 2 * DAY, **{**doubtful, **cached}))
    return sorted(rows, key=lambda r: r["arrived_at"])


def rejected(days: list[str]) -> list[dict[str, Any]]:
    return [
        {"day": day, "source": "kvledger", "source_file": "a.jsonl", "source_position": n, "reason": "no arrival"}
        for n, day in enumerate(days)
    ]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
def test_whatever_order_days_and_late_rows_come_in_the_tables_are_those_of_a_build_anew(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    rows = hostile_rows(seed)
    by_day: dict[date, list[dict[str, Any]]] = defaultdict(list)
    for each in rows:
        by_day[each["arrived_at"].date()].append(each)
    days = draw.sample(sorted(by_day), len(by_day))
    late = {id(each) for day in days[:11] for each in draw.sample(by_day[day], len(by_day[day]) // 5)}
    there = [each for day in days[:11] for each in by_day[day] if id(each) not in late]
    home = write_lake(tmp_path / "home", sorted(there, key=lambda r: r["arrived_at"]), rejected(["2026-11-17"]))
    assert brought_up_to_date(home) is None
    ways = []
    for day in days[11:] if seed > 1 else days[11:14]:
        there += by_day[day]
        if draw.random() < 0.4:  # late rows of one old day come along, another day loses some
            some = draw.choice(days[:11])
            there += [each for each in by_day[some] if id(each) in late]
            late -= {id(each) for each in by_day[some]}
        refused = rejected(draw.sample(["2026-11-17", "2026-11-24", "1970-01-01"], 2))
        rewritten(home, there, refused)
        ways.append(brought_up_to_date(home))
        if seed > 1:
            assert everything(home.warehouse) == anew(tmp_path / "anew", sorted(there, key=_at), refused)
    assert sum(way is not None for way in ways) >= len(ways) - 1
    gone = draw.choice(days)
    rest = [each for each in there if each["arrived_at"].date() != gone]
    rewritten(home, rest, refused)
    assert brought_up_to_date(home) is not None
    assert everything(home.warehouse) == anew(tmp_path / "anew", sorted(rest, key=_at), refused)


def _at(each: dict[str, Any]) -> Any:
    return each["arrived_at"]


def plain_days(days: int, per_day: int = 50) -> list[dict[str, Any]]:
    """`per_day` requests a day, each fifth in a session of that day."""
    return [
        row(
            1000 * day + n,
            arrived_at=MONDAY + day * DAY + timedelta(minutes=n),
            session_id=f"s{day}-{n % 5}" if n % 5 == 0 else None,
            turn=n // 5 + 1 if n % 5 == 0 else None,
            e2e_s=1.0,
        )
        for day in range(days)
        for n in range(per_day)
    ]


def test_a_new_day_writes_its_own_facts_and_no_others(tmp_path: Path) -> None:
    home = write_lake(tmp_path, plain_days(8))
    assert brought_up_to_date(home) is None
    rewritten(home, plain_days(9))
    renewed = brought_up_to_date(home)
    assert renewed is not None
    assert renewed.days == (date(2026, 11, 24),)
    assert renewed.weeks == {"2026-W48"}
    written = {name: renewed.written_rows[name] for name in ("stg_requests", "fct_requests", "fct_attempts")}
    assert written == {"stg_requests": 50, "fct_requests": 50, "fct_attempts": 50}
    assert (renewed.written_rows["fct_sessions"], renewed.written_rows["fct_tool_waits"]) == (1, 9)
    assert renewed.written_rows["dist_coverage"] == 1
    assert renewed.written_rows["fct_arrival_seconds"] == 100  # of the week, two days old by now
    again = brought_up_to_date(home)
    assert again is not None
    assert not again.days
    assert not {name for name, rows in again.written_rows.items() if rows and name.startswith(("stg_", "fct_"))}


def test_a_late_row_of_an_old_day_corrects_what_follows_from_it(tmp_path: Path) -> None:
    """A session of two days without logged turns: a late first call moves its turns and waits on both days."""
    session = {"session_id": "long", "tool_calls": 1, "e2e_s": 60.0}
    calls = [row(7000 + n, arrived_at=MONDAY + DAY - timedelta(minutes=30 - 20 * n), **session) for n in range(4)]
    rows = plain_days(6)
    home = write_lake(tmp_path / "home", sorted([*rows, *calls[1:]], key=_at))
    brought_up_to_date(home)
    rewritten(home, [*rows, *calls])
    renewed = brought_up_to_date(home)
    assert renewed is not None
    assert renewed.days == (date(2026, 11, 16),)
    assert renewed.written_rows["fct_requests"] == 50 + 4  # its day, and the two calls of the session on the next
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        told = connection.execute("select turn, wait_s from fct_tool_waits where session_id = 'long' order by turn")
        assert told.fetchall() == [(2, 1140.0), (3, 1140.0), (4, 1140.0)]
    assert everything(home.warehouse) == anew(tmp_path / "anew", sorted([*rows, *calls], key=_at))


def test_a_range_fills_in_its_days_and_the_next_build_the_rest(tmp_path: Path) -> None:
    home = write_lake(tmp_path / "home", plain_days(8))
    assert brought_up_to_date(home, Span(date(2026, 11, 18), date(2026, 11, 22))) is None
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        found = connection.execute("select min(arrival_date), max(arrival_date), count(*) from fct_requests").fetchall()
    assert found == [(date(2026, 11, 18), date(2026, 11, 22), 250)]
    assert not has_current_facts(home, write_fleet(home), load_catalog(home))
    renewed = brought_up_to_date(home, Span(date(2026, 11, 16), date(2026, 11, 18)))
    assert renewed is not None
    assert renewed.days == (date(2026, 11, 16), date(2026, 11, 17), date(2026, 11, 18))
    assert renewed.left == (date(2026, 11, 23),)
    renewed = brought_up_to_date(home)
    assert renewed is not None
    assert renewed.days == (date(2026, 11, 23),)
    assert has_current_facts(home, write_fleet(home), load_catalog(home))
    assert everything(home.warehouse) == anew(tmp_path / "anew", plain_days(8))
    with pytest.raises(DataError, match=r"no requests from 2027-01-01 to its end; it has days from 2026-11-16 to 2026"):
        brought_up_to_date(home, Span(date(2027, 1, 1), None))


def test_a_range_takes_nothing_of_days_that_are_not_built_though_sessions_go_on_there(tmp_path: Path) -> None:
    home = write_lake(tmp_path / "home", hostile_rows(seed=4))
    built = {date(2026, 11, 18), date(2026, 11, 20), date(2026, 11, 21)}
    assert brought_up_to_date(home, Span(min(built), min(built))) is None
    assert brought_up_to_date(home, Span(date(2026, 11, 20), max(built))) is not None
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        assert {
            day for (day,) in connection.execute("from (select arrival_date from stg_requests)").fetchall()
        } == built


def test_an_edit_of_the_fleet_file_makes_again_what_hangs_on_it_and_no_facts(tmp_path: Path) -> None:
    """When and where reviews go changes nothing; prices change dimensions; lengths, objectives and time zone what reads
    them; a fact of a request or session is written in no case."""
    rows = sorted(random_rows(5, 60), key=_at)
    home = write_lake(tmp_path / "home", rows)
    assert brought_up_to_date(home) is None
    aside = (
        FLEET
        + '[schedule]\nreview = "0 7 * * mon"\n[publish]\nto = "s3://reviews/here"\n[warehouse]\nkeep_versions = 2\n'
    )
    assert has_current_facts(home, write_fleet(home, aside), load_catalog(home))
    priced = aside + '[prices]\n"H100-SXM-80GB" = 9.5\n'
    assert not has_current_facts(home, write_fleet(home, priced), load_catalog(home))
    renewed = brought_up_to_date(home, fleet_text=priced)
    assert renewed is not None
    by_rows = {model.name for model in models() if model.incremental}
    assert not by_rows & renewed.written_rows.keys()
    edited = priced.replace("Asia/Kolkata", "UTC").replace("replicas = 2", "replicas = 3")
    edited = edited.replace("max_model_len = 131072", "max_model_len = 2048\n[deployments.slo]\nttft_p95_s = 0.5", 1)
    renewed = brought_up_to_date(home, fleet_text=edited)
    assert renewed is not None
    written = by_rows & renewed.written_rows.keys()
    assert {"fct_output_ends", "dist_latency", "dist_hours"} <= written
    assert not written & {"stg_requests", "fct_requests", "fct_attempts", "fct_sessions", "fct_tool_waits"}
    other = write_lake(tmp_path / "anew", rows)
    assert brought_up_to_date(other, fleet_text=edited) is None
    assert everything(home.warehouse) == everything(other.warehouse)


def test_a_warehouse_of_older_code_or_another_fleet_is_built_anew_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_lake(tmp_path, plain_days(8))
    fleet, catalog = write_fleet(home), load_catalog(home)
    build(home, fleet, catalog, no_progress)
    monkeypatch.setattr(LOGGER, "propagate", True)
    caplog.set_level(logging.INFO)
    other = write_fleet(home, FLEET.replace('"chat-model"', '"chat-*"'))
    assert facts_due(home, other, catalog, EVERY_DAY).stale is None
    assert caplog.messages[-1].startswith(
        "the warehouse is built anew from the lake: deployments of the fleet file or what"
    )
    caplog.clear()
    with pytest.raises(DataError, match=r"as a whole \(deployments of the fleet file or .*; run kvledger"):
        facts_due(home, other, catalog, Span(date(2026, 11, 16), None))
    assert not [message for message in caplog.messages if "is built anew" in message]
    caplog.clear()
    with duckdb.connect(str(home.warehouse)) as connection:  # as before there were recipes
        connection.execute("delete from dim_settings where name = 'recipe'; drop table dim_lake_days")
    assert facts_due(home, fleet, catalog, EVERY_DAY).stale is None
    assert caplog.record_tuples[-1][1:] == (
        logging.WARNING,
        "the warehouse is built anew from the lake: kvledger was upgraded",
    )
    home.warehouse.write_bytes(b"no database")
    build(home, fleet, catalog, no_progress)
    assert "is not a warehouse this version can open" in caplog.messages[-1]
    assert has_current_facts(home, fleet, catalog)
