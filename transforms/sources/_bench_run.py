"""One run of a benchmark as its arrays tell it: one entry a prompt, failed ones with zeros in place of times."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from transforms.batches import Reject
from transforms.fields.clock import in_range
from transforms.fields.numbers import amount, count, seconds
from transforms.fields.words import text
from transforms.sources._benchmark import told_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.fields.decode import Record
    from transforms.fleet import Source

NOT_A_RUN = "no benchmark result"
NO_ARRAYS = "a run without request arrays"
NO_STARTS = "a run without start times"
UNEQUAL = "request arrays differ in length"
ASSUMED_ARRIVAL = "assumed_arrival"
TIME_UNIT_DOUBTED = "time_unit_doubted"

ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors", "server_queue_times")
TOTALS = frozenset({"duration", "completed", "total_input_tokens", "request_throughput"})
"""What every result has, with arrays or without."""
FAR = 2.0
"""A mean that differs from the logged one by less than this factor is in its unit."""


@dataclass(frozen=True)
class Run:
    """One run: equally long `arrays`, the smallest start on the client's clock, and the units of times and starts."""

    record: Record
    arrays: Mapping[str, Sequence[Any]]
    size: int
    first_s: float
    unit: str
    start_unit: str
    flags: tuple[str, ...] = ()


def run_of(record: Record, source: Source) -> Run:
    """The run in one result; ValueError with a fixed reason where it is none or cannot serve."""
    result = record.value
    arrays = {name: result[name] for name in ARRAYS if isinstance(result.get(name), list)}
    if "input_lens" not in arrays or not {"output_lens", "latencies"} & arrays.keys():
        raise ValueError(NO_ARRAYS if result.keys() >= TOTALS else NOT_A_RUN)
    size = len(arrays["input_lens"])
    if any(len(array) != size for array in arrays.values()):
        raise ValueError(UNEQUAL)
    flags = list(record.flags)
    if "start_times" not in arrays:
        if str(result.get("request_rate")).lower() not in ("inf", "infinity") or result.get("max_concurrency"):
            raise ValueError(NO_STARTS)
        flags.append(ASSUMED_ARRIVAL)  # an unlimited rate sends all prompts at once
        arrays["start_times"] = [0.0] * size
    shown = _shown_unit(result, arrays)
    if shown and source.time_unit and shown != source.time_unit:
        flags.append(TIME_UNIT_DOUBTED)
    unit, start_unit = source.time_unit or shown or "s", source.time_unit or "s"
    starts = [start for start in map(_number, arrays["start_times"]) if start is not None]
    first_s = seconds(min(starts, default=0.0), start_unit, []) or 0.0
    return Run(record, arrays, size, first_s, unit, start_unit, tuple(flags))


def _shown_unit(result: Mapping[str, Any], arrays: Mapping[str, Sequence[Any]]) -> str | None:
    """The unit in which the run's times have the mean or median it logged itself; None where nothing tells."""
    for measure, name in (("ttft", "ttfts"), ("e2el", "latencies")):
        values = [value for value in map(_number, arrays.get(name, ())) if value]
        for stat, of in (("mean", mean), ("median", median)):
            told_ms, told_s = _number(result.get(f"{stat}_{measure}_ms")), _number(result.get(f"{stat}_{measure}"))
            told = told_ms / 1000 if told_ms else told_s
            if not told or not values:
                continue
            ratio = of(values) / told
            if 1 / FAR < ratio < FAR:
                return "s"
            if 1000 / FAR < ratio < 1000 * FAR:
                return "ms"
    return None


def _number(value: Any) -> float | None:
    try:
        found = amount(value, [])
    except ValueError:
        return None
    return None if found is None else float(found)


def run_rows(run: Run, start_us: int, assumed: Sequence[str]) -> tuple[list[dict[str, Any]], list[Reject]]:
    """A row for each prompt of a run that starts at `start_us` (us UTC), and rejects for entries of no use."""
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    shared = {
        "source_position": run.record.position,
        "model": text(run.record.value.get("model_id")) or text(run.record.value.get("model")),
        "operation": _operation(run),
    }
    for number in range(run.size):
        try:
            rows.append({**shared, **_row(run, number, start_us, [*assumed, *run.flags])})
        except ValueError as error:
            rejects.append(Reject(run.record.position, str(error)))
    return rows, rejects


def _row(run: Run, number: int, start_us: int, flags: list[str]) -> dict[str, Any]:
    entry = {name: array[number] for name, array in run.arrays.items()}
    sent_s = seconds(entry["start_times"], run.start_unit, flags)
    output, gaps = count(entry.get("output_lens"), flags), entry.get("itls")
    ttft_s, e2e_s, queue_s = (
        seconds(entry.get(name), run.unit, flags) for name in ("ttfts", "latencies", "server_queue_times")
    )
    error = text(entry.get("errors"))
    is_failed = error is not None or not (output or ttft_s or e2e_s)
    if e2e_s is None and ttft_s and isinstance(gaps, list) and not is_failed:
        e2e_s = ttft_s + sum(seconds(gap, run.unit, flags) or 0.0 for gap in gaps)
    return {
        "arrived_at": None if sent_s is None else in_range(start_us + (sent_s - run.first_s) * 1_000_000),
        "status": told_failure(error) if is_failed else "ok",
        "prompt_tokens": count(entry["input_lens"], flags),
        "output_tokens": None if is_failed and not output else output,
        "queue_s": queue_s,
        "ttft_s": ttft_s or None,
        "e2e_s": e2e_s or None,
        "flags": flags,
    }


def _operation(run: Run) -> str:
    backend = (text(run.record.value.get("backend")) or text(run.record.value.get("endpoint_type")) or "").lower()
    if "rerank" in backend:
        return "rerank"
    return "chat" if "output_lens" in run.arrays else "embedding"
