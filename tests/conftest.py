"""What all tests share: where the shared traces lie, and what to do when a tool is absent."""

from __future__ import annotations

import os
import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import zstandard

from flows.kernel_cache import use_kernel_cache

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("KVLEDGER_SHARED", ROOT.parent / "shared"))


def pytest_configure(config: pytest.Config) -> None:
    folder = use_kernel_cache()
    os.environ["KVLEDGER_KERNEL_CACHE"] = str(folder.parent)  # of every command that a test starts
    is_worker = hasattr(config, "workerinput")
    if not is_worker and not any(folder.rglob("run.run-*.nbi")):
        _compile_kernel()  # before the workers start, which would all do it at once


def _compile_kernel() -> None:
    from transforms.planner.replay.engine import replay
    from transforms.planner.replay.replay_types import Pool, Settings, TraceColumns
    from transforms.planner.replay.step_costs import StepCosts

    one = np.ones(1, dtype=np.int32)
    trace = TraceColumns(np.zeros(1), one, one)
    replay(trace, Settings(Pool(9), 1, 1), StepCosts(0.0, 0.0, 0.0, 0.0, 0.0, step_s=1.0))


def _missing(marker: str) -> str | None:
    """Name what a marked test lacks on this machine, or None."""
    if marker == "shared" and not (SHARED / "traces").is_dir():
        return "the shared traces (set KVLEDGER_SHARED=DIR)"
    if marker == "browser" and not shutil.which("chromium"):
        return "Chromium (Debian package chromium)"
    if marker == "cluster" and not (find_spec("prefect_dask") or find_spec("prefect_ray")):
        return "Dask or Ray (pip install 'kvledger[dask]')"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ("browser", "s3", "cluster", "shared"):
        if item.get_closest_marker(marker) is None:
            continue
        missing = _missing(marker)
        if missing is None:
            continue
        if os.environ.get("CI") == "true":
            pytest.fail(f"needs {missing}", pytrace=False)
        pytest.skip(f"needs {missing}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run with one line naming what was left out, where anything was."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    left_out: dict[str, int] = {}
    for report in reporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]).removeprefix("Skipped: needs ")
        left_out[reason] = left_out.get(reason, 0) + 1
    if left_out:
        named = ", ".join(f"{count} tests for want of {what}" for what, count in sorted(left_out.items()))
        reporter.write_line(f"left out: {named}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder with the shared traces and cases (marker `shared`)."""
    return SHARED


@pytest.fixture(scope="session")
def root_dir() -> Path:
    """Top of the project."""
    return ROOT


@pytest.fixture(scope="session")
def agent_sessions_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the 350 agent sessions of kv-cache-tester, unpacked once (marker `shared`; 220 MB)."""
    folder = tmp_path_factory.mktemp("agent-sessions")
    opened = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    packed = SHARED / "traces/kv-cache-tester/traces_odd.tar.zst"
    with packed.open("rb") as raw, tarfile.open(fileobj=opened.stream_reader(raw), mode="r|") as archive:
        archive.extractall(folder, filter="data")
    return folder
