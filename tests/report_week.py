"""A small, honest week of marts for the tests of the report, typed by the dictionary, with names that mean harm."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from reports.bundle import bundle
from reports.html import html
from reports.page import Page
from reports.review import review_page

WEEK, BEFORE = "2026-W47", "2026-W46"
MONDAY = datetime(2026, 11, 16)  # noqa: DTZ001 - the warehouse's moments have no zone and are UTC
GIB = 2**30
RUN_ID = "1a2b3c4d5e6f"

HOSTILE = "<script>fetch('//evil.example')</script>"
CLOSING = '</script><img src=x onerror="document.title=1">'
LONG = "tenant-" + "x" * 193
RIGHT_TO_LEFT = "مستأجر الخدمة"
EXPRESSION = "'];datum.x=window.top//{{7*7}}"

LATENCIES = (
    ("queue", 0.004, None),
    ("prefill", 0.4, None),
    ("ttft", 0.41, 2.0),
    ("tpot", 0.029, 0.05),
    ("e2e", 9.4, None),
)

Rows = dict[str, list[dict[str, Any]]]

_TYPES = {
    "varchar": pl.String, "bigint": pl.Int64, "integer": pl.Int32, "double": pl.Float64, "boolean": pl.Boolean,
    "timestamp": pl.Datetime("us"), "date": pl.Date,
}  # fmt: skip


def dictionary() -> dict[str, Any]:
    path = Path(__file__).resolve().parents[1] / "sql" / "dictionary.toml"
    return tomllib.loads(path.read_text())


def schemas() -> dict[str, dict[str, Any]]:
    """Table -> column -> polars type of every mart, distribution and dimension."""
    words = dictionary()
    return {
        name: {
            column: _TYPES[table.get("types", {}).get(column, words["columns"].get(column, ["varchar"])[0])]
            for column in table["columns"]
        }
        for name, table in words["tables"].items()
        if name.startswith(("mart_", "dim_"))
    }


def frame(name: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Table `name` of `rows`; a column a row lacks is NULL, one the dictionary lacks is an error."""
    schema, listed = schemas()[name], list(rows)
    unknown = {column for row in listed for column in row} - set(schema)
    assert not unknown, f"{name}: {unknown}"
    week = {"week": WEEK} if "week" in schema else {}
    return pl.DataFrame([week | row for row in listed], schema=schema, orient="row")


def empty_week() -> dict[str, pl.DataFrame]:
    """All tables, no rows: what a warehouse without traffic has."""
    return {name: frame(name, []) for name in schemas()}


