"""Plans older than the requests of their week: build, review and doctor say so, until the week is planned again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
from lakes import HERE, MONDAY, no_progress, random_rows, row, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.checks.home_state import home_state
from flows.home import Home
from flows.older_plans import older_plans, reports_of_other_plans
from flows.plan import plan
from flows.report import report

KVLEDGER = Path(sys.executable).parent / "kvledger"
WEEK = "2026-W47"


def rebuilt(home: Home, rows: list[dict]) -> None:
    shutil.rmtree(home.lake)
    write_lake(home.root, sorted(rows, key=lambda each: each["arrived_at"]))


def states(home: Home) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.line) for check in home_state(home)}


def test_late_rows_make_a_plan_older_until_it_is_made_again(tmp_path: Path) -> None:
    rows = [each for each in random_rows(5, 40, days=6.0) if each["model"] == "chat-model"]
    home = write_lake(tmp_path / "home", rows)
    fleet, catalog = write_fleet(home), load_catalog(home)
    build(home, fleet, catalog, no_progress)
    assert older_plans(home) == []
    assert plan(home, fleet, catalog, WEEK, no_progress, HERE) == WEEK
    report(home, WEEK)
    assert (older_plans(home), reports_of_other_plans(home)) == ([], [])
    assert states(home)["plans"][0] == "ok"

    late = [row(10**6 + n, arrived_at=MONDAY + timedelta(days=2, seconds=n), e2e_s=1.0) for n in range(7)]
    idle = [row(10**6 + 9, arrived_at=MONDAY + timedelta(days=3), model="other", prompt_tokens=None)]
    rebuilt(home, [*rows, *late, *idle])
    ran = subprocess.run(
        [KVLEDGER, "build", "--home", home.root, "--no-prefect"], capture_output=True, text=True, check=False
    )
    said = f"plan of {WEEK} (8 attempts came in since) is older than its requests; run kvledger plan --week {WEEK}"
    assert (ran.returncode, ran.stderr) == (0, f"warning: {said}\n")
    assert states(home)["plans"] == ("warn", f"warn  plans: {said}")
    ran = subprocess.run(
        [KVLEDGER, "build", "--home", home.root, "--no-prefect", "--json"], capture_output=True, text=True, check=False
    )
    assert json.loads(ran.stdout)["warnings"] == [{"code": "plan_older", "text": said}]

    plan(home, fleet, catalog, WEEK, no_progress, HERE)
    assert (older_plans(home), reports_of_other_plans(home)) == ([], [WEEK])
    assert f"{WEEK} planned again since" in states(home)["reports"][1]
    rebuilt(home, rows[1:])
    build(home, fleet, catalog, no_progress)
    assert pl.DataFrame(older_plans(home))["text"].item().startswith(f"plan of {WEEK} (")
    assert "attempts are gone since)" in older_plans(home)[0].text
    report(home, WEEK)
    assert "reports" not in states(home)
