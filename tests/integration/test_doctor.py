"""`kvledger doctor` on homes that are well, damaged, half-written, read only: each finding says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ingesting import ingested
from lakes import write_fleet

from flows.checks.installation import unmet
from flows.doctor import examine
from flows.home import locked, open_home

KVLEDGER = Path(sys.executable).parent / "kvledger"
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00,10,1\n2026-03-02 10:00:01,20,2\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A home with two days of rows and a fleet file whose source is there."""
    folder = tmp_path_factory.mktemp("doctor")
    log = folder / "logs" / "a.csv"
    log.parent.mkdir()
    log.write_text(CSV)
    home = open_home(folder / "home")
    ingested(home.root, log, form="azure", timezone="UTC")
    loaded = write_fleet(home)
    text = loaded.path.read_text()
    home.fleet.write_text(
        f'[[sources]]\nname = "a"\nformat = "azure"\npath = "{log}"\ntimezone = "Europe/Berlin"\n{text}'
    )
    return home.root


@pytest.fixture
def place(made, tmp_path):
    shutil.copytree(made, tmp_path / "home")
    return tmp_path / "home"


def found(place, *names):
    """(state, text and what to do) of the findings with these names."""
    checks = {check.name: check for check in examine(place, None)}
    return [(checks[name].state, checks[name].line) for name in names]


def test_a_sound_home_has_nothing_to_mend(place, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    checks = examine(place, None)
    assert [check.line for check in checks if check.state == "fail"] == []
    lines = "\n".join(check.line for check in checks)
    assert "2 rows on 2 days" in lines
    assert "ok    source a: 1 files" in lines
    assert " deployments, 1 sources" in lines


def test_json_and_the_exit_code(place, tmp_path):
    command = [KVLEDGER, "doctor", "--home", str(place), "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    sound = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (sound.returncode, json.loads(sound.stdout)["is_ok"]) == (0, True)
    (place / "fleet.toml").write_text("nonsense = 1\n")
    broken = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert broken.returncode == 2
    document = json.loads(broken.stdout)
    assert document["is_ok"] is False
    assert [check["name"] for check in document["checks"] if check["state"] == "fail"] == ["fleet"]
    assert set(document["checks"][0]) == {"name", "state", "text", "todo"}


def test_a_lake_file_that_was_removed(place):
    next((place / "lake" / "requests").rglob("*.parquet")).unlink()
    ((state, line),) = found(place, "lake")
    assert state == "fail"
    assert "holds 1 rows, 2 were loaded: files were removed or changed; run kvledger ingest --rebuild" in line


def test_a_damaged_file(place):
    file = next((place / "lake" / "requests").rglob("*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[:60] + b"\xff" * 40 + whole[100:])
    ((state, line),) = found(place, "files")
    assert state == "fail"
    assert str(file) in line
    assert "remove" in line


def test_what_a_killed_run_left(place):
    (place / "staging" / "runs").mkdir(exist_ok=True)
    (place / "staging" / "runs" / "00000.arrow").write_bytes(b"x" * 2_000_000)
    assert found(place, "staging") == [
        ("warn", "warn  staging: 1.9 MiB of a run that was cut short; the next run clears it")
    ]
    (place / "lake" / "journal.json").write_text("{}")
    assert found(place, "staging")[0][1].startswith("warn  staging: a commit was cut short")


def test_who_holds_the_lock(place):
    with locked(open_home(place)):
        ((state, line),) = found(place, "lock")
    assert (state, f"held by pid {os.getpid()}" in line) == ("ok", True)
    assert found(place, "lock") == [("ok", "ok    lock: free")]


def test_a_key_that_others_can_read(place):
    (place / "tenant.key").write_bytes(b"k" * 32)
    (place / "tenant.key").chmod(0o644)
    ((state, line),) = found(place, "tenant key")
    assert (state, line.endswith(f"chmod 600 {place / 'tenant.key'}")) == ("warn", True)


def test_a_home_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    ((state, line),) = found(tmp_path / "file" / "home", "home")
    assert state == "fail"
    assert "choose another with --home" in line


def test_logs_that_are_not_there(place, tmp_path):
    text = (place / "fleet.toml").read_text()
    (place / "fleet.toml").write_text(text.replace("a.csv", "nowhere.csv"))
    ((state, line),) = found(place, "source a")
    assert state == "fail"
    assert "no such file; check the path" in line


def test_a_server_that_is_named_and_does_not_answer(place, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    ((state, line),) = found(place, "prefect")
    assert state == "fail"
    assert "unset PREFECT_API_URL" in line


def test_a_server_that_a_killed_run_left(place, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    from flows.processes import started

    (place / "prefect").mkdir()
    record = {"pid": os.getpid(), "started": started(), "owner": os.getpid(), "owner_started": "another boot"}
    (place / "prefect" / "server.json").write_text(json.dumps(record))
    assert found(place, "prefect")[0][0] == "warn"


def test_packages_that_do_not_fit():
    assert unmet(["duckdb>=2", "polars"]) == []
    assert unmet(["duckdb<1", "no-such-package>=1", "ruff; extra == 'dev'"]) == [
        f"duckdb is {version_of('duckdb')}, not <1",
        "no-such-package is missing",
    ]


def version_of(name):
    from importlib.metadata import version

    return version(name)
