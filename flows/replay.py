"""One trace through one engine model: read, replayed, summed up and written where asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.kernel_cache import use_kernel_cache
from flows.printing import print_note
from flows.reading.rows import read_rows
from flows.replay_site import SiteQuestion, replay_site
from flows.whole_file import whole_file
from transforms.errors import ConfigError
from transforms.planner.replay.closed_curve import closed_curve
from transforms.planner.replay.engine import replay
from transforms.planner.replay.near_saturation import near_saturation
from transforms.planner.replay.rate_scaling import scaled
from transforms.planner.replay.replay_settings import replay_settings
from transforms.planner.replay.replay_summary import request_table, series_table, summary
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.replay.replay_types import Caching, Router, TraceColumns
from transforms.planner.replay.sustainable_rate import sustainable_rate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from flows.replay_site import ReplaySite
    from transforms.fleet import Source
    from transforms.planner.replay.replay_options import ReplayOptions
    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult, Settings

SUFFIXES = (".parquet", ".csv")


@dataclass(frozen=True)
class ReplayQuestion:
    """What `kvledger replay` was asked."""

    source: Source
    site: SiteQuestion
    options: ReplayOptions
    calibration: Path | None = None
    results: Path | None = None
    timeseries: Path | None = None
    concurrency: Sequence[int] = ()
    is_rate_asked: bool = False


def answer_replay(question: ReplayQuestion, home: Path) -> dict[str, Any]:
    """JSON of the replay; writes the tables asked for. Errors name the file or option that is amiss."""
    for path in (question.results, question.timeseries):
        if path is not None and path.suffix not in SUFFIXES:
            raise ConfigError(f"{path}: must end in {' or '.join(SUFFIXES)}")
    use_kernel_cache(print_note)
    carried = question.options.carry_calibration
    site = replay_site(question.site, home, question.calibration, is_carried=carried)
    trace = load_trace(question.source, question.options)
    settings = replay_settings(site.engine, question.options, site.pool.pool, site.max_model_len, trace)
    settings = replace(settings, series=question.timeseries is not None)
    result, wall_s = timed_replay(trace.columns, settings, site)
    if question.results is not None:
        write_aside(request_table(result, trace.request_id, site.pool), question.results)
    if question.timeseries is not None and result.series is not None:
        write_aside(series_table(result.series), question.timeseries)
    found = summary(result, site.pool, trace.columns.parent) | {"wall_s": wall_s} | _about(site, trace, result)
    quiet = replace(settings, series=False)
    found["near_saturation"] = near_saturation(trace, quiet, site.costs, result, question.options.seed)
    if question.concurrency:
        found["closed_loop"] = closed_curve(trace, quiet, site.costs, question.concurrency)
    if question.is_rate_asked:
        found["sustainable"] = sustainable_rate(trace, quiet, site.costs, question.options)
    return found


def load_trace(source: Source, options: ReplayOptions) -> ReplayTrace:
    """Requests of the trace that `source` names, at the rate asked for."""
    from pathlib import Path

    reading = read_rows(Path(source.path), source)
    if reading.rejects:
        print_note(f"{source.path}: {len(reading.rejects):,} records are no requests ({reading.rejects[0].reason}, …)")
    trace = replay_trace(reading.rows, source.path, options.seed)
    for reason, count in trace.left_out.items():
        print_note(f"{source.path}: {count:,} rows are left out: {reason}")
    if trace.drawn_outputs:
        print_note(f"{source.path}: {trace.drawn_outputs:,} unknown output lengths are drawn from the known ones")
    return scaled(trace, options.rate_scale, options.scale_mode, options.seed)


def timed_replay(columns: TraceColumns, settings: Settings, site: ReplaySite) -> tuple[ReplayResult, float]:
    """Result, and the seconds of the replay alone: the kernel is loaded before the clock starts."""
    one = np.ones(1, dtype=np.int32)
    replay(
        TraceColumns(np.zeros(1), one, one),
        replace(settings, caching=Caching.OFF, router=Router.ROUND_ROBIN, series=False),
        site.costs,
    )
    started = time.perf_counter()
    result = replay(columns, settings, site.costs)
    return result, time.perf_counter() - started


def write_aside(table: pl.DataFrame, path: Path) -> None:
    """Write `table` as Parquet or CSV by the suffix of `path`, in one go; HomeError where that cannot be done."""
    with whole_file(path) as aside:
        if path.suffix == ".parquet":
            table.write_parquet(aside)
        else:
            table.write_csv(aside)


def _about(site: ReplaySite, trace: ReplayTrace, result: ReplayResult) -> dict[str, Any]:
    """What was replayed on what, and how far its steps are to be trusted."""
    return {
        "kv_peak_ratio": result.peak_units / site.pool.pool.units,
        "kv_blocks": site.pool.blocks,
        "model": site.model.model_id,
        "gpu": site.gpu.name,
        "engine_version": site.engine.version,
        "provenance": site.provenance,
        "step_time_source": site.source,
        "tpot_error_ratio": site.tpot_error_ratio,
        "ttft_error_ratio": site.ttft_error_ratio,
        "outputs_drawn": trace.drawn_outputs,
        "unknown_gaps": trace.unknown_gaps,
        "left_out": trace.left_out,
        "arrivals_requests_per_s": result.arrived_s.size / trace.span_s if trace.span_s > 0 else None,
    }
