"""Points of a closed-loop benchmark: rows checked, their parallelism read, and what a replica there would show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.errors import CapacityError, ConfigError, nearest
from transforms.planner.steps.closed_loop import Load, steady
from transforms.planner.steps.step_calibration import calibrated
from transforms.planner.steps.step_work import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.planner.steps.closed_loop import Steady
    from transforms.planner.steps.step_calibration import Calibration
    from transforms.planner.steps.step_work import StepWork

ENGINES = ("vllm", "sglang", "tensorrt-llm")
NEEDED = ("id", "engine", "config_file", "gpu", "weights", "tp", "concurrency", "isl", "osl")
"""Columns a points file must have; pp, attention_dp, moe_tp and moe_ep count as 1 where they are absent."""
LARGEST = 10**12
"""Above any size, length or number of requests of a benchmark; larger ones are slips of the pen."""
_SHOWN_LETTERS = 40
_SIZES = ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")


@dataclass(frozen=True)
class Point:
    """One benchmark run as asked for: lengths in tokens, requests in flight in total."""

    point_id: str
    engine: str
    config_file: str
    gpu: str
    weights: str
    tensor: int
    pipeline: int
    data: int
    expert_tensor: int
    expert: int
    concurrency: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Reading:
    """A way to understand a point's parallelism: the layout, the requests in flight, and what was understood."""

    layout: Layout
    concurrency: int
    note: str = ""


@dataclass(frozen=True)
class Placed:
    """A point on its replica: its work, and how many of its requests the KV cache holds at a time."""

    reading: Reading
    work: StepWork
    resident: float


def missing_columns(columns: list[str]) -> list[str]:
    """Needed columns that `columns` lacks, in their order."""
    return [name for name in NEEDED if name not in columns]


def parse_point(row: Mapping[str, str | None]) -> Point:
    """The point in a row of texts; ConfigError says which value cannot be one."""
    engine = (row["engine"] or "").strip()
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        raise ConfigError(f"engine '{engine}' is unknown{nearest(engine, ENGINES)}; known are {known}")
    sizes = [max(1, _whole(row, name, least=0)) for name in _SIZES]
    return Point(
        str(row["id"]),
        engine,
        (row["config_file"] or "").strip(),
        (row["gpu"] or "").strip(),
        (row["weights"] or "").strip(),
        *sizes,
        *(_whole(row, name, least=1) for name in ("concurrency", "isl", "osl")),
    )


def readings(point: Point, *, has_experts: bool) -> list[Reading]:
    """Ways to understand a point's parallelism, likeliest first: as recorded, unless the record counts ranks twice.

    The public sample holds runs under both spellings: `--tp 8 --ep 8` on 8 GPUs also stands there as tp 64, moe_tp 8,
    moe_ep 8, and attention DP over n ranks as attention_dp n² (or tp n, attention_dp n) with n times fewer requests.
    ConfigError where experts are spread over another number of ranks than there are.
    """
    layout = Layout(point.tensor, point.pipeline, point.data, point.expert)
    if not has_experts:
        return [Reading(Layout(point.tensor, point.pipeline, point.data), point.concurrency)]
    spread, ranks = point.expert_tensor * point.expert, point.tensor * point.data
    if spread == 1:
        return [Reading(layout, point.concurrency)]
    if spread != ranks:
        raise ConfigError(
            f"moe_tp {point.expert_tensor} × moe_ep {point.expert} is not tp {point.tensor} × attention_dp {point.data}"
        )
    twice = _counted_twice(point)
    return [*([twice] if twice else []), Reading(layout, point.concurrency)]


def _counted_twice(point: Point) -> Reading | None:
    number = point.expert_tensor if point.expert_tensor > 1 else point.tensor
    both_flags = point.expert_tensor == point.expert > 1
    both_ranks = point.expert_tensor == 1 and point.tensor == point.data > 1
    if both_flags and point.data == 1:
        return Reading(Layout(number, point.pipeline, 1, number), point.concurrency, f"read as {number} GPUs")
    if both_ranks or (both_flags and point.tensor == 1):
        requests = point.concurrency * number
        note = f"read as {number} GPUs, {requests} requests in all"
        return Reading(Layout(1, point.pipeline, number, number), requests, note)
    return None


def resident_requests(point: Point, work: StepWork, free_bytes: float, concurrency: int) -> float:
    """Requests of the point that fit `free_bytes` of KV on all GPUs, at most those in flight.

    TensorRT-LLM sets the whole request aside when it starts (capacity scheduler GUARANTEED_NO_EVICT, its default), the
    others what it has grown to. CapacityError where not even one fits.
    """
    held = point.prompt_tokens + (point.output_tokens if point.engine == "tensorrt-llm" else point.output_tokens / 2)
    each_bytes = held * work.kv_token_bytes + work.sequence_bytes
    fitting = free_bytes / each_bytes if each_bytes else math.inf
    if fitting < 1:
        raise CapacityError(
            f"one request of {point.prompt_tokens} + {point.output_tokens} tokens needs {each_bytes / 2**30:.1f} GiB "
            f"of KV and {max(free_bytes, 0) / 2**30:.1f} GiB are left"
        )
    return min(float(concurrency), fitting)


def predicted(point: Point, placed: Placed, calibration: Calibration) -> Steady[float]:
    """What a closed-loop benchmark of the point shows under `calibration`, in seconds and tokens per second."""
    model = calibrated(placed.work, calibration.parameters, calibration.provenance)
    load = Load(
        concurrency=float(placed.reading.concurrency),
        resident=placed.resident,
        prompt_tokens=float(point.prompt_tokens),
        output_tokens=float(point.output_tokens),
        waits_for_ranks=float(placed.reading.layout.data > 1),
    )
    return steady(model, calibration.parameters, load, largest=max, ceiling=lambda value: float(math.ceil(value)))


def _whole(row: Mapping[str, str | None], name: str, least: int) -> int:
    """Whole number of column `name`; an absent or empty size counts as 1."""
    text = (row.get(name) or "").strip()
    if not text and name in _SIZES:
        return 1
    try:
        value = int(text.removesuffix(".0"))  # tables with gaps write whole numbers as 4.0
    except ValueError:
        value = least - 1
    if not least <= value <= LARGEST:
        shown = text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "…"
        raise ConfigError(f"{name} '{shown}' must be a whole number from {least} to {LARGEST:,}")
    return value
