"""Small weeks of traffic and replicas for the tests of the planner: real objects, every figure chosen by the test."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transforms.planner.memory.kv_result import KvGroup
from transforms.planner.sizing.gpus import Terms
from transforms.planner.sizing.plan_replicas import Price, Site
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.step_time import StepModel
from transforms.workload import Workload
from transforms.workload_rows import make_workload

WEEK = "2026-W47"
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
TOKEN_BYTES = 131_072

ATTEMPTS = {
    "request_id": pl.String(), "arrived_at": pl.Datetime("us", "UTC"), "week": pl.String(), "session_id": pl.String(),
    "agent_id": pl.String(), "turn": pl.Int32(), "model": pl.String(), "tenant": pl.String(), "status": pl.String(),
    "prompt_tokens": pl.Int64(), "cached_prompt_tokens": pl.Int64(), "output_tokens": pl.Int64(),
    "requested_output_tokens": pl.Int64(), "queue_s": pl.Float64(), "ttft_s": pl.Float64(), "e2e_s": pl.Float64(),
    "is_failed": pl.Boolean(), "prefix_block_tokens": pl.Int32(), "prefix_block_ids": pl.List(pl.UInt64()),
}  # fmt: skip
TOOL_WAITS = {
    "session_id": pl.String(), "model": pl.String(), "tenant": pl.String(),
    "arrived_at": pl.Datetime("us", "UTC"), "kind": pl.String(), "wait_s": pl.Float64(),
    "prior_context_tokens": pl.Int64(),
}  # fmt: skip

# Llama-3.1-8B in bf16 on one H100, in round numbers.
STEP = StepModel(
    token_flop=14e9,
    sampled_flop=1.05e9,
    pair_flop=524_288.0,
    weight_bytes=15e9,
    kv_token_bytes=TOKEN_BYTES,
    flop_per_s=0.7 * 989e12,
    bytes_per_s=0.75 * 3.35e12,
    peak_flop_per_s=989e12,
    peak_bytes_per_s=3.35e12,
    step_overhead_s=2e-3,
    sequence_overhead_s=2e-5,
)


def replica(capacity_tokens: int = 448_000, block_tokens: int = 16, **changes: Any) -> Replica:
    made = Replica(
        step=STEP,
        groups=(KvGroup("full", block_tokens, None, block_tokens * TOKEN_BYTES),),
        kv_token_bytes=TOKEN_BYTES,
        kv_capacity_bytes=capacity_tokens * TOKEN_BYTES,
        kv_capacity_tokens=capacity_tokens,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_model_len_tokens=131_072,
        has_prefix_caching=True,
        gpus=1,
        ttft_p95_s=2.0,
        tpot_p95_s=0.05,
        window_s=3600,
    )
    return dataclasses.replace(made, **changes)


def site(one: Replica | None = None, **changes: Any) -> Site:
    made = Site(
        replica=one or replica(),
        now_replicas=2,
        terms=Terms(gpus_per_replica=1, gpus_per_node=8, is_whole_node=False, spare_replicas=1),
        headroom_ratio=0.3,
        price=Price(2.5, "assumed", "test"),
        memory_provenance="assumed",
        covered_s=7 * 86_400.0,
        seed=1,
    )
    return dataclasses.replace(made, **changes)


def attempt(at_s: float = 0.0, prompt: int | None = 1000, output: int | None = 100, **more: Any) -> dict[str, Any]:
    """One row of fct_attempts that arrives `at_s` seconds into the week; `e2e`, `ttft`, `queue` in seconds."""
    times = {f"{name}_s": more.pop(name, None) for name in ("queue", "ttft", "e2e")}
    row = dict.fromkeys(ATTEMPTS) | {
        "arrived_at": MONDAY + timedelta(microseconds=round(at_s * 1e6)),
        "week": WEEK if at_s >= 0 else "2026-W46",
        "prompt_tokens": prompt,
        "output_tokens": output,
        "is_failed": False,
        **times,
    }
    return row | more


def attempts_frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=ATTEMPTS, orient="row")


def workload(rows: Iterable[dict[str, Any]], waits: Iterable[dict[str, Any]] = (), week: str = WEEK) -> Workload:
    return make_workload(attempts_frame(rows), pl.DataFrame(list(waits), schema=TOOL_WAITS, orient="row"), "chat", week)


def random_rows(seed: int, count: int, span_s: float = 3600.0) -> list[dict[str, Any]]:
    """Attempts with every kind of gap in what the log knows, some failed, some still running from before the week."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        prompt, output = int(random.lognormal(6.5, 1.2)) + 1, int(random.lognormal(4.5, 1.0)) + 1
        e2e = float(random.exponential(8.0)) + 0.001
        is_failed = bool(random.random() < 0.1)
        ttft = e2e * float(random.random())
        rows.append(
            attempt(
                float(random.uniform(-5.0, span_s)),
                prompt,
                None if is_failed and random.random() < 0.5 else output,
                e2e=e2e if random.random() < 0.8 else None,
                ttft=ttft if random.random() < 0.6 else None,
                queue=ttft * float(random.random()) if random.random() < 0.4 else None,
                cached_prompt_tokens=int(random.integers(0, prompt)) if random.random() < 0.5 else None,
                is_failed=is_failed,
            )
        )
    return rows


def azure_rows(shared_dir: Path) -> pl.DataFrame:
    """The Azure 2023 conversation trace as rows of fct_attempts: lengths and arrivals, no other times."""
    trace = shared_dir / "traces/azure2023/AzureLLMInferenceTrace_conv.csv"
    stamped = pl.read_csv(trace, try_parse_dates=False).select(
        pl.col("TIMESTAMP")
        .str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC")
        .alias("arrived_at"),
        prompt_tokens="ContextTokens",
        output_tokens="GeneratedTokens",
    )
    known = {"week": "2023-W46", "is_failed": False}
    return stamped.with_columns(
        pl.lit(known.get(name), dtype).alias(name) for name, dtype in ATTEMPTS.items() if name not in stamped.columns
    ).select(*ATTEMPTS)


def spend_log_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Attempts in the sample's LiteLLM spend logs, straight from the lines: times, lengths, cached prefix."""
    rows = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows += [_spend_log_row(line) for line in map(json.loads, lines) if line["call_type"] == "acompletion"]
    return [row for row in rows if row["prompt_tokens"]]


def _spend_log_row(line: dict[str, Any]) -> dict[str, Any]:
    start, first, end = (_stamp(line[name]) for name in ("startTime", "completionStartTime", "endTime"))
    usage = line["metadata"].get("usage_object") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    year, week, _day = start.isocalendar()
    return dict.fromkeys(ATTEMPTS) | {
        "arrived_at": start,
        "week": f"{year}-W{week:02d}",
        "session_id": line["session_id"],
        "model": line["model_group"],
        "tenant": line["team_id"],
        "prompt_tokens": line["prompt_tokens"],
        "cached_prompt_tokens": cached,
        "output_tokens": line["completion_tokens"],
        "ttft_s": (first - start).total_seconds(),
        "e2e_s": (end - start).total_seconds(),
        "is_failed": line["status"] != "success",
    }


def _stamp(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
