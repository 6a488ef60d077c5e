"""Plans and what-ifs on Dask and Ray: deployments and scenarios as task runs, the same bytes as on one machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flows.home import Home

KVLEDGER = Path(sys.executable).parent / "kvledger"
SWEEP = ["--sweep", "max_num_seqs=32,128", "--deployment", "chat"]


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The sample reviewed on one machine, with two what-ifs beside today."""
    home = Home(tmp_path_factory.mktemp("near") / "home")
    for words in (["sample", "--scale", "0.05"], ["review", "--no-prefect"], ["whatif", *SWEEP]):
        subprocess.run([KVLEDGER, *words, "--home", home.root], check=True, capture_output=True)
    return home


def plans(home: Home) -> dict[str, str]:
    """Name -> digest of every plan table."""
    found = sorted(home.plans.glob("week=*/*.parquet"))
    return {str(path.relative_to(home.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("runner", ["dask", "ray"])
def test_a_cluster_plans_and_answers_to_the_byte(near: Home, runner: str, tmp_path: Path) -> None:
    far = Home(tmp_path / "home")
    shutil.copytree(near.root, far.root)
    shutil.rmtree(far.plans)
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environment |= {"KVLEDGER_TASK_RUNNER": runner, "KVLEDGER_WORKERS": "2"}
    for words in (["plan"], ["whatif", *SWEEP]):
        ran = subprocess.run(
            [KVLEDGER, *words, "--home", far.root], capture_output=True, text=True, check=False, env=environment
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert plans(far) == plans(near)
    with sqlite3.connect(far.prefect / "prefect.db") as connection:
        runs = dict(connection.execute("select name, count(*) from task_run group by 1").fetchall())
    assert sum(count for name, count in runs.items() if name.startswith("plan_part")) == 6
    assert sum(count for name, count in runs.items() if name.startswith("answer")) == 3
