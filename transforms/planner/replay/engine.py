"""One trace through a model of a continuous-batching engine; what comes out for each request and each second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.fleet_control.autoscaler import Autoscaler
from transforms.planner.fleet_control.fleet import Fleet
from transforms.planner.replay.replay_checks import check_settings, check_trace
from transforms.planner.replay.replay_memory import allocate, lengthened, series_slack_s
from transforms.planner.replay.replay_types import ReplayResult, Series

if TYPE_CHECKING:
    from transforms.planner.fleet_control.autoscaler import Autoscaling
    from transforms.planner.replay.replay_memory import Memory
    from transforms.planner.replay.replay_types import Settings, TraceColumns
    from transforms.planner.replay.step_costs import StepCosts


_CACHED_ROWS = 4096
"""Records that a core's cache holds while three of their fields change."""


def replay(trace: TraceColumns, settings: Settings, costs: StepCosts) -> ReplayResult:
    """Result of every request of `trace` on `settings.replicas` engines; InputError or ConfigError names what is off.

    The first call of a process loads the compiled kernel, or compiles it where no cache holds it.
    """
    from transforms.planner.kernel.run import DONE, run

    check_trace(trace, settings)
    check_settings(settings)
    if settings.autoscaling is not None:
        return _replay_autoscaled(trace, settings, settings.autoscaling, costs)
    memory = allocate(trace, settings, costs)
    slack_s = series_slack_s(trace, settings, costs)
    if settings.series:
        memory = lengthened(memory, slack_s)
    while run(memory.world) != DONE:
        memory = lengthened(memory, slack_s)
    return result_of(settings, memory)


def _replay_autoscaled(trace: TraceColumns, asked: Settings, rules: Autoscaling, costs: StepCosts) -> ReplayResult:
    """Result of a fleet that an autoscaler makes larger and smaller."""
    from transforms.planner.kernel.run import DONE, run

    settings = replace(asked, replicas=max(rules.max_replicas, asked.replicas))
    memory = allocate(trace, settings, costs)
    slack_s = series_slack_s(trace, settings, costs)
    if settings.series:
        memory = lengthened(memory, slack_s)
    last_s = float(memory.world["horizon_s"][0])
    fleet = Fleet(memory, settings, costs, Autoscaler(rules), asked.replicas)
    fleet.begin()
    while True:
        memory.world["horizon_s"] = min(fleet.next_look_s, last_s)
        if run(memory.world) == DONE:
            break
        if fleet.next_look_s <= last_s:
            fleet.look()
        else:
            memory = fleet.memory = lengthened(memory, slack_s)
            last_s = float(memory.world["horizon_s"][0])
    paid_s = fleet.paid_replica_s(float(memory.world["end_s"][0]))
    return replace(result_of(settings, memory), paid_replica_s=paid_s)


def result_of(settings: Settings, memory: Memory) -> ReplayResult:
    """Results as views of the kernel's records, whose times become relative to the request's arrival."""
    rows, world = memory.tables["requests"], memory.world[0]
    makespan_s = float(world["end_s"] - world["start_s"])
    pins, saved = memory.tables["pins"], memory.tables["saved"]["v"]
    fetched = pins["child"][pins["load_s"] > 0]
    rows["arrived"][fetched] -= pins["load_s"][pins["load_s"] > 0]
    for part in (rows[first : first + _CACHED_ROWS] for first in range(0, len(rows), _CACHED_ROWS)):
        for name in ("scheduled", "first_token", "end"):
            part[name] -= part["arrived"]
    return ReplayResult(
        status=rows["status"],
        arrived_s=rows["arrived"],
        queue_s=rows["scheduled"],
        ttft_s=rows["first_token"],
        e2e_s=rows["end"],
        output_tokens=rows["made"],
        cached_tokens=rows["cached"],
        preemptions=rows["preemptions"],
        replica=rows["replica"],
        kv_token_s=rows["kv_tokens"],
        kv_unit_s=rows["kv_units"],
        kv_shared_unit_s=rows["kv_units"] - saved if len(saved) else rows["kv_units"],
        paid_replica_s=settings.replicas / settings.ranks * makespan_s,
        pinned_unit_s=pins["held"],
        makespan_s=makespan_s,
        preempted=int(world["preempted"]),
        steps=int(world["steps"]),
        peak_units=int(memory.tables["replicas"]["peak"].max()),
        jumps=int(world["jumps"]),
        series=_series(settings, memory, makespan_s) if settings.series else None,
    )


def _series(settings: Settings, memory: Memory, makespan_s: float) -> Series:
    """Samples of the whole seconds up to the last end, the second it falls into included."""
    rows = memory.tables["samples"][: int(np.ceil(makespan_s))]
    return Series(
        t_s=np.arange(1.0, len(rows) + 1.0),
        running=rows["running"],
        waiting=rows["waiting"],
        used_units=rows["used"],
        mean_used_units=rows["area"],
        pool_units=settings.pool.units * settings.replicas,
    )
