"""`ingest --rebuild`: logs read anew, lakes of other schema numbers, and what would be lost."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from format_samples import LITELLM, lines
from ingesting import Here, ingested, lake_hash, no_progress
from lakes import write_fleet

from flows.build import build
from flows.catalog import load_catalog
from flows.home import open_home
from flows.ingest import ingest
from flows.lake import manifest_path
from transforms.errors import HomeError
from transforms.fleet import Privacy, Source


def row(number):
    stamp = f"2026-03-{1 + number % 3:02}T10:{number % 60:02}:00Z"
    return {**LITELLM, "request_id": f"r{number}", "startTime": stamp, "endTime": stamp.replace(":00Z", ":05Z")}


@pytest.fixture
def logs(tmp_path):
    """Two files that share rows."""
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    paths[0].write_text(lines(*map(row, range(40))))
    paths[1].write_text(lines(*map(row, range(30, 70))))
    return paths


def rebuilt(root, *paths):
    sources = [Source("litellm", str(path)) for path in paths]
    given = {"base": root, "privacy": Privacy(), "progress": no_progress, "executor": Here(), "is_rebuild": True}
    return ingest(open_home(root), sources, **given)


def renumber(root, number):
    """Give the manifest of the lake another schema number, as another version would have written it."""
    path = manifest_path(open_home(root))
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"kvledger_schema": str(number)})


@pytest.mark.parametrize("number", [1, 0])
def test_what_was_read_is_read_anew_and_gives_the_same_lake(tmp_path, logs, number):
    root = tmp_path / "home"
    first = ingested(root, *logs, form="litellm")
    assert (first.total("loaded"), first.total("duplicates")) == (70, 10)
    before = lake_hash(root)
    renumber(root, number)
    again = rebuilt(root, *logs)
    assert {file.status for file in again.files} == {"complete"}
    assert (again.total("read"), again.total("loaded")) == (80, 70)
    assert lake_hash(root) == before
    assert {file.status for file in ingested(root, *logs, form="litellm").files} == {"unchanged"}


def test_a_lake_of_a_newer_version_is_refused(tmp_path, logs):
    root = tmp_path / "home"
    ingested(root, logs[0], form="litellm")
    renumber(root, 7)
    home = open_home(root)
    for attempt in (
        lambda: ingested(root, logs[1], form="litellm"),
        lambda: rebuilt(root, *logs),
        lambda: build(home, write_fleet(home), load_catalog(home), no_progress),
    ):
        with pytest.raises(
            HomeError, match=r"written by a newer kvledger \(lake schema 7, this one knows 1\); upgrade"
        ):
            attempt()


def test_a_lake_of_an_older_version_is_rebuilt_whole_or_not_at_all(tmp_path, logs):
    root = tmp_path / "home"
    ingested(root, *logs, form="litellm")
    renumber(root, 0)
    before = lake_hash(root)
    with pytest.raises(HomeError, match=r"older kvledger .* run kvledger ingest --rebuild"):
        ingested(root, *logs, form="litellm")
    with pytest.raises(HomeError, match=r"holds 1 files that would not be read again, the first b.jsonl \(litellm\)"):
        rebuilt(root, logs[0])
    assert lake_hash(root) == before


def test_the_command_rebuilds_all_of_the_fleet_file(tmp_path, logs):
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[sources]]\nformat = "litellm"\npath = "*.jsonl"\n')

    def run(*words):
        command = [sys.executable, "-m", "flows.cli", "ingest", *words, "--no-prefect", "--fleet", str(fleet)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = run("--rebuild", "--json")
    assert json.loads(done.stdout)["loaded"] == 70
    bare = run()
    assert (bare.returncode, len(bare.stderr.splitlines())) == (2, 1)
    assert "ingest needs a PATH and its format, such as kvledger ingest logs/ --format auto" in bare.stderr
