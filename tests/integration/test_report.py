"""The report stage on a published warehouse: files, index, weeks, errors, and the same bytes twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import duckdb
import polars as pl
import pytest
from report_week import BEFORE, HOSTILE, WEEK, decision, empty_week, frame, full_week

from flows.home import Home
from flows.pictures import pictures
from flows.report import report, reproduce, step_time_errors
from transforms.errors import DataError, HomeError


def publish(home: Home, *weeks: dict[str, pl.DataFrame]) -> None:
    """Write `weeks` of tables as a warehouse at its published place."""
    home.warehouse.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(home.warehouse), config={"storage_compatibility_version": "latest"}) as connection:
        for name in weeks[0]:
            rows = pl.concat([tables[name] for tables in weeks]).unique(maintain_order=True)
            connection.register("rows", rows)
            connection.table("rows").create(name)


def week_before() -> dict[str, pl.DataFrame]:
    tables = empty_week()
    tables["mart_decision"] = frame("mart_decision", [decision("chat", 8, 8, "keep")])
    tables["mart_coverage"] = frame("mart_coverage", [{"requests": 5, "coverage_text": "58 minutes of a week"}])
    tables["mart_data_quality"] = frame("mart_data_quality", [{"source_file": "empty.jsonl", "week": "(none)"}])
    return {
        name: table.with_columns(week=pl.col("week").replace(WEEK, BEFORE)) if "week" in table.columns else table
        for name, table in tables.items()
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("home"))
    publish(made, week_before(), full_week())
    return made


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_writes_four_files_and_an_index_and_nothing_half_written(home: Home) -> None:
    made = report(home)
    assert made.html == home.reports / f"week={WEEK}" / "review.html"
    assert sorted(path.name for path in made.html.parent.iterdir()) == [
        "review-tables.md", "review.html", "review.json", "review.md",
    ]  # fmt: skip
    assert not list(home.reports.rglob("*.part"))
    kept = json.loads((made.html.parent / "review.json").read_text())
    assert kept | {"report": str(made.html)} == json.loads(json.dumps(dict(made.summary)))
    assert kept["report"] == "review.html"
    assert made.decision[0].startswith(WEEK)


def test_the_json_has_the_errors_of_the_catalogs_step_times(home: Home) -> None:
    listed = report(home).summary["step_time_errors"]
    assert listed == step_time_errors(home)
    assert {row["engine"] for row in listed} == {"vllm", "sglang", "tensorrt-llm"}


def test_pictures_lie_beside_the_report_and_old_ones_go(tmp_path: Path) -> None:
    home = Home(tmp_path)
    publish(home, full_week(windows=2))
    reported = report(home)
    stale = reported.html.parent / "charts" / "deployment-9-residency.png"
    stale.parent.mkdir()
    stale.write_bytes(b"old")
    made = pictures(reported)
    assert sorted(stale.parent.iterdir()) == sorted(made)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)


def test_a_week_has_its_own_rows_and_files_without_a_week(home: Home) -> None:
    earlier = report(home, BEFORE).summary
    assert earlier["requests"] == 5
    assert [row["deployment"] for row in earlier["decision"]] == ["chat"]
    assert [row["source_file"] for row in earlier["tables"]["mart_data_quality"]] == ["empty.jsonl"]
    assert earlier["tables"]["mart_lengths"] == []
    latest = report(home, WEEK).summary
    assert "empty.jsonl" in {row["source_file"] for row in latest["tables"]["mart_data_quality"]}


def test_the_index_lists_both_weeks_newest_first(home: Home) -> None:
    report(home, BEFORE)
    report(home, WEEK)
    index = (home.reports / "index.html").read_text()
    assert 0 < index.index(f"week={WEEK}/review.html") < index.index(f"week={BEFORE}/review.html")
    assert HOSTILE not in index


def test_the_same_warehouse_gives_the_same_bytes(home: Home) -> None:
    report(home)
    first = digests(home.reports)
    report(home)
    assert digests(home.reports) == first


def test_the_drawing_code_is_made_once(home: Home) -> None:
    report(home)
    (kept,) = home.reports.glob(".*.js")
    assert kept.read_text() in (home.reports / f"week={WEEK}" / "review.html").read_text()


@pytest.mark.parametrize(
    ("week", "words"),
    [("2026-W01", f"covers {BEFORE} to {WEEK}"), ("last", "is not an ISO week"), ("2026-W47' or true", "ISO week")],
)
def test_a_week_that_is_not_there_is_one_clear_line(home: Home, week: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as raised:
        report(home, week)
    assert "\n" not in str(raised.value)


def test_no_warehouse_and_no_rows_are_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no warehouse"):
        report(Home(tmp_path))
    publish(Home(tmp_path), empty_week())
    with pytest.raises(DataError, match="no request in any week"):
        report(Home(tmp_path))


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    home = Home(tmp_path)
    publish(home, full_week(windows=2))
    home.reports.write_text("a file where the folder should be")
    with pytest.raises(HomeError, match="cannot be written") as raised:
        report(home)
    assert os.linesep not in str(raised.value)


@pytest.mark.parametrize(
    ("root", "fleet", "place"),
    [
        ("data", "data/fleet.toml", "--home data"),
        ("my home", "fleets/eu.toml", "--home 'my home' --fleet fleets/eu.toml"),
        ("/srv/kv/home", "/etc/kv/eu.toml", "--home PATH/home --fleet PATH/eu.toml"),
        ("/srv/kv/home", "/srv/kv/home/fleet.toml", "--home PATH/home"),
    ],
)
def test_the_commands_name_home_and_fleet_and_no_folder_of_the_machine(root: str, fleet: str, place: str) -> None:
    commands = reproduce(Home(Path(root)), Path(fleet), WEEK)
    assert commands[0] == f"kvledger review --week {WEEK} {place}"
    assert "/srv" not in " ".join(commands)
    assert f"week = '{WEEK}'" in commands[-1]
