"""KV·time of each attempt by its own closed form; knows nothing of the sweep, which must come to the same sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.block_rounding import block_bytes, decode_mean_bytes, ramp_mean_bytes
from transforms.workload import MICROS, WEEK_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import ToolWaits

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

SECOND_US = 1e6


@dataclass(frozen=True, eq=False)
class PhaseKvTime:
    """KV·time of one phase of each attempt (or tool wait), byte·s: token-linear, and in whole blocks."""

    linear_byte_s: Reals
    block_byte_s: Reals
    inside_byte_s: Reals
    """The token-linear part between the week's start and its end."""


def prefill_kv_time(timeline: Timeline, replica: Replica) -> PhaseKvTime:
    """KV·time while each prompt grows from its cached prefix, byte·s."""
    duration_s = (timeline.first_us - timeline.prefill_us) / SECOND_US
    block = ramp_mean_bytes(replica.groups, timeline.cached_tokens, timeline.prompt_tokens)
    held = prefill_linear_byte_s(timeline, replica)
    inside = _inside(timeline.prefill_us, timeline.first_us, timeline.cached_tokens, timeline.prompt_tokens)
    return PhaseKvTime(held, block * duration_s, replica.kv_token_bytes * inside)


def prefill_linear_byte_s(timeline: Timeline, replica: Replica) -> Reals:
    """KV·time of each prefill, token-linear, byte·s."""
    duration_s = (timeline.first_us - timeline.prefill_us) / SECOND_US
    mean_tokens = (timeline.cached_tokens + timeline.prompt_tokens) / 2
    held: Reals = replica.kv_token_bytes * mean_tokens * duration_s
    return held


def decode_kv_time(timeline: Timeline, replica: Replica) -> PhaseKvTime:
    """KV·time from each first token to the end, byte·s: k·(P + O/2)·duration token-linear."""
    duration_s = (timeline.end_us - timeline.first_us) / SECOND_US
    mean_tokens = timeline.prompt_tokens + timeline.output_tokens / 2
    block = decode_mean_bytes(replica.groups, timeline.prompt_tokens, timeline.output_tokens)
    held = replica.kv_token_bytes * mean_tokens * duration_s
    last = timeline.prompt_tokens + timeline.output_tokens
    inside = _inside(timeline.first_us, timeline.end_us, timeline.prompt_tokens, last)
    return PhaseKvTime(held, block * duration_s, replica.kv_token_bytes * inside)


def tool_wait_kv_time(waits: ToolWaits, replica: Replica) -> PhaseKvTime:
    """KV·time that pinning P + O through each tool wait would cost (policy `keep`), byte·s."""
    duration_s = (waits.end_us - waits.start_us) / SECOND_US
    block = block_bytes(replica.groups, np.maximum(waits.tokens - 1, 0))
    inside = _inside(waits.start_us, waits.end_us, waits.tokens, waits.tokens)
    held = replica.kv_token_bytes * waits.tokens * duration_s
    return PhaseKvTime(held, block * duration_s, replica.kv_token_bytes * inside)


def _inside(start_us: Wholes, end_us: Wholes, first: Reals, last: Reals) -> Reals:
    """Token·s between the week's ends of tokens that go steadily from `first` to `last`."""
    begin, finish = (np.clip(at_us, 0, WEEK_S * MICROS) for at_us in (start_us, end_us))
    slope = (last - first) / np.maximum(end_us - start_us, 1)
    middle = first + slope * ((begin + finish) / 2 - start_us)
    token_s: Reals = middle * (finish - begin) / SECOND_US
    return token_s
