"""The commands the README shows really run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KVLEDGER = Path(sys.executable).parent / "kvledger"


def shown_commands() -> list[str]:
    """Every `kvledger …` line of the README's console blocks, in order."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ kvledger ")]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the README's reader has it: a small sample in ./data."""
    folder = tmp_path_factory.mktemp("readme")
    subprocess.run([KVLEDGER, "sample", "--scale", "0.02"], cwd=folder, check=True, capture_output=True)
    return folder


def test_the_readme_shows_commands() -> None:
    assert len(shown_commands()) >= 5


@pytest.mark.parametrize("number", range(len(shown_commands())))
def test_shown_command_runs(number: int, workplace: Path) -> None:
    for before in shown_commands()[:number]:  # each needs what the ones before it built
        done = workplace / f".done-{shown_commands().index(before)}"
        assert done.exists(), f"{before} did not run"
    command = shlex.split(shown_commands()[number])
    ran = subprocess.run([KVLEDGER, *command[1:]], cwd=workplace, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-1500:]
    assert ran.stdout.strip()
    (workplace / f".done-{number}").touch()
