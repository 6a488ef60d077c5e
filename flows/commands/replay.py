"""`kvledger replay`: one trace through a model of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.engine_options import (
    EngineVersionOption,
    KvDtypeOption,
    MaxBatchedTokensOption,
    MaxModelLenOption,
    MaxSeqsOption,
    PipelineOption,
    TensorOption,
    UtilizationOption,
)
from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.commands.setting_list import replay_settings
from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

TraceOption = Annotated[Path, typer.Option("--trace", help="File of requests.")]
FormatOption = Annotated[str, typer.Option("--format", help="Format of the file, or auto.")]
ModelOption = Annotated[str, typer.Option("--model", help="Path of a config.json, or a catalog id.")]
GpuOption = Annotated[str, typer.Option("--gpu", help="GPU of the catalog.")]
BlocksOption = Annotated[
    int | None, typer.Option("--kv-blocks", help="KV blocks of a replica as its log counts them.", min=1)
]
ReplicasOption = Annotated[int, typer.Option("--replicas", help="Engines behind a router.", min=1)]
CalibrationOption = Annotated[Path | None, typer.Option("--calibration", help="File that kvledger calibrate wrote.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        callback=replay_settings,
        help="key=value of [deployments.engine], the replay or the source; help lists the keys.",
    ),
]
ResultsOption = Annotated[Path | None, typer.Option("--results", help="One row a request: .parquet or .csv.")]
SeriesOption = Annotated[Path | None, typer.Option("--timeseries", help="One row a second: .parquet or .csv.")]
ScaleOption = Annotated[float, typer.Option("--rate-scale", help="Times as many sessions.")]
ScaleModeOption = Annotated[str, typer.Option("--scale-mode", help="sessions or compress.")]
ConcurrencyOption = Annotated[
    list[int] | None, typer.Option("--concurrency", help="Closed loop of so many requests, beside the open one.", min=1)
]
SustainableOption = Annotated[
    bool, typer.Option("--sustainable-rate", help="Also find the open-loop rate that keeps the objectives.")
]


def replay(
    *,
    trace: TraceOption,
    trace_format: FormatOption,
    model: ModelOption,
    gpu: GpuOption,
    tp: TensorOption = 1,
    pp: PipelineOption = 1,
    max_num_seqs: MaxSeqsOption = None,
    max_num_batched_tokens: MaxBatchedTokensOption = None,
    max_model_len: MaxModelLenOption = None,
    gpu_memory_utilization: UtilizationOption = None,
    kv_cache_dtype: KvDtypeOption = "auto",
    engine_version: EngineVersionOption = None,
    kv_blocks: BlocksOption = None,
    replicas: ReplicasOption = 1,
    calibration: CalibrationOption = None,
    settings: SetOption = None,
    results: ResultsOption = None,
    timeseries: SeriesOption = None,
    rate_scale: ScaleOption = 1.0,
    scale_mode: ScaleModeOption = "sessions",
    concurrency: ConcurrencyOption = None,
    is_rate_asked: SustainableOption = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Replay one trace: who waits, who is preempted, when the queue starts to grow."""
    from flows.replay import ReplayQuestion, answer_replay
    from flows.replay_flags import flags_of, question_of

    flags = flags_of(locals())
    asked = question_of(flags, settings or (), replicas=replicas, rate_scale=rate_scale, scale_mode=scale_mode)
    question = ReplayQuestion(
        asked.source(trace_format, str(trace)),
        asked.site,
        asked.options,
        calibration,
        results,
        timeseries,
        tuple(concurrency or ()),
        is_rate_asked,
    )
    found = answer_replay(question, home)
    if json:
        print_json(found)
    else:
        written = [f"written to {path}" for path in (results, timeseries) if path is not None]
        print_line("\n".join([*replay_lines(found), *written]))


def replay_lines(found: Mapping[str, Any]) -> list[str]:
    """Lines on a replay: the verdict, who was served, latencies, KV."""
    backlog, rate, near = found["backlog"], found.get("sustainable"), found.get("near_saturation")
    word = " to ".join(near["verdicts"]) if near else found["verdict"]
    growth = [f"{backlog[f'growth_{end}_requests_per_s']:+.3g}" for end in ("low", "high")]
    waiting = (
        f"{backlog['peak_waiting_requests']:,.0f} waiting at most, {backlog['end_waiting_requests']:,.0f} at the end"
    )
    lines = [f"{found['model']} on {found['gpu']}: {word} ({waiting}; trend {' to '.join(growth)} requests/s)"]
    counts = ("completed", "rejected", "timed_out", "not_sent", "preemptions")
    told = ", ".join(f"{found[name]:,} {name.replace('_', ' ')}" for name in counts)
    lines.append(f"{found['requests']:,} requests in {found['makespan_s']:,.0f} s: {told}")
    measures = ("queue_s", "prefill_s", "ttft_s", "tpot_s", "e2e_s")
    shown = near["latencies"] if near else found
    lines += [f"{name:10s}" + "  ".join(f"{k} {_shown(v)}" for k, v in shown[name].items()) for name in measures]
    if near:
        lines.append(f"near saturation: from … to over {near['replays']} replays, each begun at another moment")
    lines.append(f"KV peak {found['kv_peak_ratio']:.1%}; step times {found['provenance']}: {found['step_time_source']}")
    off = " and ".join(f"{name} {found[f'{name.lower()}_error_ratio']:.1%}" for name in ("TPOT", "TTFT"))
    lines.append(f"median error of such step times on what they were not fitted to: {off}")
    lines += [
        f"closed loop of {row['concurrency_requests']}: {row['requests_per_s']:.4g} requests/s, "
        f"{row['output_tokens_per_s']:,.0f} output tokens/s"
        for row in found.get("closed_loop", ())
    ]
    if rate:
        ends = " to ".join(_shown(rate[f"{end}_requests_per_s"]) for end in ("low", "high"))
        objectives = f"TTFT p95 {rate['ttft_p95_s']:g} s, TPOT p95 {rate['tpot_p95_s']:g} s"
        lines.append(f"sustains {ends} requests/s at {objectives}")
    return lines


def _shown(value: float | list[float] | None) -> str:
    """A figure, or both ends of an interval."""
    if isinstance(value, list):
        return f"{value[0]:.4g} to {value[1]:.4g}"
    return "-" if value is None else f"{value:.4g}"
