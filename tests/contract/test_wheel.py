"""The wheel: what its top level is, and that it works in an empty environment."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(out), str(ROOT), cwd=out)
    return next(out.glob("kvledger-*.whl"))


def test_top_level_of_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"flows", "transforms", "reports"}
    assert any(name.startswith("flows/_shipped/sql/") and name.endswith(".sql") for name in names)
    assert "flows/_shipped/data/fleet.toml" in names
    assert not any(".jsonl" in name or "/tests/" in name for name in names)


def test_the_wheel_alone_works_beside_its_packages(wheel: Path, tmp_path: Path) -> None:
    """In an environment with the packages of this one and nothing of the checkout; short of what compiles a kernel."""
    venv.create(tmp_path / "env", with_pip=False)
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    kvledger = filled(tmp_path / "env" / "bin" / "python", tmp_path)
    run(*kvledger, "build", "--no-prefect", cwd=tmp_path)
    asked = json.loads(
        run(*kvledger, "query", "select distinct deployment_id from fct_requests", "--json", cwd=tmp_path)
    )
    assert {row["deployment_id"] for row in asked["rows"]} == {"chat", "coding-agent", "summariser"}


@pytest.mark.soak
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, *PIP, "install", "--no-compile", str(wheel), cwd=tmp_path)
    assert "review" in run(tmp_path / "env" / "bin" / "kvledger", "--help", cwd=tmp_path)
    reviewed = json.loads(run(*filled(python, tmp_path), "review", "--no-prefect", "--json", cwd=tmp_path))
    assert {row["deployment"] for row in reviewed["decision"]} == {"chat", "coding-agent", "summariser"}
    assert (tmp_path / reviewed["report"]).exists()


def filled(python: Path, folder: Path) -> tuple[str | Path, ...]:
    """The command of the wheel's own code, which has read a small sample into `folder`/data."""
    kvledger = (python, "-P", "-m", "flows.cli")
    where = run(python, "-P", "-c", "import flows; print(flows.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(folder)
    run(*kvledger, "sample", "--scale", "0.01", cwd=folder)
    run(*kvledger, "ingest", "data/sample", "--format", "litellm", "--no-prefect", cwd=folder)
    return kvledger
