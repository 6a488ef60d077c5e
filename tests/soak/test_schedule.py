"""The schedule over minutes: cron fires, a run fails and is brought back, waits for a busy home, loses its server."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from serving import STATES, eventually, place_trace, serving, stored

from flows.execution import execution
from flows.home import locked, open_home
from flows.processes import recorded


@pytest.fixture(scope="module")
def migrated(tmp_path_factory):
    """A database of Prefect's server that is migrated, as on every start but the first."""
    home = open_home(tmp_path_factory.mktemp("migrated"))
    with execution(home) as way:
        way.run("warm", lambda stages: stages.run("nothing", int))
    return home.prefect / "prefect.db"


@pytest.mark.soak
def test_the_schedule_fires_fails_and_is_brought_back(migrated, tmp_path):
    """A run each minute: one that fires, one on a fleet file that was broken, one with the home busy, one after."""
    fleet = place_trace(tmp_path)
    sound = fleet.read_text() + '[schedule]\nreview = "* * * * *"\ningest = ""\n'
    fleet.write_text(sound)
    home = open_home(tmp_path / "home")
    with serving(home, fleet, migrated):
        assert eventually(lambda: len(stored(home, STATES)) == 1, within_s=240)
        fleet.write_text(sound.replace("H100-SXM-80GB", "H100-SXM-81GB"))
        assert eventually(lambda: ("review", "FAILED") in stored(home, STATES), within_s=240)
        (said,) = stored(home, "select data from artifact where data like '%failed%' limit 1")
        assert "H100-SXM-81GB" in said[0]
        assert "kvledger doctor" in said[0]
        fleet.write_text(sound)
        number = len(stored(home, STATES))
        with locked(home, wait_s=60):
            time.sleep(75)
            assert len(stored(home, STATES)) <= number + 1
        assert eventually(lambda: len(stored(home, STATES)) > number + 1, within_s=240)
        assert stored(home, STATES)[-1] == ("review", "COMPLETED")
    overlapping = (
        "select count(*) from flow_run a join flow_run b on a.id < b.id "
        "and a.start_time < b.end_time and b.start_time < a.end_time"
    )
    assert stored(home, overlapping) == [(0,)]


@pytest.mark.soak
def test_a_server_lost_in_the_middle_of_a_run_costs_nothing(migrated, tmp_path):
    home = open_home(tmp_path / "home")
    with serving(home, place_trace(tmp_path), migrated, "--catch-up"):
        assert eventually((home.root / "staging").exists, within_s=180)
        os.kill(json.loads((home.schedule / "server.json").read_text())["pid"], signal.SIGKILL)
        assert eventually((home.reports / "index.html").exists, within_s=240)
        assert eventually(lambda: recorded(home.schedule / "server.json") == "running")
        assert eventually(lambda: stored(home, STATES) == [("review", "COMPLETED")], within_s=120)
