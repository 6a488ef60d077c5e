"""`kvledger doctor`: the state of the installation, one line a finding, with what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from flows.commands.options import DEFAULT_HOME, FleetOption, HomeOption, JsonOption
from flows.printing import print_json, print_line


def doctor(home: HomeOption = DEFAULT_HOME, fleet: FleetOption = None, json: JsonOption = False) -> None:
    """Look at installation, home, fleet file, logs and Prefect without changing them; exit 2 if a run would fail."""
    from flows.doctor import examine

    checks = examine(home, fleet)
    failed = [check for check in checks if check.state == "fail"]
    if json:
        print_json({"is_ok": not failed, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print_line(check.line)
    if failed:
        raise typer.Exit(2)
