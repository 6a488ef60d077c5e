"""The commands the README shows really run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KVLEDGER = Path(sys.executable).parent / "kvledger"


def shown_commands() -> list[str]:
    """Every `kvledger …` line of the README's console blocks, in order."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ kvledger ")]


def test_the_readme_shows_commands() -> None:
    assert len(shown_commands()) >= 5


def test_the_replayed_trace_is_one_deployments_of_that_model() -> None:
    """An export without --deployment mixes the traffic of several models, which no one engine answers."""
    exported = [shown for shown in shown_commands() if " export " in shown]
    replayed = next(shown for shown in shown_commands() if " replay " in shown)
    fleet = tomllib.loads((ROOT / "data/fleet.toml").read_text())["deployments"]
    served = {one["name"]: one["model"] for one in fleet}
    (trace,) = (shlex.split(shown) for shown in exported)
    assert f"--trace {trace[trace.index('--output') + 1]} " in replayed
    assert f"--model {served[trace[trace.index('--deployment') + 1]]} " in replayed


def test_shown_commands_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    for shown in shown_commands():
        arguments = shlex.split(shown)[1:]
        if arguments[0] == "sample":
            arguments += ["--scale", "0.01"]
        ran = subprocess.run([KVLEDGER, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{shown}\n{ran.stderr[-1500:]}"
        assert ran.stdout.strip(), shown
