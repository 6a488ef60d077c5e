"""`kvledger calibrate`: step-time parameters fitted to what was measured."""

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
from flows.commands.replay import BlocksOption, ReplicasOption, SetOption
from flows.printing import print_json, print_line
from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ResultsArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="RESULTS…", help="Logs or benchmark results of one deployment.")
]
FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the results, or auto.")]
ModelOption = Annotated[str | None, typer.Option("--model", help="Path of a config.json, or a catalog id.")]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="GPU of the catalog.")]
PointsOption = Annotated[Path | None, typer.Option("--points", help="CSV of measured benchmark points instead.")]
ConfigsOption = Annotated[Path | None, typer.Option("--configs", help="Folder with the points' config files.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", help="TOML to write; default HOME/calibrations/<model>--<gpu>--tp<N>.toml for RESULTS."),
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", help="Plan (HOME/plans/week=…) to hold RESULTS of a load test against instead."),
]
DeploymentOption = Annotated[str | None, typer.Option("--deployment", help="Deployment of the plan that was loaded.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="Where the points come from, in words.")]


def calibrate(
    results: ResultsArgument = None,
    *,
    output: OutputOption = None,
    results_format: FormatOption = None,
    model: ModelOption = None,
    gpu: GpuOption = None,
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
    settings: SetOption = None,
    points: PointsOption = None,
    configs: ConfigsOption = None,
    source: SourceOption = None,
    against: AgainstOption = None,
    deployment: DeploymentOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Fit step times to measured runs, and say how far off they are on what was left out."""
    given = locals()
    if against is not None:
        found, lines = _against(given)
    elif points is not None:
        if results or configs is None or output is None:
            raise ConfigError("calibrate takes RESULTS, or --points FILE.csv with --configs DIR and --output FILE.toml")
        found = _from_points(points, configs, output, source, home)
        lines = points_lines(found)
    else:
        found = _from_results(given)
        lines = results_lines(found)
    if json:
        print_json(found)
    else:
        print_line("\n".join(lines))


def _against(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if not given["results"] or not given["results_format"]:
        raise ConfigError("calibrate --against PLAN takes the RESULTS of the load test and their --format")
    from flows.calibrate_against import against_lines, calibrate_against
    from flows.replay_flags import Asked, source_settings
    from flows.replay_site import SiteQuestion
    from transforms.fleet import Engine
    from transforms.planner.replay.replay_options import ReplayOptions

    asked = Asked(SiteQuestion("", "", Engine()), ReplayOptions(), source_settings(given["settings"] or ()))
    results = [(path, asked.source(given["results_format"], str(path))) for path in given["results"]]
    found = calibrate_against(given["against"], given["deployment"], results, given["replicas"], given["home"])
    return found, against_lines(found)


def _from_points(points: Path, configs: Path, output: Path, source: str | None, home: Path) -> dict[str, Any]:
    from flows.calibrate_points import calibrate_points
    from flows.catalog import load_catalog
    from flows.home import Home

    return calibrate_points(points, configs, output, source, load_catalog(Home(home)))


def _from_results(given: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in ("results", "results_format", "model", "gpu") if not given[name]]
    if missing:
        words = {"results": "RESULTS", "results_format": "--format", "model": "--model", "gpu": "--gpu"}
        raise ConfigError(f"calibrate needs {', '.join(words[name] for name in missing)} (or --points and --configs)")
    from flows.own_calibration import calibrate_results
    from flows.replay_flags import flags_of, question_of

    asked = question_of(flags_of(given), given["settings"] or (), replicas=given["replicas"])
    return calibrate_results(given["results"], given["results_format"], asked, given["output"], given["home"])


def results_lines(found: Mapping[str, Any]) -> list[str]:
    """Lines on a fit to requests: how many, how far off, and the parameters."""
    errors = {name: error for name, error in found["holdout_error_ratio"].items() if error is not None}
    off = ", ".join(f"{name} {error:.1%}" for name, error in errors.items())
    lines = [f"{found['fit_requests']:,} requests fitted, {found['holdout_requests']:,} held out, off there by {off}"]
    lines += [f"{name} = {value:g}" for name, value in found["fitted"].items()]
    return [*lines, f"written to {found['output']}"]


def points_lines(found: Mapping[str, Any]) -> list[str]:
    """Lines on a fit: points used and not, and errors of all families together, fitted and left out."""
    lines = [f"{found['fitted_points']:,} of {found['read_points']:,} points fitted; {found['output']}"]
    lines += [f"{row['points']:,} refused: {row['reason']}" for row in found["refused"]]
    lines += [f"{row['id']} breaks a floor and is left out ({row['floor']})" for row in found["broken_floors"]]
    for name, words in (("fit", "in the fit"), ("left_out", "on (model, GPU) groups left out of it")):
        lines += [
            f"error {words}, {kind}: TPOT median {row['tpot_median_ratio']:.1%}, p90 {row['tpot_p90_ratio']:.1%}; "
            f"TTFT median {row['ttft_median_ratio']:.1%}"
            for kind, row in found["errors"][name].items()
        ]
    return lines
