"""How many requests a second the replay takes, on one core: the figures the specification asks for, in one run.

python tests/benchmarks/bench_replay.py [--long]; --long adds 44 million requests over 8 replicas. Ratios of one run
mean something on a shared machine, single figures less so: CPU seconds of the process are what is printed.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import resource
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from flows.kernel_cache import use_kernel_cache
from transforms.planner.replay.engine import replay, result_of
from transforms.planner.replay.replay_memory import allocate
from transforms.planner.replay.replay_types import Caching, Pool, Router, Settings, TraceColumns
from transforms.planner.replay.step_costs import StepCosts

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
SHARED = Path(os.environ.get("KVLEDGER_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "traces"

# Llama-3.1-8B in BF16 on one H100 SXM: 989 TFLOP/s and 3.35 TB/s at 50 % and 80 %, 56 GiB of KV in blocks of 2 MiB
FLOP_PER_S, BYTES_PER_S = 989e12 * 0.5, 3.35e12 * 0.8
COSTS = StepCosts(
    token_compute_s=2 * 6.98e9 / FLOP_PER_S,
    sampled_compute_s=2 * 0.525e9 / FLOP_PER_S,
    pair_compute_s=4 * 32 * 32 * 128 / FLOP_PER_S,
    weight_memory_s=15.0e9 / BYTES_PER_S,
    context_memory_s=131_072 / BYTES_PER_S,
    step_s=0.001,
    sequence_s=5e-6,
)
ENGINE = Settings(Pool(28_672), max_num_seqs=256, max_num_batched_tokens=8192)


def azure() -> TraceColumns:
    """The Azure 2023 conversation trace: 19,366 requests."""
    with (SHARED / "azure2023/AzureLLMInferenceTrace_conv.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    stamps = [dt.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    arrived = np.array(stamps) - stamps[0]
    order = np.argsort(arrived, kind="stable")
    return TraceColumns(
        arrived[order],
        np.array([int(row["ContextTokens"]) for row in rows], dtype=np.int32)[order],
        np.array([int(row["GeneratedTokens"]) for row in rows], dtype=np.int32)[order],
    )


def tiled(trace: TraceColumns, rows: int) -> TraceColumns:
    """The trace one after the other until there are `rows` requests."""
    times = -(-rows // trace.rows)
    span = float(trace.arrived_s[-1]) + 1.0
    starts = np.repeat(np.arange(times) * span, trace.rows)
    return TraceColumns(
        (np.tile(trace.arrived_s, times) + starts)[:rows],
        np.tile(trace.prompt_tokens, times)[:rows],
        np.tile(trace.output_tokens, times)[:rows],
    )


def poisson(lengths: TraceColumns, rows: int, load: float) -> TraceColumns:
    """Poisson arrivals with lengths drawn from a trace, at a share of the rate one engine sustains on them."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, lengths.rows, rows)
    prompts, outputs = lengths.prompt_tokens[which], lengths.output_tokens[which]
    many = min(rows, 20_000)
    rush = replay(TraceColumns(np.zeros(many), prompts[:many], outputs[:many]), ENGINE, COSTS)
    return TraceColumns(np.cumsum(rng.exponential(rush.makespan_s / many / load, rows)), prompts, outputs)


