"""SQL models against plain Python on random inputs: the same attempts, waits, quantiles, windows and integrals."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.dictionary import dictionary
from flows.models import models

BY_NAME = {model.name: model for model in models()}
MONDAY = datetime(2026, 11, 16)  # noqa: DTZ001 -- the warehouse keeps UTC without a zone
MICROS = timedelta(microseconds=1)
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connected = duckdb.connect(config={"threads": 2, "preserve_insertion_order": False})
    connected.execute("set TimeZone = 'UTC'")
    return connected


def put(connection: duckdb.DuckDBPyConnection, name: str, rows: list[dict[str, Any]]) -> None:
    types = dictionary()[name].types
    given_columns = sorted({column for row in rows for column in row})
    connection.execute(f"create or replace table {name} ({', '.join(f'{c} {t}' for c, t in types.items())})")
    if rows:
        marks = ", ".join("?" for _ in given_columns)
        connection.executemany(
            f"insert into {name} ({', '.join(given_columns)}) values ({marks})",  # noqa: S608
            [[row.get(column) for column in given_columns] for row in rows],
        )


def run(connection: duckdb.DuckDBPyConnection, name: str) -> pl.DataFrame:
    for read in BY_NAME[name].reads:
        connection.execute(f"create table if not exists {read} as select 1 as unused limit 0")
    return connection.sql(BY_NAME[name].sql).pl()


moments = st.integers(0, 3 * 3600 * 10**6).map(lambda us: MONDAY + us * MICROS)
spans = st.one_of(st.none(), st.integers(0, 1800 * 10**6))


@given(st.lists(st.tuples(st.sampled_from(["a", None]), moments, spans), min_size=1, max_size=25))
@QUICK
def test_concurrency_is_the_integral_of_the_number_in_flight(
    connection: duckdb.DuckDBPyConnection, drawn: list[tuple[str | None, datetime, int | None]]
) -> None:
    rows = [
        {"deployment_id": name, "arrived_at": at, "ended_at": None if us is None else at + us * MICROS}
        for name, at, us in drawn
    ]
    put(connection, "fct_attempts", rows)
    found = run(connection, "dist_concurrency")
    for window in found.iter_rows(named=True):
        start, end = window["window_started_at"], window["window_started_at"] + timedelta(minutes=5)
        mine = [
            r for r in rows if r["ended_at"] and window["deployment_id"] in ("(all)", r["deployment_id"] or "(none)")
        ]
        held = sum(
            max((min(r["ended_at"], end) - max(r["arrived_at"], start)) / MICROS, 0)
            for r in mine
            if r["arrived_at"] < end and r["ended_at"] > start
        )
        assert window["concurrency_mean_requests"] == pytest.approx(held / 3e8, rel=1e-12, abs=1e-12)
        before = sum(r["arrived_at"] < start <= r["ended_at"] for r in mine)
        assert window["started_requests"] == before


def wait_of(prior: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The gap before `row`, as planner.md §2 words it."""
    calls, reason, results = prior["tool_calls"], prior["finish_reason"], row["tool_results"]
    failed = prior["is_failed"]  # and delivered no calls
    asked = not failed and ((calls or 0) > 0 or reason == "tool_calls")
    is_known = failed or calls is not None or reason is not None
    logged = row["logged_tool_wait_s"]
    stamped = None if prior["ended_at"] is None else (row["arrived_at"] - prior["ended_at"]) / timedelta(seconds=1)
    if logged is not None:
        is_tool, is_logged = True, True
    elif results is None:
        is_tool, is_logged = asked, False
    elif is_known:
        is_tool, is_logged = asked and results > 0, True
    else:
        is_tool, is_logged = results > 0, False
    inferred = None if stamped is None else max(stamped, 0)
    return {
        "request_id": row["request_id"],
        "kind": "tool" if is_tool else "user",
        "kind_source": "logged" if is_logged else "inferred",
        "wait_s": inferred if logged is None else logged,
        "is_overlap": logged is None and stamped is not None and stamped < 0,
        "is_disagreement": logged is not None and inferred is not None and abs(logged - inferred) > 1,
    }


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = []
    for number in range(draw(st.integers(1, 20))):
        at = draw(moments)
        us = draw(spans)
        rows.append(
            {
                "request_id": f"r{number}",
                "source": "x",
                "session_id": draw(st.sampled_from(["s", "t", None])),
                "agent_id": draw(st.sampled_from([None, "sub"])),
                "turn": number,
                "arrived_at": at,
                "ended_at": None if us is None else at + us * MICROS,
                "served_by": draw(st.sampled_from(["backend", "gateway_cache"])),
                "is_failed": draw(st.booleans()),
                "prompt_tokens": draw(st.one_of(st.none(), st.integers(0, 1000))),
                "output_tokens": draw(st.integers(0, 1000)),
                "tool_calls": draw(st.sampled_from([None, 0, 2])),
                "tool_results": draw(st.sampled_from([None, 0, 2])),
                "finish_reason": draw(st.sampled_from([None, "stop", "tool_calls"])),
                "logged_tool_wait_s": draw(st.sampled_from([None, None, 0.5, 30.0])),
            }
        )
    return rows


