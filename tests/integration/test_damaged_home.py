"""What a home, stdout or the disk may do to a run: one line and exit 2, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from ingesting import ingested
from lakes import no_progress, write_fleet

from flows.build import build, load_plans
from flows.catalog import load_catalog
from flows.damage import plan_damage_named
from flows.home import open_home
from transforms.errors import HomeError

KVLEDGER = Path(sys.executable).parent / "kvledger"
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00,10,1\n2026-03-01 10:00:01,20,2\n"


def run(*words, **options):
    given = {"capture_output": True, "text": True, **options}
    return subprocess.run([KVLEDGER, *words], check=False, **given)


@pytest.fixture
def ingest(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    words = [tmp_path / "a.csv", "--format", "azure", "--timezone", "UTC", "--no-prefect", "--home", tmp_path / "home"]
    return ["ingest", *map(str, words)]


def line_of(ran):
    """The one line of a command that must be refused with exit 2."""
    assert ran.returncode == 2, ran.stderr
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    return ran.stderr


@pytest.mark.parametrize("words", [["dictionary", "--json"], ["ingest", "--help"]])
def test_a_full_stdout(words):
    with Path("/dev/full").open("w") as full:
        ran = run(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert "stdout cannot be written (No space left on device)" in line_of(ran)


def test_a_reader_that_left_ends_the_run_without_a_word():
    with subprocess.Popen([KVLEDGER, "dictionary"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_a_closed_stdout():
    ran = run("-c", '"$0" dictionary >&-', KVLEDGER, executable="/bin/sh")
    assert "stdout is closed" in line_of(ran)


def test_a_log_that_cannot_be_written(tmp_path, ingest):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "logs").write_text("a file stands where the logs should be")
    assert f"{tmp_path}/home/logs/kvledger.log cannot be written" in line_of(run(*ingest))
    assert not (tmp_path / "home" / "lake").exists()


@pytest.mark.parametrize("name", ["manifest/files.parquet", "requests/date=2026-03-01/part-0.parquet", "journal.json"])
def test_a_damaged_lake_names_the_file_and_what_to_do(tmp_path, name):
    log, place = tmp_path / "a.csv", tmp_path / "home"
    log.write_text(CSV)
    ingested(place, log, form="azure", timezone="UTC")
    damaged = place / "lake" / name
    whole = damaged.read_bytes() if damaged.exists() else b""
    damaged.write_bytes(whole[: len(whole) // 2])
    log.write_text(CSV + "2026-03-01 10:00:02,30,3\n")
    told = f"{damaged}: is damaged and cannot be read; remove {place}/lake and ingest the logs again"
    with pytest.raises(HomeError) as refused:
        ingested(place, log, form="azure", timezone="UTC")
    assert str(refused.value) == told
    home = open_home(place)
    with pytest.raises(HomeError) as refused:
        build(home, write_fleet(home), load_catalog(home), no_progress)
    assert str(refused.value) == told


def test_a_damaged_plan_names_the_file_and_what_to_do(tmp_path):
    home = open_home(tmp_path)
    damaged = home.plans / "week=2026-W01" / "plan_replicas.parquet"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"PAR1 and no more")
    with duckdb.connect() as connection, pytest.raises(HomeError) as refused:
        load_plans(connection, home)
    told = f"{damaged}: is damaged and cannot be read; remove it and run kvledger plan for that week again"
    assert str(refused.value) == told


def test_an_error_that_is_no_damage_stays_what_it_is(tmp_path):
    home = open_home(tmp_path)
    with pytest.raises(duckdb.Error, match="nowhere"), plan_damage_named(home):
        duckdb.sql("select * from nowhere")
