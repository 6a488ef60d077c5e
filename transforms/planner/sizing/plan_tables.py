"""The tables a plan consists of: columns, types and row order of every plan_* Parquet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

TODAY = "today"
"""scenario_id of the fleet as it stands."""

_TEXT, _FLAG, _COUNT, _REAL = pl.String(), pl.Boolean(), pl.Int64(), pl.Float64()
_MOMENT = pl.Datetime("us", "UTC")

_KEYS: dict[str, pl.DataType] = {
    "run_id": _TEXT,
    "week": _TEXT,
    "deployment_id": _TEXT,
    "scenario_id": _TEXT,
}

_REPLICAS: dict[str, pl.DataType] = {
    "demand": _TEXT,  # kv | compute | latency; one row "none" where there is no usable traffic
    "demand_replicas": _REAL,  # before rounding up
    "replicas_replicas": _COUNT,
    "is_binding": _FLAG,
    "needed_replicas": _COUNT,
    "needed_gpus": _COUNT,
    "low_gpus": _COUNT,
    "high_gpus": _COUNT,
    "now_replicas": _COUNT,
    "now_gpus": _COUNT,
    "horizon_gpus": _COUNT,
    "is_one_lost_ok": _FLAG,
    "envelope_gpus": _COUNT,
    "envelope_reason": _TEXT,
    "cost_usd_per_hour": _REAL,
    "now_cost_usd_per_hour": _REAL,
    "output_cost_usd_per_million_tokens": _REAL,
    "session_cost_usd": _REAL,
    "residency_peak_bytes": _REAL,
    "residency_peak_observed_bytes": _REAL,
    "residency_max_bytes": _REAL,
    "kv_capacity_bytes": _COUNT,
    "is_censored": _FLAG,
    "is_slo_reachable": _FLAG,
    "slo_floor_text": _TEXT,
    "rests_on_text": _TEXT,
    "planned_batch_requests": _COUNT,
    "step_s": _REAL,
    "busiest_hour_at": _MOMENT,
    "compute_gpu_s_per_s": _REAL,
    "utilization_factor": _REAL,
    "headroom_ratio": _REAL,
    "resident_requests": _COUNT,  # of the observed lengths, that a replica's KV holds
    "sustained_low_requests_per_s": _REAL,  # open loop, one replica
    "sustained_high_requests_per_s": _REAL,
    "slo_missed_factor": _REAL,
    "note": _TEXT,
}

_RESIDENCY: dict[str, pl.DataType] = {
    "window_started_at": _MOMENT,
    "phase": _TEXT,  # prefill | decode | tool_wait
    "pace": _TEXT,  # observed | slo
    "residency_mean_bytes": _REAL,
    "residency_max_bytes": _REAL,
    "block_mean_bytes": _REAL,
    "resident_mean_requests": _REAL,
    "capacity_bytes": _COUNT,
}

_KV_TIME: dict[str, pl.DataType] = {
    "model": _TEXT,
    "tenant": _TEXT,
    "phase": _TEXT,
    "is_failed": _FLAG,
    "attempts_requests": _COUNT,
    "unknown_requests": _COUNT,
    "lower_bound_requests": _COUNT,
    "kv_time_byte_s": _REAL,
    "kv_time_mean_byte_s": _REAL,
    "kv_block_time_byte_s": _REAL,
    "kv_time_inside_byte_s": _REAL,
    "kv_shared_time_byte_s": _REAL,
    "shared_reading": _TEXT,  # exact | lower bound | NULL
}

_KV_ATTRIBUTION: dict[str, pl.DataType] = {
    "dimension": _TEXT,  # part | length | tenant | model | session | top_sessions | output_cap | tool_wait_cap
    "name": _TEXT,
    "attempts_requests": _COUNT,
    "held_sessions": _COUNT,
    "kv_time_byte_s": _REAL,
    "share_ratio": _REAL,
    "prompt_kv_time_byte_s": _REAL,
    "output_kv_time_byte_s": _REAL,
    "tool_wait_kv_time_byte_s": _REAL,
}

_LATENCY: dict[str, pl.DataType] = {
    "measure": _TEXT,  # queue | prefill | ttft | tpot | e2e
    "quantile_ratio": _REAL,
    "value_s": _REAL,
    "timed_requests": _COUNT,
    "source": _TEXT,  # logged | modelled
}

_BATCH_CURVE: dict[str, pl.DataType] = {
    "batch_requests": _COUNT,
    "throughput_tokens_per_s": _REAL,
    "tpot_s": _REAL,
    "ttft_s": _REAL,
    "rule_of_thumb_factor": _REAL,
    "is_kv_ok": _FLAG,
    "is_slo_ok": _FLAG,
    "is_turning_point": _FLAG,
    "is_recommended": _FLAG,
    "is_today": _FLAG,
    "burst_miss_ratio": _REAL,
    "burst_preempted_requests": _COUNT,
}

_RATE_CURVE: dict[str, pl.DataType] = {
    "fleet_replicas": _COUNT, "rate_factor": _REAL, "is_today": _FLAG, "is_needed": _FLAG,
    "rate_requests_per_s": _REAL, "attainment_ratio": _REAL,
}  # fmt: skip

_SCENARIOS: dict[str, pl.DataType] = {
    "position": _COUNT,  # 0 for today, then as asked for
    "settings_text": _TEXT,
    "why_text": _TEXT,
    "swept_setting": _TEXT,
    "swept_value": _REAL,
    "curve_measure": _TEXT,
    "is_knee": _FLAG,
    "is_first_cut": _FLAG,
    "outcome": _TEXT,  # answered | does not start | no traffic
    "reason_text": _TEXT,
    **dict.fromkeys(
        (
            "offered_requests", "rejected_requests", "prompt_too_long_requests", "requested_too_long_requests",
            "clamped_requests", "clamp_saves_requests", "clamp_saves_tokens", "compacted_requests", "lost_requests",
            "sessions_cut", "truncated_requests", "lost_cut_tokens", "lost_truncated_tokens",
            "sub_agent_rejected_requests", "sub_agent_lost_requests", "sub_agent_truncated_requests",
            "sub_agent_lost_tokens", "drawn_requests", "left_out_requests", "extendable_requests",
            "extension_max_tokens",
        ),
        _COUNT,
    ),
    "served_output_ratio": _REAL,
    "verdict": _TEXT,  # stable | backlogged | overloaded
    **dict.fromkeys(
        (
            "completed_requests", "queue_refused_requests", "timed_out_requests", "unsent_requests",
            "preempted_requests", "missed_requests",
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        (
            "kv_time_byte_s", "residency_mean_bytes", "residency_peak_bytes", "kv_peak_ratio", "ttft_p50_s",
            "ttft_p95_s", "ttft_p99_s", "tpot_p50_s", "tpot_p95_s", "tpot_p99_s", "e2e_p50_s", "e2e_p95_s",
            "e2e_p99_s", "attainment_ratio",
        ),
        _REAL,
    ),
    "paid_gpu_s": _REAL,
    "fixed_fleet_replicas": _COUNT,  # what an autoscaler is held against; NULL without one
    "fixed_fleet_gpu_s": _REAL,
    "fixed_fleet_missed_requests": _COUNT,
    "binding_demand": _TEXT,
    "needed_replicas": _COUNT,
    "needed_gpus": _COUNT,
    "fleet_gpus": _COUNT,
    "is_slo_reachable": _FLAG,
    "slo_floor_text": _TEXT,
    "latency_demand_by": _TEXT,  # replay | closed forms
    "cost_usd_per_hour": _REAL,
    "fleet_cost_usd_per_hour": _REAL,
    "step_time_source": _TEXT,
}  # fmt: skip

_TOOL_WAIT_POLICIES: dict[str, pl.DataType] = {
    "policy": _TEXT,
    "ttl_s": _REAL,
    "break_even_s": _REAL,
    "pool_full_ratio": _REAL,
    "held_byte_s": _REAL,
    "held_gpu_s": _REAL,
    "held_usd": _REAL,
    "recompute_gpu_s": _REAL,
    "saving_gpu_s": _REAL,
    "saving_usd": _REAL,
    "is_today": _FLAG,
    "is_best": _FLAG,
    "note": _TEXT,
}

_FORECASTS: dict[str, pl.DataType] = {
    "horizon_week": _TEXT,
    "measure": _TEXT,
    "value_gpus": _REAL,
    "low_gpus": _REAL,
    "high_gpus": _REAL,
    "run_out_date": pl.Date(),
    "order_by_date": pl.Date(),
    "covered_s": _REAL,  # of the week, as its forecast was made
}

_CHANGES: dict[str, pl.DataType] = {
    "previous_week": _TEXT,
    "mover": _TEXT,  # rate | lengths | mix | burstiness | cache_hits | tool_waits | residual
    "previous_kv_time_byte_s": _REAL,
    "kv_time_byte_s": _REAL,
    "kv_time_part_byte_s": _REAL,
    "previous_demand_gpus": _REAL,
    "demand_gpus": _REAL,
    "demand_part_gpus": _REAL,
}

_TTFT_CAUSES: dict[str, pl.DataType] = {
    "previous_week": _TEXT,
    "kind": _TEXT,  # split | cause
    "cause": _TEXT,  # queue | prefill; arrivals | lengths | cache_hits | kv_pressure | preemption
    "previous_ttft_p95_s": _REAL,
    "ttft_p95_s": _REAL,
    "part_s": _REAL,
}

_ASSUMPTIONS: dict[str, pl.DataType] = {
    "name": _TEXT,
    "value_text": _TEXT,
    "unit": _TEXT,
    "source_text": _TEXT,
}

_NOTES: dict[str, pl.DataType] = {
    "code": _TEXT,
    "affected_requests": _COUNT,
    "affected_ratio": _REAL,
    "text": _TEXT,
}

_BODIES: dict[str, tuple[dict[str, pl.DataType], tuple[str, ...]]] = {
    "plan_replicas": (_REPLICAS, ("demand",)),
    "plan_residency": (_RESIDENCY, ("pace", "phase", "window_started_at")),
    "plan_kv_time": (_KV_TIME, ("model", "tenant", "phase", "is_failed")),
    "plan_kv_attribution": (_KV_ATTRIBUTION, ("dimension", "name")),
    "plan_latency": (_LATENCY, ("source", "measure", "quantile_ratio")),
    "plan_batch_curve": (_BATCH_CURVE, ("batch_requests",)),
    "plan_rate_curve": (_RATE_CURVE, ("fleet_replicas", "rate_factor")),
    "plan_scenarios": (_SCENARIOS, ()),
    "plan_tool_wait_policies": (_TOOL_WAIT_POLICIES, ("policy", "ttl_s")),
    "plan_forecasts": (_FORECASTS, ("measure", "horizon_week")),
    "plan_changes": (_CHANGES, ("mover",)),
    "plan_ttft_causes": (_TTFT_CAUSES, ("kind", "cause")),
    "plan_assumptions": (_ASSUMPTIONS, ("name",)),
    "plan_notes": (_NOTES, ("code",)),
}

PLAN_TABLES: dict[str, dict[str, pl.DataType]] = {
    name: {**_KEYS, **body, "provenance": _TEXT} for name, (body, _order) in _BODIES.items()
}
"""Table name -> column -> type, in file order. Every row has run_id, week, deployment_id, scenario_id, provenance."""

WEEKS_TABLES = ("plan_changes", "plan_forecasts", "plan_ttft_causes")
"""Tables that look at more than one week: a plan of one week leaves them empty."""

PLAN_GRAINS: dict[str, tuple[str, ...]] = {name: (*list(_KEYS)[1:], *order) for name, (_body, order) in _BODIES.items()}
"""Table name -> the columns that name one row, which is also the order of rows in the file."""


def empty_plan_table(name: str) -> pl.DataFrame:
    """Table `name` with all its typed columns and no rows."""
    return pl.DataFrame(schema=PLAN_TABLES[name])


def plan_frame(name: str, keys: Mapping[str, str], rows: pl.DataFrame) -> pl.DataFrame:
    """Table `name` made of `rows` with the key columns `keys` added: checked, cast and in the order of its grain."""
    stamped = rows.with_columns(pl.lit(value, pl.String).alias(key) for key, value in keys.items())
    schema = PLAN_TABLES[name]
    lacking = sorted(set(schema) - set(stamped.columns))
    unknown = sorted(set(stamped.columns) - set(schema))
    if lacking or unknown:
        raise KeyError(f"{name}: lacks {lacking}, has unknown {unknown}")
    typed = stamped.select(pl.col(column).cast(dtype) for column, dtype in schema.items())
    return typed.sort(PLAN_GRAINS[name], nulls_last=True, maintain_order=True)


def plan_rows(name: str, keys: Mapping[str, str], rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Table `name` from a list of row dicts; a column absent from a row is NULL, an unknown one a KeyError."""
    body = {column: dtype for column, dtype in PLAN_TABLES[name].items() if column not in keys}
    for row in rows:
        if not row.keys() <= body.keys():
            raise KeyError(f"{name}: unknown columns {sorted(row.keys() - body.keys())}")
    return plan_frame(name, keys, pl.DataFrame(rows, schema=body, orient="row"))
