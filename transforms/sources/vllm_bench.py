"""Results of `vllm bench serve --save-detailed` and its forks (SGLang's bench_serving): arrays, one entry a prompt.

Source: log_formats.md §9, vllm/benchmarks/serve.py 0.33. A file holds one run, or several that --append-result wrote
one after the other; without the arrays there are only totals, and the file is refused. Failed requests stay in the
arrays with zeros, which are unknown times. `start_times` are seconds of the client's own clock: arrivals count from the
smallest of the run. The first run starts at the origin, others as much later as their `date` says; under `timezone`
without `origin`, runs start at their `date`, which is their end, less their `duration`. `queue_times` are the client's
own queue, before a request is sent. Times are seconds, unless the mean or median that a run logged itself shows ms (or
`time_unit` says so). A request ends with its latency: gaps between chunks may hold several tokens.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.errors import InputError
from transforms.fields.clock import Clock, in_range, origin_us, zone_of
from transforms.fields.numbers import amount
from transforms.finish import frame
from transforms.sources._bench_run import NO_ARRAYS, NO_STARTS, TOTALS, Run, run_of, run_rows
from transforms.sources._benchmark import objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch, Head
    from transforms.fleet import Source

FORMAT = "vllm-bench"
UNIT = "file"
DEFAULTS: Mapping[str, Any] = {}
DATE = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
ARRIVAL_FROM_DATE = "arrival_from_date"
ADVICE = {
    NO_ARRAYS: "holds totals only, no requests; write it with vllm bench serve --save-result --save-detailed "
    "(SGLang: --output-details)",
    NO_STARTS: "has no start_times, so nobody knows when its requests arrived; write it with vllm 0.10 or newer "
    "(--save-detailed), or ingest the engine's OTLP traces of that run (format otel)",
}
"""What to do with a file whose runs all cannot serve."""


def recognise(head: Head) -> str | None:
    """Why `head` looks like a benchmark's result: arrays of input and output lengths, or the totals of a run."""
    for record in head.records:
        if isinstance(record.get("input_lens"), list) and {"output_lens", "latencies"} & record.keys():
            return "a result with input_lens, output_lens, ttfts"
        if record.keys() >= TOTALS:
            return "a result with duration, completed, request_throughput"
    if not head.records and head.text and head.text[0].startswith("{"):
        start = "".join(head.text)
        if all(f'"{key}":' in start for key in ("num_prompts", "request_rate", "burstiness")):
            return "results with num_prompts, request_rate, burstiness"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per prompt of each run; InputError where no run has what it takes."""
    runs: list[Run] = []
    rejects: list[Reject] = []
    for found in objects(batch):
        if isinstance(found, Reject):
            rejects.append(found)
            continue
        try:
            runs.append(run_of(found, source))
        except ValueError as error:
            rejects.append(Reject(found.position, str(error)))
    told = {reject.reason for reject in rejects}
    useless = [advice for reason, advice in ADVICE.items() if reason in told]
    if useless and not runs:
        raise InputError(useless[0])
    rows: list[dict[str, Any]] = []
    for run, (start_us, assumed) in zip(runs, starts_us(runs, source), strict=True):
        made, unusable = run_rows(run, start_us, assumed)
        rows += made
        rejects += unusable
    return Parsed(frame(rows), rejects)


def starts_us(runs: Sequence[Run], source: Source) -> list[tuple[int, tuple[str, ...]]]:
    """When each run starts, in us UTC, with the flags that say what is assumed in it."""
    dated = [_dated_us(run, source) for run in runs]
    known = [us for us in dated if us is not None]
    if source.timezone and source.origin is None and len(known) == len(runs):
        return [(us, (ARRIVAL_FROM_DATE,)) for us in known]
    flags: list[str] = []
    origin, first = origin_us(source, flags), min(known, default=0)
    return [(origin + (0 if us is None else us - first), tuple(flags)) for us in dated]


def _dated_us(run: Run, source: Source) -> int | None:
    """When a run started by its `date`, which is taken when it has ended, and its duration; None without a date."""
    result = run.record.value
    match = DATE.fullmatch(str(result.get("date")))
    if match is None:
        return None
    stamp = "{}-{}-{}T{}:{}:{}".format(*match.groups())
    try:
        ended_us = Clock(zone_of(source.timezone or "UTC")).instant_us(stamp, [])
        length_s = amount(result.get("duration"), []) or 0
        return None if ended_us is None else in_range(ended_us - length_s * 1_000_000)
    except ValueError:
        return None
