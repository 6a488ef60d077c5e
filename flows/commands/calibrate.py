"""`kvledger calibrate`: step-time parameters fitted to what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

PointsOption = Annotated[Path, typer.Option("--points", help="CSV of measured benchmark points.")]
ConfigsOption = Annotated[Path, typer.Option("--configs", help="Folder with the points' config files.")]
OutputOption = Annotated[Path, typer.Option("--output", help="TOML to write the calibration to.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="Where the points come from, in words.")]


def calibrate(
    *,
    points: PointsOption,
    configs: ConfigsOption,
    output: OutputOption,
    source: SourceOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Fit step times to measured runs, and say how far off they are on runs left out."""
    from flows.calibrate_points import calibrate_points
    from flows.catalog import load_catalog
    from flows.home import Home

    found = calibrate_points(points, configs, output, source, load_catalog(Home(home)))
    if json:
        print_json(found)
    else:
        print_line("\n".join(points_lines(found)))


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
