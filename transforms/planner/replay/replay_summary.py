"""What a replay's results come to: counts, latencies, KV·time, and the tables of requests and of seconds."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.planner.replay.replay_types import REJECTED, Status
from transforms.planner.replay.verdict import verdict_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_settings import KvPool
    from transforms.planner.replay.replay_trace import Logged
    from transforms.planner.replay.replay_types import ReplayResult, Series

    Reals = NDArray[np.float64]

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))

WORDS = {
    Status.IN_FLIGHT: "in_flight",
    Status.COMPLETED: "completed",
    Status.TIMED_OUT: "timed_out",
    Status.NOT_SENT: "not_sent",
    **dict.fromkeys(REJECTED, "rejected"),
}


def latencies(result: ReplayResult) -> dict[str, Reals]:
    """Seconds of each request by measure; NaN where it has none (a time per output token of a single token)."""
    return measures(result, result.output_tokens)


def measures(times: ReplayResult | Logged, output_tokens: NDArray[np.int32]) -> dict[str, Reals]:
    """Seconds by measure of requests with these `times` and outputs, replayed or logged; NaN where there is none."""
    steps = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    return {
        "queue_s": times.queue_s,
        "prefill_s": times.ttft_s - times.queue_s,
        "ttft_s": times.ttft_s,
        "tpot_s": (times.e2e_s - times.ttft_s) / steps,
        "e2e_s": times.e2e_s,
    }


def kv_time_byte_s(result: ReplayResult, pool: KvPool) -> Reals:
    """KV·time of each request, token-linear; of whole blocks where windows or states make tokens cost unlike."""
    if pool.token_bytes is None:
        return result.kv_unit_s * pool.unit_bytes
    return result.kv_token_s * pool.token_bytes


def summary(result: ReplayResult, pool: KvPool, parent: NDArray[np.int32]) -> dict[str, Any]:
    """JSON of the contract but `wall_s`: quantiles over completed requests, `_all` with the others as misses."""
    found = latencies(result)
    is_completed = result.status == Status.COMPLETED
    is_sent = result.status != Status.NOT_SENT
    verdict = asdict(verdict_of(result, parent))
    return {
        "requests": len(result.status),
        "completed": int(is_completed.sum()),
        "rejected": int(np.isin(result.status, REJECTED).sum()),
        "rejected_by_reason": _reasons(result),
        "timed_out": int((result.status == Status.TIMED_OUT).sum()),
        "not_sent": int((~is_sent).sum()),
        "preemptions": result.preempted,
        "makespan_s": result.makespan_s,
        **quantiles_of(result, is_completed),
        **{
            f"{name}_all_s": _quantiles(np.where(is_completed, found[f"{name}_s"], np.inf)[is_sent])
            for name in ("ttft", "e2e")
        },
        "kv_time_byte_s": float(np.nansum(kv_time_byte_s(result, pool))),
        "kv_block_time_byte_s": float(result.kv_unit_s.sum()) * pool.unit_bytes,
        "kv_shared_time_byte_s": float(result.kv_shared_unit_s.sum()) * pool.unit_bytes,
        "paid_replica_s": result.paid_replica_s,
        "kv_time_pinned_byte_s": float(result.pinned_unit_s.sum()) * pool.unit_bytes,
        "output_tokens": int(result.output_tokens.sum(dtype=np.int64)),
        "verdict": verdict.pop("word"),
        "backlog": verdict,
    }


def quantiles_of(result: ReplayResult, chosen: NDArray[np.bool_]) -> dict[str, dict[str, float | None]]:
    """Mean and quantiles of each measure over the `chosen` requests."""
    return {name: _quantiles(values[chosen]) for name, values in latencies(result).items()}


def request_table(result: ReplayResult, request_id: pl.Series, pool: KvPool) -> pl.DataFrame:
    """One row a request in the order of arrival: the results of the contract; NULL where a request has none."""
    words = np.array([WORDS[status] for status in Status])
    reals = {**latencies(result), "kv_time_byte_s": kv_time_byte_s(result, pool)}
    columns = {name: pl.Series(name, values, nan_to_null=True) for name, values in reals.items()}
    return pl.DataFrame({"request_id": request_id, "status": words[result.status], "preemptions": result.preemptions}
        | columns
    ).select("request_id", "status", "queue_s", "prefill_s", "ttft_s", "tpot_s", "e2e_s", "preemptions",
             "kv_time_byte_s")  # fmt: skip


def series_table(series: Series) -> pl.DataFrame:
    """One row a second since the first arrival: its end, requests running and waiting then, share of KV in use."""
    return pl.DataFrame(
        {
            "t_s": series.t_s,
            "running": series.running,
            "waiting": series.waiting,
            "kv_used_ratio": series.used_units / series.pool_units,
        }
    )


def _reasons(result: ReplayResult) -> dict[str, int]:
    counts = {status: int((result.status == status).sum()) for status in REJECTED}
    return {status.name.lower(): count for status, count in counts.items() if count}


def _quantiles(values: Reals) -> dict[str, float | None]:
    """Mean and quantiles (linear) of the known values; None where there are none, or where it is a miss (infinite)."""
    known = np.sort(values[~np.isnan(values)])
    if len(known) == 0:
        return dict.fromkeys(("mean", *(name for name, _ in QUANTILES)))
    figures = {"mean": float(known.mean())} | {name: quantile_of_sorted(known, ratio) for name, ratio in QUANTILES}
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def quantile_of_sorted(known: Reals, ratio: float) -> float:
    """Quantile of sorted values, linear between two; infinite where either is."""
    at = ratio * (len(known) - 1)
    low = math.floor(at)
    below, above = float(known[low]), float(known[min(low + 1, len(known) - 1)])
    return above if math.isinf(above) and at > low else below + (at - low) * (above - below if above > below else 0.0)
