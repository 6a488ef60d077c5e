"""Options that several commands share, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[Path, typer.Option("--home", help="Directory that holds all that is built.")]
FleetOption = Annotated[
    Path | None, typer.Option("--fleet", help="Fleet file; default HOME/fleet.toml, else the shipped example.")
]
JsonOption = Annotated[bool, typer.Option("--json", is_eager=True, help="Print exactly one JSON object on stdout.")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait for another run on this home.", min=0)]
NoPrefectOption = Annotated[bool, typer.Option("--no-prefect", help="Run the same stages without Prefect.")]
PngOption = Annotated[bool, typer.Option("--png", help="Also write the key charts as PNG files beside the report.")]
WeekOption = Annotated[
    str | None, typer.Option("--week", help="ISO week such as 2026-W47; default: the latest with rows.")
]

DEFAULT_HOME = Path("data")
