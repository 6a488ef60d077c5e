"""`kvledger sample`: made-up gateway logs to try everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption, WaitOption
from flows.home import locked, open_home
from flows.printing import print_json, print_line

MEBIBYTE = 1024**2


def sample(
    *,
    home: HomeOption = DEFAULT_HOME,
    output: Annotated[Path | None, typer.Option("--output", help="Folder for the logs; default HOME/sample.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another number gives other logs.", min=0)] = 2,
    scale: Annotated[
        float, typer.Option("--scale", help="Share of the traffic, e.g. 0.1 for a tenth.", min=0.001, max=1)
    ] = 1.0,
    days: Annotated[int, typer.Option("--days", help="Days from 2026-11-09 on.", min=1, max=14)] = 14,
    thin: Annotated[int, typer.Option("--thin", help="Write one session in so many, from the same run.", min=1)] = 1,
    wait: WaitOption = 0.0,
    json: JsonOption = False,
) -> None:
    """Write two ISO weeks of made-up gateway logs, the same bytes for the same seed, and the example fleet."""
    from flows.progress import progress
    from flows.sample import SampleSettings, write_sample

    root = open_home(home)
    with locked(root, wait):
        result = write_sample(root, output, SampleSettings(seed, scale, days, thin), progress)
    if json:
        print_json(vars(result))
        return
    verb = "already holds" if result.is_unchanged else "now holds"
    size = f"{result.bytes / MEBIBYTE:.1f} MiB"
    print_line(f"{result.output} {verb} {result.requests:,} requests in {result.files} gateway logs ({size})")
    if result.is_fleet_copied:
        print_line(f"{root.fleet} is the example fleet they belong to")