def decision(deployment_id: str, needed: int, now: int, action: str, **more: Any) -> dict[str, Any]:
    return {
        "deployment_id": deployment_id, "run_id": RUN_ID, "now_gpus": now, "needed_gpus": needed,
        "low_gpus": needed - 2, "high_gpus": needed + 4, "short_gpus": needed - now, "envelope_gpus": needed - 5,
        "now_replicas": now // 2, "needed_replicas": needed // 2, "kv_replicas": needed / 2 - 1.3,
        "compute_replicas": needed / 4, "latency_replicas": needed / 3, "binding_demand": "kv",
        "utilization_factor": needed / now * 1.1, "headroom_factor": now / needed / 1.1 - 1, "headroom_ratio": 0.3,
        "is_one_lost_ok": needed <= now, "is_censored": False, "residency_peak_bytes": 401.25 * GIB,
        "residency_peak_observed_bytes": 388.5 * GIB, "residency_max_bytes": 431.5 * GIB,
        "kv_capacity_bytes": 47 * GIB, "now_capacity_bytes": 47 * GIB * (now // 2), "planned_batch_requests": 96,
        "step_s": 0.0312, "busiest_hour_at": MONDAY + timedelta(days=1, hours=14), "compute_gpu_s_per_s": needed / 4,
        "cost_usd_per_hour": needed * 2.99, "now_cost_usd_per_hour": now * 2.99,
        "cost_change_usd_per_hour": (needed - now) * 2.99, "output_cost_usd_per_million_tokens": 1.234,
        "session_cost_usd": 0.0187, "requests": 211_204, "prompt_total_tokens": 3_211_556_091,
        "output_total_tokens": 88_413_220, "kv_time_byte_s": 1.31e8 * GIB, "previous_week": BEFORE,
        "previous_needed_gpus": needed - 4, "gpus_change_gpus": 4, "requests_change_factor": 0.12,
        "prompt_change_factor": 0.184, "output_change_factor": -0.021, "kv_time_change_factor": 0.314,
        "action_text": action,
        "is_slo_reachable": True, "usable_requests": 209_001,
        "binding_text": "9 replicas for KV memory (peak 412 GiB × 1.3 headroom ÷ 69.4 GiB a replica = 7.72) + 1 spare",
        "change_text": "KV·time +31 %, mainly longer prompts (+18 %); requests +12 %.",
        "confidence_text": "Modelled on logged times; memory figures assumed; interval from 7 whole days.",
        "envelope_reason": "The envelope counts requests, not the KV they hold.", "provenance": "modelled",
    } | more  # fmt: skip


def full_week(windows: int = 2016) -> dict[str, pl.DataFrame]:
    """Three deployments with traffic, one of them named to do harm, and one deployment without any."""
    return dict(_full_week(windows))


@cache
def _full_week(windows: int, seed: int = 7) -> dict[str, pl.DataFrame]:
    random_ = random.Random(seed)
    names = ["chat", "coding-agent", HOSTILE]
    tables = empty_week()
    tables["mart_decision"] = frame("mart_decision", [
        decision("chat", 12, 16, "could release 4 GPUs"),
        decision("coding-agent", 22, 16, "add 6 GPUs"),
        decision(HOSTILE, 8, 8, "keep", low_gpus=None, high_gpus=None, binding_demand="compute",
                 cost_usd_per_hour=None, now_cost_usd_per_hour=None, previous_week=None, change_text=None),
    ])  # fmt: skip
    tables["dim_deployments"] = frame("dim_deployments", [
        {"deployment_id": name, "model_id": "Qwen/Qwen3-32B", "gpu_id": "H100-SXM-80GB", "gpus_per_replica_gpus": 2}
        for name in [*names, "idle"]
    ])  # fmt: skip
    tables["mart_coverage"] = frame("mart_coverage", [{
        "previous_week": BEFORE, "covered_from_at": MONDAY, "covered_to_at": MONDAY + timedelta(days=7),
        "covered_s": 604_800.0, "covered_ratio": 1.0, "requests": 412_332, "attempts_requests": 420_118,
        "rejected_rows": 31, "files": 21, "unserved_requests": 412, "unserved_ratio": 0.001,
        "coverage_text": "the whole week is covered",
    }])  # fmt: skip
    tables["mart_residency"] = frame("mart_residency", _residency(names, windows, random_))
    tables["mart_arrival_windows"] = frame("mart_arrival_windows", [
        {"deployment_id": name, "window_started_at": MONDAY + timedelta(minutes=5 * n), "requests": round(rate * 300),
         "arrivals_requests_per_s": rate, "prompt_tokens": 10**6, "output_tokens": 10**5,
         "concurrency_mean_requests": rate * 9}
        for name in names for n in range(windows) for rate in [_day(n) * 0.8 * random_.uniform(0.7, 1.3)]
    ])  # fmt: skip
    tables |= _traffic(names) | _sources()
    return tables


def _day(window: int) -> float:
    return 1.0 + 0.75 * math.sin((window / 288 - 0.3) * 2 * math.pi)


def _residency(names: list[str], windows: int, random_: random.Random) -> Iterable[dict[str, Any]]:
    for name in names:
        for n in range(windows):
            level = _day(n) * random_.uniform(0.85, 1.15) * 120 * GIB
            held = {"prefill": level * 0.12, "decode": level, "tool_wait": level * 0.7 if name != "chat" else 0.0}
            total = held["prefill"] + held["decode"]
            for pace, times in (("observed", 1.0), ("slo", 1.6)):
                for phase, value in [*held.items(), ("(all)", total * times)]:
                    yield {
                        "deployment_id": name, "window_started_at": MONDAY + timedelta(minutes=5 * n), "phase": phase,
                        "pace": pace, "residency_mean_bytes": value, "capacity_bytes": 376 * GIB,
                        "is_over_capacity": value > 376 * GIB, "provenance": "measured",
                    }  # fmt: skip


def _traffic(names: list[str]) -> dict[str, pl.DataFrame]:
    made = (
        _held(names) | _lengths(names) | _arrivals(names) | _waits(names) | _served(names) | _outlook() | _totals(names)
    )
    for name in ("mart_lengths", "mart_arrivals", "mart_kv_time"):
        made[name] += [row | {"deployment_id": "(all)"} for row in made[name] if row["deployment_id"] == "chat"]
    return {name: frame(name, rows) for name, rows in made.items()}


def _held(names: list[str]) -> Rows:
    """Who holds KV, and what of it failed attempts held."""
    tenants = ["(all)", RIGHT_TO_LEFT, LONG, HOSTILE, CLOSING, *(f"tenant-{n:02}" for n in range(16))]
    kv_time = []
    for name, (rank, tenant) in product(names, enumerate(tenants)):
        whole = 1.31e8 * GIB if tenant == "(all)" else 4e7 * GIB / (rank + 1)
        kv_time += [
            {"deployment_id": name, "tenant": tenant, "phase": phase, "attempts_requests": 4000 - rank,
             "unknown_requests": 3, "kv_time_byte_s": whole * share, "kv_time_mean_byte_s": whole * share / 4000,
             "kv_block_time_byte_s": whole * share * 1.01, "share_ratio": whole * share / (1.31e8 * GIB),
             "provenance": "measured"}
            for phase, share in (("prefill", 0.1), ("decode", 0.5), ("tool_wait", 0.4), ("(all)", 1.0))
        ]  # fmt: skip
    failed = [
        {"deployment_id": name, "attempts_requests": 214_000, "failed_attempts_requests": 1811,
         "kv_time_byte_s": 1.31e8 * GIB, "failed_kv_time_byte_s": 2.2e6 * GIB, "failed_share_ratio": 0.0168}
        for name in names
    ]  # fmt: skip
    return {"mart_kv_time": kv_time, "mart_failed_kv": failed}


def _lengths(names: list[str]) -> Rows:
    measures = (("prompt", 2734.5), ("output", 129.0))
    lengths = [
        {"deployment_id": name, "model": model, "measure": measure, "requests": 211_204,
         "length_mean_tokens": p50 * 1.3, "length_p50_tokens": p50, "length_p90_tokens": p50 * 3,
         "length_p95_tokens": p50 * 4, "length_p99_tokens": p50 * 9, "length_max_tokens": int(p50 * 20),
         "length_total_tokens": int(p50 * 280_000), "unknown_requests": 12,
         "censored_requests": 844 if measure == "output" else None, "p50_change_factor": 0.184,
         "p99_change_factor": -0.031}
        for name, (measure, p50), model in product(names, measures, ("(all)", "qwen3-32b", EXPRESSION))
    ]  # fmt: skip
    histogram = [
        {"deployment_id": name, "measure": measure, "bin_low_tokens": low, "bin_high_tokens": max(1, 2 * low),
         "requests": 500 + n, "share_ratio": math.exp(-((n - 9) ** 2) / 8) / 5, "previous_requests": 480,
         "previous_share_ratio": math.exp(-((n - 8) ** 2) / 8) / 5}
        | ({} if measure == "prompt" else {"censored_requests": 55 * (n > 10), "censored_ratio": 0.0455,
                                           "censored_share_ratio": 0.0065 * (n > 10)})
        for name, (measure, _p50) in product(names, measures)
        for n, low in enumerate([0, *(2**n for n in range(17))])
    ]  # fmt: skip
    ends = [
        {"deployment_id": name, "reason": reason, "reason_text": words, "requests": requests, "share_ratio": share,
         "previous_share_ratio": share / 2, "output_total_tokens": requests * 200, "output_max_tokens": 16_384}
        for name in names for reason, words, requests, share in (
            ("none", "the model came to its own end", 210_360, 0.9951),
            ("caller_limit", "the caller's limit (censored)", 844, 0.0049),
        )
    ]  # fmt: skip
    return {"mart_lengths": lengths, "mart_length_histogram": histogram, "mart_output_ends": ends}


def _arrivals(names: list[str]) -> Rows:
    arrivals = [
        {"deployment_id": name, "window_s": window_s, "requests": 211_204,
         "arrivals_mean_requests": 0.349 * window_s,
         "arrivals_peak_requests": 6 + 2 * window_s, "arrivals_peak_requests_per_s": (6 + 2 * window_s) / window_s,
         "peak_at": MONDAY + timedelta(days=2, hours=9, minutes=30), "peak_to_mean_factor": 5.5,
         "dispersion_factor": 3.21, "gap_cv_factor": 1.44, "is_trusted": window_s > 3, "arrival_step_s": 3.0,
         "peak_change_factor": 0.08}
        for name, window_s in product(names, (1, 10, 60, 300, 3600))
    ]  # fmt: skip
    hours = [
        {"deployment_id": name, "hour_of_week": h, "requests": round(1250 * _day(h * 12)), "previous_requests": 1000}
        for name, h in product(names, range(168))
    ]
    peaks = [
        {"deployment_id": name, "window_s": step_s, "requests": n % 7 * 3,
         "window_started_at": MONDAY + timedelta(days=2, hours=9, seconds=step_s * n)}
        for name, step_s, n in product(names, (60, 1), range(60))
    ]  # fmt: skip
    return {"mart_arrivals": arrivals, "mart_hours": hours, "mart_arrival_peaks": peaks}


def _waits(names: list[str]) -> Rows:
    """Sessions, their gaps, and what to do with KV in them."""
    waits = [
        {"deployment_id": name, "kind": kind, "waits_requests": 90_112, "unknown_requests": 40, "wait_mean_s": 21.5,
         "wait_p50_s": 3.25, "wait_p90_s": 44.0, "wait_p95_s": 90.0, "wait_p99_s": 610.0, "wait_max_s": 8200.0,
         "logged_ratio": 0.93, "overlap_requests": 71, "p50_change_factor": 0.02,
         "tool_wait_kv_time_byte_s": 5e7 * GIB if kind == "tool" else None,
         "tool_wait_kv_time_factor": 0.66 if kind == "tool" else None}
        for name, kind in product(names, ("tool", "user"))
    ]  # fmt: skip
    bins = [
        {"deployment_id": name, "kind": kind, "bin_low_s": float(2**n // 2), "bin_high_s": 2.0**n,
         "waits_requests": 900, "share_ratio": math.exp(-((n - (2 if kind == "tool" else 6)) ** 2) / 6) / 5}
        for name, kind, n in product(names, ("tool", "user"), range(13))
    ]  # fmt: skip
    sessions = [
        {"deployment_id": name, "sessions": 9120, "single_sessions": 1204, "turns_mean_requests": 23.16,
         "turns_p50_requests": 14.0, "turns_p99_requests": 181.0, "turns_max_requests": 402,
         "prompt_max_p50_tokens": 38_111.5, "prompt_max_p99_tokens": 121_004.0, "duration_p50_s": 845.0,
         "duration_p99_s": 14_100.0, "overlap_sessions": 31}
        for name in names
    ]  # fmt: skip
    policies = [
        {"deployment_id": "coding-agent", "policy": policy, "policy_text": words, "ttl_s": ttl_s, "break_even_s": 8.5,
         "pool_full_ratio": 0.4, "held_byte_s": held * 1e6 * GIB, "held_gpu_s": held * 3600,
         "recompute_gpu_s": 72_000.0 - held * 1800, "saving_gpu_s": held * 1800, "saving_usd_per_hour": held / 20,
         "is_today": policy == "lru", "is_best": policy == "ttl", "provenance": "modelled"}
        for policy, words, ttl_s, held in (
            ("lru", "keep KV until the room is needed", None, 0.0),
            ("ttl", "pin KV for up to 12 s of a tool wait", 12.0, 18.25),
        )
    ]  # fmt: skip
    return {"mart_tool_waits": waits, "mart_tool_wait_histogram": bins, "mart_sessions": sessions,
            "mart_tool_wait_policies": policies}  # fmt: skip


def _served(names: list[str]) -> Rows:
    """How fast requests were answered, and what a larger batch would give."""
    latency = [
        {"deployment_id": name, "measure": measure, "source": "logged", "latency_p50_s": p50,
         "latency_p90_s": p50 * 2.1, "latency_p95_s": p50 * 2.9, "latency_p99_s": p50 * 6,
         "latency_all_p50_s": p50 * 1.02, "latency_all_p90_s": p50 * 2.3, "latency_all_p95_s": p50 * 3.4,
         "slo_s": slo, "attainment_ratio": None if slo is None else 0.962, "is_slo_met": None if slo is None else True,
         "requests": 211_204, "timed_requests": 209_001, "failed_requests": 1811, "p95_change_factor": 0.22}
        for name, (measure, p50, slo) in product(names, LATENCIES)
    ]  # fmt: skip
    curve = [
        {"deployment_id": name, "batch_requests": 2**n,
         "throughput_tokens_per_s": 4000 * (1 - math.exp(-(2**n) / 90)),
         "tpot_s": 0.011 + 0.00021 * 2**n, "ttft_s": 0.3, "is_kv_ok": n < 8, "is_slo_ok": n < 8,
         "is_turning_point": n == 6, "is_recommended": n == 7, "is_today": n == 8, "slo_s": 0.05,
         "slo_ttft_p95_s": 2.0, "kv_limit_requests": 128, "provenance": "assumed"}
        for name, n in product(names, range(10))
    ]  # fmt: skip
    rates = [
        {"deployment_id": name, "fleet_replicas": replicas, "rate_factor": factor, "is_today": replicas == 8,
         "is_needed": replicas == 11, "rate_requests_per_s": 2.25 * factor,
         "replica_rate_requests_per_s": 2.25 * factor / replicas,
         "attainment_ratio": min(0.999, 1.1 * replicas / 11 / factor), "is_slo_ok": replicas / factor > 9.5,
         "busiest_hour_at": MONDAY + timedelta(days=1, hours=14), "provenance": "modelled"}
        for name, replicas, factor in product(names, (8, 11), (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0))
    ]  # fmt: skip
    return {"mart_latency": latency, "mart_batch_curve": curve, "mart_rate_curve": rates}


def _outlook() -> Rows:
    """Last week, the weeks to come, and what is worth doing, of one deployment."""
    changes = [
        {"deployment_id": "coding-agent", "mover": mover, "previous_week": BEFORE, "demand_part_gpus": part,
         "demand_part_factor": part / 16, "kv_time_part_byte_s": part * 1e6 * GIB, "kv_time_part_factor": part / 12,
         "provenance": "modelled"}
        for mover, part in (("rate", 2.31), ("lengths", 1.9), ("cache_hits", -0.6), ("residual", 0.1))
    ]  # fmt: skip
    actions = [
        {"deployment_id": "coding-agent", "position": n, "action_text": action, "saving_text": saving,
         "risk_text": risk, "saving_gpus": gpus, "saving_usd_per_hour": usd, "provenance": "modelled"}
        for n, (action, saving, risk, gpus, usd) in enumerate((
            ("add 6 GPUs", "costs $17.94/h", "until then 5 % headroom at the peak, 30 % asked", -6, -17.94),
            ("set max_model_len=65536", "frees 3 GPUs, saves $8.97/h", "0.20 % of turns refused or lost", 3, 8.97),
            (f"pin KV {CLOSING}", None, "computes 18 GPU·h anew a week", None, None),
        ), 1)
    ]  # fmt: skip
    forecasts = [
        {"deployment_id": "coding-agent", "horizon_week": f"2026-W{week}", "value_gpus": 18.0 + n, "low_gpus": 17.0 + n,
         "high_gpus": 19.0 + 2 * n, "fact_gpus": 18.5 if n < 2 else None, "is_held": True if n < 2 else None,
         "run_out_date": date(2026, 12, 14), "order_by_date": date(2026, 11, 14), "provenance": "modelled"}
        for n, week in enumerate(range(46, 54))
    ]  # fmt: skip
    growth = [
        {"deployment_id": "coding-agent", "horizon_week": "2026-W53", "value_gpus": 25.0, "low_gpus": 24.0,
         "high_gpus": 33.0, "run_out_date": date(2026, 12, 14), "order_by_date": date(2026, 11, 14),
         "judged_forecasts": 2, "held_forecasts": 2,
         "growth_text": "today's GPUs run out on 2026-12-14; order by 2026-11-14"},
        {"deployment_id": "chat", "judged_forecasts": 0, "held_forecasts": 0,
         "growth_text": "no forecast: it takes 4 weeks, half of each covered"},
    ]  # fmt: skip
    return {"mart_week_changes": changes, "mart_actions": actions, "mart_forecasts": forecasts, "mart_growth": growth}


def _totals(names: list[str]) -> Rows:
    fleet = [
        {"gpu_id": gpu_id, "deployments": 3, "now_gpus": 40, "needed_gpus": 42, "short_gpus": 2,
         "previous_needed_gpus": 30}
        for gpu_id in ("H100-SXM-80GB", "(all)")
    ]  # fmt: skip
    counts = [
        {"deployment_id": name, "requests": 212_004, "cache_requests": 500, "turned_away_requests": 300,
         "backend_requests": 211_204, "attempts_requests": 214_012, "usable_requests": 214_000,
         "unknown_requests": 12, "failed_requests": 1811}
        for name in [*names, "(all)"]
    ]  # fmt: skip
    assumed = [{"deployment_id": name, "assumed_text": "KV memory, router, GPU price"} for name in names]
    return {"mart_fleet": fleet, "mart_counts": counts, "mart_assumed": assumed}


def _sources() -> dict[str, pl.DataFrame]:
    return {
        "mart_data_quality": frame("mart_data_quality", [
            {"source": "litellm", "source_file": file, "status": "complete", "content_sha256": "ab" * 32,
             "read_rows": 30_031, "loaded_rows": 30_000, "duplicates_rows": 0, "rejected_rows": 31, "ignored_rows": 2,
             "rejected_ratio": 0.001, "chat_rows": 29_950, "unknown_prompt_ratio": 0.0, "unknown_output_ratio": 0.004,
             "unknown_ttft_ratio": 0.02, "unknown_e2e_ratio": 0.0, "unknown_session_ratio": 0.31}
            for file in ("chat-2026-11-16.jsonl.gz", CLOSING, LONG)
        ]),
        "mart_rejects": frame("mart_rejects", [
            {"source_file": CLOSING, "reason": "no start time", "rejected_rows": 31}
        ]),
        "mart_assumptions": frame("mart_assumptions", [
            {"deployment_id": "(all)", "name": "headroom_ratio", "value_text": "0.3", "provenance": "assumed",
             "source_text": "fleet.toml [planning]"},
            {"deployment_id": "chat", "name": "compute_efficiency_ratio", "value_text": "0.45",
             "provenance": "assumed", "source_text": "catalog"},
        ]),
        "mart_warnings": frame("mart_warnings", [
            {"deployment_id": "(all)", "code": "stamps_in_steps", "severity": "warning",
             "text": "Arrival stamps are in 3 s steps: burstiness below that is not to be trusted."},
            {"deployment_id": HOSTILE, "code": "no_interval", "severity": "warning",
             "text": "No price for this GPU: cost is not given."},
            {"deployment_id": "chat", "code": "few_requests", "severity": "note", "text": "The fullest was judged."},
        ]),
    }  # fmt: skip


VERSIONS = {"kvledger": "0.1.0", "duckdb": "2.0.1"}


@cache
def drawing_code() -> str:
    """The charts' JavaScript, made once a test process."""
    return bundle()


def page_of(tables: dict[str, pl.DataFrame]) -> Page:
    return review_page(tables, WEEK, VERSIONS, ["kvledger review --week 2026-W47"])


@cache
def full_page() -> Page:
    return page_of(full_week())


@cache
def full_html() -> str:
    return html(full_page(), drawing_code())
