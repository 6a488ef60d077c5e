"""When each attempt's prefill starts, its first token comes and it ends: as logged, or at SLO pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.pace import prefill_times_s
from transforms.workload import MICROS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.pace import Pace
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Timeline:
    """What each attempt holds and when; one element an attempt, µs since the week's start.

    Nothing before `prefill_us`; `cached_tokens` growing to `prompt_tokens` until `first_us`; growing by `output_tokens`
    until `end_us`.
    """

    prefill_us: Wholes
    first_us: Wholes
    end_us: Wholes
    cached_tokens: Reals
    prompt_tokens: Reals
    """The part of the prompt that was prefilled: all of it unless the attempt failed on the way."""
    output_tokens: Reals
    is_modelled: Flags
    """Some instant comes from the step-time model, not from the log."""


def observed_timeline(workload: Workload, replica: Replica, pace: Pace, token_s: Reals) -> Timeline:
    """Timeline as logged; what the log lacks comes from the step-time model and is marked modelled.

    `token_s` is what an output token takes on today's fleet when each attempt arrives. An unknown queue time counts
    as 0. A failed attempt without a first token has prefilled what its time allowed.
    """
    has_first, has_end = ~np.isnan(workload.ttft_s), ~np.isnan(workload.e2e_s)
    queue_s = np.nan_to_num(workload.queue_s)
    needed_s = prefill_times_s(replica, pace, workload.prompt_tokens, workload.cached_tokens)
    decode_s = np.where(workload.is_failed, 0.0, np.maximum(workload.output_tokens - 1, 0) * token_s)
    first_s = np.where(has_first, workload.ttft_s, queue_s + needed_s)
    end_s = np.where(has_end, workload.e2e_s, first_s + decode_s)
    first_s = np.minimum(first_s, end_s)
    start_s = np.minimum(queue_s, first_s)
    is_cut = workload.is_failed & ~has_first & (workload.output_tokens == 0)
    done = np.where(is_cut, np.minimum((first_s - start_s) / needed_s, 1.0), 1.0)
    return Timeline(
        prefill_us=workload.arrived_us + _micros(start_s),
        first_us=workload.arrived_us + _micros(first_s),
        end_us=workload.arrived_us + _micros(end_s),
        cached_tokens=workload.cached_tokens,
        prompt_tokens=workload.cached_tokens + done * (workload.prompt_tokens - workload.cached_tokens),
        output_tokens=workload.output_tokens,
        is_modelled=~(has_first & has_end),
    )


def slo_timeline(workload: Workload, replica: Replica, pace: Pace) -> Timeline:
    """Timeline if the promise is kept: prefill on arrival beside the planned batch, then decode at SLO pace.

    Attempts whose prompt the engine would refuse (P ≥ max_model_len) are absent; outputs end at the model length.
    """
    taken = accepted(workload, replica)
    arrived_us = workload.arrived_us[taken]
    prompt, cached = workload.prompt_tokens[taken], workload.cached_tokens[taken]
    output = workload.output_tokens[taken]
    if replica.max_model_len_tokens is not None:
        output = np.minimum(output, replica.max_model_len_tokens - prompt)
    first_us = arrived_us + _micros(prefill_times_s(replica, pace, prompt, cached))
    return Timeline(
        prefill_us=arrived_us,
        first_us=first_us,
        end_us=first_us + _micros(np.maximum(output - 1, 0) * pace.token_s),
        cached_tokens=cached,
        prompt_tokens=prompt,
        output_tokens=output,
        is_modelled=np.ones(len(prompt), dtype=np.bool_),
    )


def accepted(workload: Workload, replica: Replica) -> Flags:
    """Whether the engine takes each attempt: its prompt is shorter than max_model_len."""
    if replica.max_model_len_tokens is None:
        return np.ones(workload.rows, dtype=np.bool_)
    return workload.prompt_tokens < replica.max_model_len_tokens


def _micros(seconds: Reals) -> Wholes:
    return np.rint(seconds * MICROS).astype(np.int64)
