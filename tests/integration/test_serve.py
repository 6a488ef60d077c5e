"""The schedule: which weeks a run reviews, how Prefect registers and starts it, what it leaves when it fails."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from serving import place_trace
from typer.testing import CliRunner

from flows.cli import app
from flows.execution import PlainStages, is_transient
from flows.fleet import load_fleet
from flows.home import locked, open_home
from flows.processes import worker_pool
from flows.run_notes import failed_markdown
from flows.schedule import planned_runs, project_file, run_scheduled, silent_week, weeks_due
from transforms.errors import BusyError, ConfigError, HomeError, InputError

MONDAY = datetime(2026, 11, 23, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("due_at", "reported", "is_catching_up", "wanted"),
    [
        (MONDAY, [], False, ["2026-W47"]),
        (MONDAY, ["2026-W45"], False, ["2026-W47"]),
        (MONDAY, ["2026-W45"], True, ["2026-W46", "2026-W47"]),
        (MONDAY, ["2026-W44", "2026-W46"], True, ["2026-W45", "2026-W47"]),
        (MONDAY, [], True, ["2026-W47"]),
        (datetime(2026, 11, 22, 23, tzinfo=UTC), [], False, ["2026-W46"]),
        (datetime(2026, 11, 3, tzinfo=UTC), [], True, [None]),
    ],
)
def test_weeks_that_a_run_reviews(due_at, reported, is_catching_up, wanted):
    days = ["2026-11-04", "2026-11-11", "2026-11-16", "2026-11-22", "2026-11-23"]  # of W45, W46, W47, W47, W48
    assert weeks_due(days, reported, due_at, is_catching_up=is_catching_up) == wanted


@pytest.mark.parametrize(("newest", "is_told"), [("2026-W46", True), ("2026-W47", False), (None, False)])
def test_a_week_without_requests_is_told(newest, is_told):
    lines = silent_week(newest, MONDAY)
    assert bool(lines) == is_told
    assert all("2026-W47 has no requests; this is 2026-W46" in line for line in lines)


def test_a_missed_week_is_caught_up(tmp_path):
    """Two weeks of logs, the first reported; the run three weeks later makes both that follow, and again the same."""
    place_trace(tmp_path)
    home = open_home(tmp_path / "home")
    fleet = tmp_path / "fleet.toml"
    days = {"0": "2026-11-02", "1": "2026-11-09", "2": "2026-11-17"}
    text = fleet.read_text()
    source = '[[sources]]\nformat = "mooncake"\npath = "logs/{0}.jsonl"\norigin = "{1}T00:00:00Z"\n'
    (tmp_path / "logs" / "2.jsonl").write_bytes((tmp_path / "logs" / "0.jsonl").read_bytes())
    fleet.write_text("".join(source.format(*day) for day in days.items()) + text[text.index("[[deployments]]") :])
    given = {"command": "review", "home": str(home.root), "fleet": str(fleet), "is_catching_up": True}
    with worker_pool(1) as pool:
        stages = PlainStages(pool)
        assert reviewed(stages, given, datetime(2026, 11, 9, 6, tzinfo=UTC)) == ["2026-W45"]
        assert reviewed(stages, given, MONDAY) == ["2026-W46", "2026-W47"]
        assert reviewed(stages, given, MONDAY) == ["2026-W47"]
        assert (
            run_scheduled(stages, {**given, "command": "ingest"}, MONDAY).lines[0].startswith("ingested: nothing new")
        )
    assert (home.reports / "week=2026-W46" / "review.html").exists()


def reviewed(stages, given, due_at):
    return [row["week"] for row in run_scheduled(stages, given, due_at).decision]


def test_a_busy_home_is_worth_another_try_and_bad_input_is_not(tmp_path):
    home = open_home(tmp_path)
    with locked(home), pytest.raises(BusyError) as busy, locked(home):
        pass
    assert is_transient(busy.value)
    assert not is_transient(InputError("a.jsonl: is no log"))
    trouble = HomeError("lake: Input/output error")
    trouble.__cause__ = OSError(5, "Input/output error")
    assert is_transient(trouble)


def test_what_the_fleet_file_asks_for(tmp_path):
    fleet = place_trace(tmp_path)
    home = open_home(tmp_path / "home")
    usual = planned_runs(home, load_fleet(fleet, home), is_catching_up=False)
    assert [(run.name, run.cron, run.timezone) for run in usual] == [
        ("weekly-review", "0 6 * * mon", "UTC"),
        ("daily-ingest", "30 2 * * *", "UTC"),
    ]
    fleet.write_text(fleet.read_text() + '[schedule]\nreview = "5 7 * * tue"\ningest = ""\ntimezone = "Asia/Tokyo"\n')
    (only,) = planned_runs(home, load_fleet(fleet, home), is_catching_up=True)
    assert (only.cron, only.timezone, only.parameters["is_catching_up"]) == ("5 7 * * tue", "Asia/Tokyo", True)
    fleet.write_text(fleet.read_text().replace("Asia/Tokyo", "Mars/Olympus"))
    with pytest.raises(ConfigError, match=r"\[schedule\].*Mars/Olympus"):
        load_fleet(fleet, home)


def test_the_project_file_is_what_prefect_reads(tmp_path):
    import yaml

    home = open_home(tmp_path / "home")
    planned = planned_runs(home, load_fleet(place_trace(tmp_path), home), is_catching_up=False)
    document = yaml.safe_load(project_file(planned))
    assert [entry["name"] for entry in document["deployments"]] == ["weekly-review", "daily-ingest"]
    first = document["deployments"][0]
    assert first["entrypoint"] == "flows.orchestration.scheduled"
    assert first["schedules"] == [{"cron": "0 6 * * mon", "timezone": "UTC"}]
    assert first["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
    assert first["parameters"] == planned[0].parameters
    assert first["work_pool"] == {"name": "kvledger"}


def test_a_schedule_without_sources_says_what_is_missing(tmp_path):
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("""[[deployments]]
name = "chat"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 1
""")
    asked = ["serve", "--print-project", "--home", str(tmp_path / "home"), "--fleet", str(fleet)]
    said = CliRunner().invoke(app, asked).stderr
    assert "fleet.toml has no [[sources]]: nothing is read by itself" in said


def test_a_failed_run_says_what_to_do():
    said = failed_markdown("a: is gone; put it back", {"command": "review", "home": "/h", "fleet": "/f.toml"})
    assert "a: is gone; put it back" in said
    assert "kvledger doctor --home /h --fleet /f.toml" in said
    assert "kvledger review --home /h --fleet /f.toml" in said
