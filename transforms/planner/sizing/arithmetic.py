"""Capacity arithmetic a person can follow: the closed formulas of a plan, one function each, in pure Python.

Bytes per token come from the KV account; nothing here knows layers or heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from transforms.errors import CapacityError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

ONE_MEAN_HALF = 0.5
"""A request that grows at a constant rate holds half of its growth on average."""


@dataclass(frozen=True)
class KvTime:
    """KV·time of one request: how long it decodes, what it holds on average and at the end, and the integral."""

    duration_s: float
    residency_mean_bytes: float
    residency_end_bytes: int
    kv_time_byte_s: float


@dataclass(frozen=True)
class Limits:
    """The two limits of a GPU, each in its own unit: a rate it can compute and tokens it can keep."""

    requests_per_s: float
    resident_tokens: int


def kv_bytes(tokens: int, token_bytes: int) -> int:
    """KV bytes that `tokens` tokens hold, unrounded."""
    return tokens * token_bytes


def kv_tokens(budget_bytes: int, token_bytes: int) -> int:
    """Whole tokens whose KV fits into `budget_bytes`."""
    return budget_bytes // token_bytes


def kv_heads_note(kv_bytes_assumed: float, heads_assumed: int, model: str, kv_heads: int) -> str | None:
    """Sentence correcting an account that took `heads_assumed` KV heads for a known model; None if it is right."""
    if heads_assumed == kv_heads:
        return None
    assumed_gb = kv_bytes_assumed / 1e9
    right_gb = assumed_gb * kv_heads / heads_assumed
    return f"{model} has {kv_heads} KV heads, not {heads_assumed}: {right_gb:.1f} GB instead of {assumed_gb:.1f} GB"


def free_tokens(capacity_tokens: int, resident_tokens: Iterable[int]) -> int:
    """Tokens left once requests of these lengths reside; CapacityError where they do not fit.

    No scheduling limit (max_num_seqs, max_num_batched_tokens, max_model_len) enters: none of them is KV capacity.
    """
    held = sum(resident_tokens)
    if held > capacity_tokens:
        raise CapacityError(f"{held} resident tokens do not fit into {capacity_tokens}; admit fewer or add KV memory")
    return capacity_tokens - held


def blocks(tokens: int, block_tokens: int) -> int:
    """Whole blocks of `block_tokens` that `tokens` tokens occupy."""
    return -(-tokens // block_tokens)


def empty_slots(tokens: int, block_tokens: int) -> int:
    """Token slots left empty in the last block, 0 … block_tokens − 1."""
    return blocks(tokens, block_tokens) * block_tokens - tokens


def request_kv_time(prompt_tokens: int, output_tokens: int, decode_tokens_per_s: float, token_bytes: int) -> KvTime:
    """KV·time of a request that decodes at a constant rate, prefill left out: k·(P + O/2)·O/r, token-linear."""
    duration_s = output_tokens / decode_tokens_per_s
    mean_bytes = token_bytes * (prompt_tokens + ONE_MEAN_HALF * output_tokens)
    end_bytes = kv_bytes(prompt_tokens + output_tokens, token_bytes)
    return KvTime(duration_s, mean_bytes, end_bytes, mean_bytes * duration_s)


def prefill_budget_tokens(max_num_batched_tokens: int, decoding_requests: int) -> int:
    """Tokens of one step left for prefill once every decoding request took its one; CapacityError if none is."""
    left = max_num_batched_tokens - decoding_requests
    if left <= 0:
        raise CapacityError(
            f"max_num_batched_tokens = {max_num_batched_tokens} leaves nothing for prefill beside "
            f"{decoding_requests} decoding requests; raise it above max_num_seqs"
        )
    return left


def prefill_steps(prompt_tokens: int, max_num_batched_tokens: int, decoding_requests: int) -> int:
    """Engine steps a prompt needs under chunked prefill beside `decoding_requests` decoding ones."""
    return -(-prompt_tokens // prefill_budget_tokens(max_num_batched_tokens, decoding_requests))


def compute_tokens_per_s(parameters: float, peak_flop_per_s: float, compute_efficiency: float) -> float:
    """Tokens/s that compute allows at 2 FLOP per parameter and token."""
    return peak_flop_per_s * compute_efficiency / (2 * parameters)


def compute_efficiency(tokens_per_s: float, parameters: float, peak_flop_per_s: float) -> float:
    """Share of the peak (MFU) that a measured `tokens_per_s` uses, at 2 FLOP per parameter and token."""
    return tokens_per_s * 2 * parameters / peak_flop_per_s


def concurrent_requests(requests_per_s: float, response_s: float) -> float:
    """Concurrency by Little's law, in requests: arrival rate × response time."""
    return requests_per_s * response_s


def instances(concurrency: float, safety_factor: float, concurrency_per_instance: float) -> int:
    """Instances for a concurrency with a safety factor; ConfigError where an instance serves nobody."""
    if concurrency_per_instance <= 0:
        raise ConfigError(
            f"concurrency per instance = {concurrency_per_instance:g} must be above zero; "
            "an instance that holds no request cannot be counted on"
        )
    return _ceil(concurrency * safety_factor / concurrency_per_instance)


def compute_instances(requests_per_s: float, tokens_per_request: float, tokens_per_s_per_instance: float) -> int:
    """Instances that computing every prompt and output token takes, memory and latency left out."""
    return _ceil(requests_per_s * tokens_per_request / tokens_per_s_per_instance)


def limits(tokens_per_s: float, mean_request_tokens: float, kv_budget_bytes: int, token_bytes: int) -> Limits:
    """Rate that compute allows (requests/s) and tokens that memory keeps, each in its own unit."""
    return Limits(tokens_per_s / mean_request_tokens, kv_tokens(kv_budget_bytes, token_bytes))


def textbook_capacity(
    tokens_per_s: float, mean_request_tokens: float, kv_budget_bytes: int, token_bytes: int
) -> NoReturn:
    """Never a number: min(tokens/s ÷ mean length, bytes ÷ bytes per token) is a ConfigError naming both limits."""
    both = limits(tokens_per_s, mean_request_tokens, kv_budget_bytes, token_bytes)
    raise ConfigError(
        f"the minimum of {both.requests_per_s:.4g} requests/s and {both.resident_tokens:,} resident tokens means "
        "nothing: one is a rate, the other a stock; take each as a limit of its own"
    )


def batch_gain_factor(batch_requests: int) -> float:
    """Quoted throughput gain of batching, 2B/(B+1): a rule of thumb that never exceeds 2."""
    return 2 * batch_requests / (batch_requests + 1)


def tpot_s(e2e_s: float, ttft_s: float, output_tokens: int) -> float | None:
    """Time per output token after the first, of one request; None where there is no second token."""
    return (e2e_s - ttft_s) / (output_tokens - 1) if output_tokens > 1 else None


def quantile(values: Iterable[float], ratio: float) -> float:
    """Quantile of `values` by linear interpolation (as quantile_cont); ConfigError without values or ratio."""
    ordered = sorted(values)
    if not ordered or not 0 <= ratio <= 1:
        raise ConfigError(f"a quantile needs values and a ratio in [0, 1], not {len(ordered)} values at {ratio}")
    place = (len(ordered) - 1) * ratio
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _ceil(value: float) -> int:
    """`value` rounded up, forgiving what binary fractions add to a whole number (6.000000000000001 is 6)."""
    nearest_whole = round(value)
    return nearest_whole if math.isclose(value, nearest_whole, rel_tol=1e-12, abs_tol=0.0) else math.ceil(value)
