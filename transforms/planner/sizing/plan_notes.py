"""What a reader must know of a plan, each with its count: what was left out, what was assumed, what cannot be met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.planner.sizing.gpus import NO_DEMAND

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from transforms.planner.sizing.demands_of_week import WeekDemands
    from transforms.planner.sizing.plan_replicas import Site
    from transforms.workload import Workload


@dataclass(frozen=True)
class Note:
    """One row of plan_notes; `demand` is the row of plan_replicas that repeats the text."""

    code: str
    demand: str
    text: str
    affected_requests: int | None = None


def plan_notes(workload: Workload, found: WeekDemands, site: Site) -> list[Note]:
    """Notes on the plan of one deployment, each code once."""
    if not found.usable_requests:
        return [*_idle(workload, site), *_left_out(workload, found, site), *_assumed(site)]
    return [*_left_out(workload, found, site), *_promises(found, site), *_assumed(site)]


def batch_notes(curve: pl.DataFrame) -> Iterator[Note]:
    """A note where the batch that `curve` (plan_batch_curve) recommends is below today's max_num_seqs."""
    recommended, today = (curve.filter(flag)["batch_requests"].to_list() for flag in ("is_recommended", "is_today"))
    if not recommended or not today or recommended >= today:
        return
    beyond = curve.filter(curve["batch_requests"] > recommended[0]).row(0, named=True)
    why = "an objective is missed" if beyond["is_kv_ok"] else "requests of the observed lengths do not all fit the KV"
    text = f"max_num_seqs = {recommended[0]} is recommended, below today's {today[0]}: with more in a batch {why}"
    yield Note("batch_above_recommended", "compute", text)


def _idle(workload: Workload, site: Site) -> Iterator[Note]:
    attempts = workload.attempts_requests
    none = f"none of {attempts:,} attempts has known lengths and a prompt that the engine takes"
    why = f"no usable traffic this week ({none})" if attempts else "no traffic this week"
    replicas = f"{site.now_replicas} replica{'s' * (site.now_replicas > 1)} of today kept"
    kept = replicas if site.now_replicas else "no replica today"
    yield Note("no_traffic", NO_DEMAND, f"{why}: nothing to size by, {kept}", attempts)


def _left_out(workload: Workload, found: WeekDemands, site: Site) -> Iterator[Note]:
    unknown, attempts = workload.unknown, workload.attempts_requests
    prompts, outputs, length = unknown.prompt_requests, unknown.output_requests, site.replica.max_model_len_tokens
    refused = f"have prompts of max_model_len = {length} or more: refused, each a miss{_disproved(found)}"
    lengths = f"have unknown lengths ({prompts:,} prompts, {outputs:,} outputs): left out"
    counted = (
        ("prompts_too_long", found.refused_requests, refused),
        ("unknown_attempts", prompts + outputs, lengths),
        ("failed_outputs_unknown", unknown.failed_output_requests, "failed with unknown output: only prompts are held"),
    )
    for code, count, text in counted:
        if count:
            yield Note(code, "kv", f"{count:,} of {attempts:,} attempts ({_share(count, attempts)}) {text}", count)
    if unknown.tool_waits:
        yield Note("tool_waits_unknown", "kv", f"{unknown.tool_waits:,} tool waits of unknown length left out")


def _disproved(found: WeekDemands) -> str:
    """That the log itself shows prompts answered which max_model_len refuses; empty where it shows none."""
    beyond = found.answered_beyond
    if not beyond.requests:
        return ""
    were = "was" if beyond.requests == 1 else "were"
    return (
        f"; but the log shows that {beyond.requests:,} of them {were} answered: the deployment's max_model_len is "
        f"likely larger, at least {beyond.longest_tokens} (the longest prompt answered, with its output)"
    )


def _promises(found: WeekDemands, site: Site) -> Iterator[Note]:
    floor = found.latency.floor_text(site.replica)
    if floor is not None:
        yield Note("slo_unreachable", "latency", floor)
    yield from _judged(found, site)
    if not found.pace.is_tpot_met:
        text = "a full KV pool cannot be read within tpot_p95_s: batches stay below it"
        yield Note("batch_below_pool", "compute", text)


def _judged(found: WeekDemands, site: Site) -> Iterator[Note]:
    """How the latency demand came about: by replay, or why not."""
    latency = found.latency
    if latency.is_thin:
        text = f"no window of {site.replica.window_s} s has 200 requests; the fullest one was judged, by closed forms"
        yield Note("few_requests", "latency", text)
    elif latency.replay is None:
        yield Note(
            "not_replayed", "latency", "judged by closed forms: the replay does not model this engine or traffic"
        )
        return
    if latency.replay is None:
        return
    replay, count = latency.replay, latency.replicas
    if count is not None:
        below = "" if replay.below_ratio is None else f", with one fewer {_percent(replay.below_ratio)}"
        text = (
            f"replayed: with {count} replica{'s' * (count > 1)} {_percent(replay.attained_ratio)} of the requests of "
            f"the hardest {site.replica.window_s} s keep both objectives{below} (95 % must)"
        )
        yield Note("latency_replayed", "latency", text)
    if replay.drawn_outputs:
        text = "outputs of unknown length drawn from known ones for the replay"
        yield Note("outputs_drawn", "latency", f"{replay.drawn_outputs:,} {text}", replay.drawn_outputs)


def _percent(ratio: float) -> str:
    """A ratio as percent, rounded down: 94.99 % never reads as 95 %."""
    return f"{math.floor(1000 * ratio) / 10:g} %"


def _assumed(site: Site) -> Iterator[Note]:
    if site.assumed_slo:
        named = " and ".join(f"{name} = {value:g}" for name, value in site.assumed_slo)
        text = f"nobody promised {named} (seconds): assumed; say what you promise in [deployments.slo]"
        yield Note("slo_assumed", "latency", text)
    if site.assumed_engine:
        named = ", ".join(f"{name} = {value:g}" for name, value in site.assumed_engine)
        text = f"the fleet file does not say {named}: the engine's own defaults are assumed ([deployments.engine])"
        yield Note("engine_assumed", "kv", text)


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.2g} %" if of else "0 %"
