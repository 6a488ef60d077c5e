"""`kvledger predict`: what a closed-loop benchmark of a deployment would show, for a file of points or for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.engine_options import EngineOption, GpuOption, PipelineOption, TensorOption
from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.printing import print_json, print_line
from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

PointsArgument = Annotated[
    Path | None, typer.Argument(metavar="POINTS.csv", help="Points, one a line; without it the flags are one point.")
]
ConfigsOption = Annotated[Path | None, typer.Option("--configs", help="Folder with the points' config files.")]
OutputOption = Annotated[Path | None, typer.Option("--output", help="CSV to write the answers to.")]
AccuracyOption = Annotated[
    bool, typer.Option("--accuracy", help="Print predicted against measured by engine, GPU and model instead.")
]
ModelOption = Annotated[str | None, typer.Option("--model", help="Path of a config.json, or a catalog id.")]
WeightsOption = Annotated[str, typer.Option("--weights", help="bf16, fp16, fp8, fp4 or int4.")]
AttentionDpOption = Annotated[int, typer.Option("--attention-dp", help="Data-parallel ranks of attention.", min=1)]
MoeTpOption = Annotated[int, typer.Option("--moe-tp", help="Ranks that share each expert.", min=1)]
MoeEpOption = Annotated[int, typer.Option("--moe-ep", help="Ranks that experts are spread over.", min=1)]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", help="Requests in flight.", min=1)]
PromptOption = Annotated[int | None, typer.Option("--isl", help="Prompt tokens.", min=1)]
OutputTokensOption = Annotated[int | None, typer.Option("--osl", help="Output tokens.", min=1)]


def predict(
    points: PointsArgument = None,
    *,
    configs: ConfigsOption = None,
    output: OutputOption = None,
    is_accuracy: AccuracyOption = False,
    model: ModelOption = None,
    engine: EngineOption = "vllm",
    gpu: GpuOption = None,
    weights: WeightsOption = "bf16",
    tp: TensorOption = 1,
    pp: PipelineOption = 1,
    attention_dp: AttentionDpOption = 1,
    moe_tp: MoeTpOption = 1,
    moe_ep: MoeEpOption = 1,
    concurrency: ConcurrencyOption = None,
    isl: PromptOption = None,
    osl: OutputTokensOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Say what a closed-loop benchmark of a deployment would show."""
    from flows.catalog import load_catalog
    from flows.home import Home
    from flows.predict import accuracy, one_point, predict_file

    catalog = load_catalog(Home(home))
    if is_accuracy:
        rows = accuracy(catalog)
        _print({"groups": rows}, accuracy_lines(rows), json=json)
    elif points is not None:
        if configs is None or output is None:
            raise ConfigError(f"predict {points} needs --configs DIR and --output OUT.csv")
        found = predict_file(points, configs, output, catalog)
        _print(found, file_lines(found), json=json)
    else:
        sizes = {"tp": tp, "pp": pp, "attention_dp": attention_dp, "moe_tp": moe_tp, "moe_ep": moe_ep}
        load = {"concurrency": concurrency, "isl": isl, "osl": osl}
        settings = {"engine": engine, "config_file": model, "gpu": gpu, "weights": weights, **sizes, **load}
        found = one_point(settings, catalog)
        _print(found, [f"{name}: {value}" for name, value in found.items() if name != "id"], json=json)


def file_lines(found: dict[str, Any]) -> list[str]:
    """Lines on a file of points: how many were answered, and why others were not."""
    first = f"{found['answered']:,} of {found['points']:,} points answered; {found['output']}"
    return [first, *(f"{count:,} refused: {reason}" for reason, count in found["refused"].items())]


def accuracy_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Table of predicted against measured: median and 90 % error of each group, in the fit and left out of it."""
    head = f"{'engine':13s} {'GPU':17s} {'model':36s} {'weights':7s} {'points':>6s}  {'TPOT fit':>13s}  "
    lines = [f"{head}{'TPOT left out':>14s}  {'TTFT fit':>8s}  {'TTFT left out':>13s}"]
    for row in rows:
        fit, apart = row["fit"], row["left_out"]
        lines.append(
            f"{row['engine']:13s} {row['gpu']:17s} {row['model'][:36]:36s} {row['weights']:7s} {row['points']:6,d}  "
            f"{fit['tpot_median_ratio']:5.1%} /{fit['tpot_p90_ratio']:6.1%}  "
            f"{apart['tpot_median_ratio']:5.1%} / {apart['tpot_p90_ratio']:6.1%}  "
            f"{fit['ttft_median_ratio']:8.1%}  {apart['ttft_median_ratio']:13.1%}"
        )
    return lines


def _print(document: dict[str, Any], lines: Sequence[str], *, json: bool) -> None:
    if json:
        print_json(document)
    else:
        print_line("\n".join(lines))
