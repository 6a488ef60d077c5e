"""Ingest killed at any moment, cut short in its commit, or started twice at once: the lake ends as if undisturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ingesting import ingested, lake, lake_hash

from flows.home import open_home
from flows.lake import settle

COMMAND = [sys.executable, "-m", "flows.cli", "ingest"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Two older files, in the lake already, and newer ones of the same dates; ids come again from file to file."""
    folder = tmp_path_factory.mktemp("logs")
    rng = random.Random(7)
    for name, rows in (("old-1", 400), ("old-2", 300), ("new-1", 9_000), ("new-2", 6_000), ("new-3", 3_000)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for n in range(rows):
                at_s = 1_772_359_200 + rng.randrange(3 * 86_400)
                row = {"id": f"{name[:3]}{n}", "t": at_s, "p": rng.randrange(9000), "o": rng.randrange(900), "m": "m"}
                file.write(json.dumps(row) + "\n")
    mapping = 'request_id = "id"\narrived_at = "t"\nprompt_tokens = "p"\noutput_tokens = "o"\nmodel = "m"\n'
    (folder / "map.toml").write_text(mapping)
    return folder


@pytest.fixture(scope="module")
def before(logs, tmp_path_factory):
    """A home that has the older files."""
    home = tmp_path_factory.mktemp("before") / "home"
    run(logs, home, "old-1.jsonl", "old-2.jsonl")
    return home


@pytest.fixture(scope="module")
def undisturbed(logs, before, tmp_path_factory):
    """Bytes of the lake after an undisturbed run, and how long that took."""
    home = tmp_path_factory.mktemp("undisturbed") / "home"
    shutil.copytree(before, home)
    started_s = time.monotonic()
    run(logs, home, *NEW)
    return lake_hash(home), time.monotonic() - started_s


NEW = ("new-1.jsonl", "new-2.jsonl", "new-3.jsonl")


def command(logs, home, *names, wait_s=0):
    paths = [str(logs / name) for name in names]
    options = ["--format", "mapped", "--map", str(logs / "map.toml"), "--home", str(home), "--wait", str(wait_s)]
    return [*COMMAND, *paths, *options, "--no-prefect", "--json"]


def run(logs, home, *names):
    return subprocess.run(command(logs, home, *names), capture_output=True, check=True, text=True)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_random_moments(logs, before, undisturbed, tmp_path, kills):
    wanted, took_s = undisturbed
    rng = random.Random(kills)
    for kill in range(kills):
        home = tmp_path / f"home{kill}"
        shutil.copytree(before, home)
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command(logs, home, *NEW), start_new_session=True, **silent)
        time.sleep(rng.uniform(0.3, 1.0) * took_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        run(logs, home, *NEW)
        assert lake_hash(home) == wanted
        assert not (home / "lake" / "journal.json").exists()


def test_cut_short_after_every_step_of_the_commit(logs, before, undisturbed, tmp_path, monkeypatch):
    """The commit stands from the rename of its journal on; whatever happens after that is done again."""
    done = Path.replace
    for steps in range(12):
        home = tmp_path / f"home{steps}"
        shutil.copytree(before, home)
        left = [steps]

        def replace(self, target, left=left):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return done(self, target)

        old = lake_hash(home)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            try:
                ingest_here(logs, home)
            except KeyboardInterrupt:
                pass
            else:
                assert steps > 3
                break
        is_committed = (home / "lake" / "journal.json").exists()
        assert is_committed == (steps > 0)
        settle(open_home(home))
        assert lake_hash(home) == (undisturbed[0] if is_committed else old)
        ingest_here(logs, home)
        assert lake_hash(home) == undisturbed[0]
    else:
        pytest.fail("the commit never ended")


def ingest_here(logs, home):
    mapping = logs / "map.toml"
    ingested(home, *(logs / name for name in NEW), form="mapped", mapping=mapping)


def test_two_at_once(logs, before, undisturbed, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(before, home)
    first = subprocess.Popen(command(logs, home, *NEW), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (home / ".lock").read_text().strip():
        time.sleep(0.01)
    refused = subprocess.run(command(logs, home, *NEW), capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert f"in use by pid {first.pid}" in refused.stderr
    waiting = subprocess.run(command(logs, home, *NEW, wait_s=120), capture_output=True, text=True, check=True)
    assert json.loads(waiting.stdout)["loaded"] == 0
    assert json.loads(first.communicate()[0])["loaded"] == 9_000
    assert lake_hash(home) == undisturbed[0]
    assert lake(home).height == 9_400


def test_a_full_disk_leaves_the_lake_as_it_was(logs, before, tmp_path, monkeypatch):
    from flows.lake_files import RequestsWriter
    from transforms.errors import HomeError

    home = tmp_path / "home"
    shutil.copytree(before, home)
    old = lake_hash(home)

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RequestsWriter, "close", full)
    with pytest.raises(HomeError, match="the disk is full; make room and run again"):
        ingest_here(logs, home)
    assert lake_hash(home) == old
    assert not (home / "staging" / "runs").exists()