def mooncake() -> TraceColumns:
    """Mooncake's conversation trace with its prefix blocks of 512 tokens."""
    with (SHARED / "mooncake/conversation_trace.jsonl").open() as lines:
        rows = sorted((json.loads(line) for line in lines), key=lambda row: row["timestamp"])
    ids = [row["hash_ids"][: row["input_length"] // 512] for row in rows]
    _, dense = np.unique(np.concatenate(ids), return_inverse=True)
    return TraceColumns(
        np.array([row["timestamp"] / 1000 for row in rows]),
        np.array([row["input_length"] for row in rows], dtype=np.int32),
        np.array([row["output_length"] for row in rows], dtype=np.int32),
        block_offsets=np.cumsum([0, *map(len, ids)]).astype(np.int64),
        block_ids=dense.astype(np.int32),
    )


def fastest(act: Callable[[], T], clock: Callable[[], float] = time.process_time, times: int = 3) -> tuple[float, T]:
    """Seconds of the fastest of a few goes (what else runs on the machine only ever adds), and what came out."""
    seconds = math.inf
    for _ in range(times):
        begin = clock()
        made = act()
        seconds = min(seconds, clock() - begin)
    return seconds, made


def timed(name: str, trace: TraceColumns, engine: Settings, goal: float, times: int = 3) -> None:
    """Print requests a CPU second beside the goal."""
    seconds, result = fastest(lambda: replay(trace, engine, COSTS), times=times)
    done = np.bincount(result.status, minlength=2)[1] / trace.rows
    print(
        f"{name:34s} {trace.rows / seconds:12,.0f} requests/s (goal {goal:,.0f}), {seconds:6.2f} s, "
        f"{result.steps / trace.rows:5.1f} steps and {result.jumps / trace.rows:4.2f} jumps a request, "
        f"{result.preempted} preemptions, {done:.1%} completed"
    )


def parts(trace: TraceColumns) -> None:
    """Print where the time of a replay goes."""
    from transforms.planner.kernel.run import run

    made, memory = fastest(lambda: allocate(trace, ENGINE, COSTS), times=1)
    ran, _ = fastest(lambda: run(memory.world), times=1)
    told, _ = fastest(lambda: result_of(ENGINE, memory), times=1)
    whole = made + ran + told
    print(f"of which {made / whole:.0%} memory, {ran / whole:.0%} kernel, {told / whole:.0%} results")


def against_walking(trace: TraceColumns) -> None:
    """Time the kernel against a numba engine that walks its running list; both must agree."""
    from walking_engine import walk

    first, end = np.zeros(trace.rows), np.zeros(trace.rows)
    plain = np.array(COSTS[:8])
    few = [np.ascontiguousarray(column[:10]) for column in (trace.arrived_s, trace.prompt_tokens, trace.output_tokens)]
    walk(*few, 256, 8192, 28_672, 16, plain, first[:10].copy(), end[:10].copy())
    columns = (trace.arrived_s, trace.prompt_tokens, trace.output_tokens)
    walked, _ = fastest(lambda: walk(*columns, 256, 8192, 28_672, 16, plain, first, end))
    jumped, result = fastest(lambda: replay(trace, ENGINE, COSTS))
    off = np.abs(result.arrived_s + result.e2e_s - end).max()
    print(
        f"walking the running list: {walked / jumped:.1f} × as long ({walked:.2f} s, {jumped:.2f} s), {off:.1e} s apart"
    )


def on_threads(trace: TraceColumns) -> None:
    """Two replays at once against one after the other, wall seconds; beside it arithmetic that shares no memory.

    What two threads of pure arithmetic gain is what the machine's cores have to give at that time.
    """

    def act() -> object:
        return replay(trace, ENGINE, COSTS)

    gains = " and ".join(
        f"{gain(work):.2f} × {name}" for name, work in (("replays", act), ("arithmetic", arithmetic()))
    )
    print(f"two threads: {gains} (goal 1.8; needs two idle cores)")


def arithmetic() -> Callable[[], object]:
    """Third of a second of one core's registers: no memory, no lock of the interpreter."""
    from numba import njit

    @njit(nogil=True)
    def spin(times: int) -> np.uint64:
        state = np.uint64(88_172_645_463_325_252)
        for _ in range(times):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
        return state

    spin(1)
    return lambda: spin(150_000_000)


def gain(work: Callable[[], object]) -> float:
    """Wall seconds of two goes one after the other over those of two at once; the pairs take turns."""
    serial = both = math.inf
    for _ in range(5):
        serial = min(serial, fastest(lambda: [work() for _ in range(2)], time.perf_counter, times=1)[0])
        both = min(both, fastest(lambda: together(work), time.perf_counter, times=1)[0])
    return serial / both


def together(work: Callable[[], object]) -> None:
    """Two goes on two threads."""
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    """Print the figures."""
    use_kernel_cache(print)
    conversation = azure()
    seconds, _ = fastest(lambda: replay(conversation, ENGINE, COSTS), times=1)
    print(f"first replay of the process (imports numba, loads the kernel from its cache): {seconds:.2f} s of CPU")
    timed("Azure conversation, tiled", tiled(conversation, 1_000_000), ENGINE, 1.5e6)
    loaded = poisson(conversation, 1_000_000, 0.7)
    timed("a million at 70 % load", loaded, ENGINE, 3e6)
    parts(loaded)
    timed("the same with the async lag", loaded, replace(ENGINE, async_lag_steps=1), 3e6)
    cached = replace(
        ENGINE, replicas=4, router=Router.PREFIX_AFFINITY, caching=Caching.BLOCK_IDS, prefix_block_tokens=512
    )
    timed("Mooncake, 4 replicas, prefix cache", mooncake(), cached, 150e3)
    against_walking(loaded)
    on_threads(loaded)
    if "--long" in sys.argv:
        many = poisson(conversation, 44_000_000, 8 * 0.7)
        timed("44 million, 8 replicas", many, replace(ENGINE, replicas=8), 1.1e6, times=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