@given(turns())
@QUICK
def test_tool_waits_follow_the_words_of_the_specification(
    connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]
) -> None:
    put(connection, "fct_requests", rows)
    found = {gap["request_id"]: gap for gap in run(connection, "fct_tool_waits").iter_rows(named=True)}
    lanes: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["session_id"] is not None:
            lanes[row["session_id"], row["agent_id"]].append(row)
    gaps = 0
    for lane in lanes.values():
        held: int | None = None
        for prior, row in pairwise(lane):
            gaps += 1
            if not prior["is_failed"] and prior["served_by"] == "backend":
                known = prior["prompt_tokens"]
                held = None if known is None else known + prior["output_tokens"]
            gap = found[row["request_id"]]
            wanted = wait_of(prior, row) | {"prior_context_tokens": held}
            assert {name: gap[name] for name in wanted} == {
                name: pytest.approx(value) if isinstance(value, float) else value for name, value in wanted.items()
            }
    assert len(found) == gaps


lengths = st.one_of(st.none(), st.integers(0, 2**21))


@given(st.lists(st.tuples(st.sampled_from(["m", "n"]), lengths, st.booleans()), max_size=40))
@QUICK
def test_quantiles_are_numpys_and_bins_hold_what_they_say(
    connection: duckdb.DuckDBPyConnection, drawn: list[tuple[str, int | None, bool]]
) -> None:
    rows = [
        {"week": "2026-W47", "deployment_id": "d", "model": m, "prompt_tokens": p, "is_backend": b, "status": "ok"}
        for m, p, b in drawn
    ]
    put(connection, "fct_requests", rows)
    for row in run(connection, "dist_prompt_tokens").iter_rows(named=True):
        mine = [p for m, p, b in drawn if b and row["model"] in ("(all)", m)]
        known = [p for p in mine if p is not None]
        assert (row["requests"], row["unknown_requests"]) == (len(known), len(mine) - len(known))
        for name, share in (("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            wanted = pytest.approx(float(np.quantile(known, share)), rel=1e-9) if known else None
            assert row[f"prompt_{name}_tokens"] == wanted
    put(connection, "fct_output_ends", [])
    bins = run(connection, "dist_length_histogram").filter(pl.col("deployment_id") == "d")
    for row in bins.iter_rows(named=True):
        inside = [p for _, p, b in drawn if b and p is not None and row["bin_low_tokens"] <= p < row["bin_high_tokens"]]
        assert row["requests"] == len(inside)
        low, high = row["bin_low_tokens"], row["bin_high_tokens"]
        assert (low, high) == (0, 1) or (high == 2 * low and math.log2(low).is_integer())
    assert bins["requests"].sum() == sum(b and p is not None for _, p, b in drawn)


@given(st.lists(moments, min_size=2, max_size=60), st.sampled_from([1, 1_000_000, 3_000_000]))
@QUICK
def test_arrival_windows_are_those_of_a_plain_count(
    connection: duckdb.DuckDBPyConnection, drawn: list[datetime], step_us: int
) -> None:
    stamps = sorted(at - ((at - MONDAY) // MICROS % step_us) * MICROS for at in drawn)
    rows = [
        {"request_id": f"r{n}", "week": "2026-W47", "deployment_id": "d", "arrived_at": at, "served_by": "backend"}
        for n, at in enumerate(stamps)
    ]
    put(connection, "fct_requests", rows)
    for name in ("fct_arrival_seconds", "dist_covered_spans", "dist_arrival_gaps"):
        put(connection, name, run(connection, name).to_dicts())
    gaps = np.diff([(at - MONDAY) / timedelta(seconds=1) for at in stamps])
    found = run(connection, "dist_arrivals").filter(pl.col("deployment_id") == "d")
    for row in found.iter_rows(named=True):
        counts: dict[int, int] = defaultdict(int)
        for at in stamps:
            counts[(at - MONDAY) // timedelta(seconds=row["window_s"])] += 1
        peak = max(counts.values())
        assert row["requests"] == len(stamps)
        assert row["arrivals_peak_requests"] == peak
        first = min(n for n, count in counts.items() if count == peak)
        assert row["peak_at"] == MONDAY + timedelta(seconds=first * row["window_s"])
        if all(gaps <= 3600):
            start, end = (math.ceil((stamps[0] - MONDAY) / timedelta(seconds=row["window_s"])), (stamps[-1] - MONDAY))
            full = [counts[n] for n in range(start, end // timedelta(seconds=row["window_s"]))]
            if full and sum(full):
                assert row["arrivals_mean_requests"] == pytest.approx(np.mean(full))
                assert row["dispersion_factor"] == pytest.approx(np.var(full) / np.mean(full), abs=1e-9)
    near = gaps[gaps <= 3600]
    if len(near) and near.sum():
        assert found["gap_cv_factor"][0] == pytest.approx(np.std(near) / np.mean(near), abs=1e-6)
        is_stepped = 2 * (near == 0).sum() > len(near)
        step = float(np.median(near[near > 0])) if is_stepped else None
        assert found["arrival_step_s"][0] == (pytest.approx(step) if step else None)
