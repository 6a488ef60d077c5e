"""The whole review through kills, a full disk, a stepped-back clock, a removed lake file, a second review, a read-only
home: nothing lost or doubled, one clear line, and the next run heals or says how. README has the table.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ingesting import counts, ingested, lake, lake_hash
from serving import place_trace

from flows.home import locked, open_home
from transforms.errors import HomeError

KVLEDGER = Path(sys.executable).parent / "kvledger"
KEY = b"one key for all homes: 32 bytes."


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A fleet file and two days of logs."""
    return place_trace(tmp_path_factory.mktemp("fleet"))


def new_home(folder):
    """An empty home named `home` (reports name it) with the key that all have."""
    home = open_home(folder / "home")
    home.tenant_key.write_bytes(KEY)
    home.tenant_key.chmod(0o600)
    return home


def review(home, fleet, *before, **options):
    words = [*before, str(KVLEDGER), "review", "--home", str(home.root), "--fleet", str(fleet), "--no-prefect"]
    environment = os.environ | {"KVLEDGER_WORKERS": "1"}
    return subprocess.Popen(
        words, text=True, stderr=subprocess.PIPE, env=environment, stdout=subprocess.PIPE, **options
    )


def reviewed(home, fleet, *before, **options):
    """(exit code, stderr) of a review that is waited for."""
    with review(home, fleet, *before, **options) as running:
        said = running.communicate()[1]
    return running.returncode, said


def bytes_of(home):
    """Name -> bytes of lake, plans and reports."""
    folders = (home.lake, home.plans, home.reports)
    return {p.relative_to(home.root).as_posix(): p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(fleet, tmp_path_factory):
    """What a review leaves that nobody disturbs, and the seconds it takes."""
    home = new_home(tmp_path_factory.mktemp("undisturbed"))
    started_s = time.monotonic()
    code, said = reviewed(home, fleet)
    assert code == 0, said
    return bytes_of(home), time.monotonic() - started_s


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_killed_at_random_moments_of_the_review(fleet, undisturbed, tmp_path, kills):
    wanted, took_s = undisturbed
    rng = random.Random(kills)
    home = new_home(tmp_path)
    for kill in range(kills):
        with review(home, fleet, start_new_session=True) as running:
            time.sleep(rng.uniform(0.2, 1.0) * took_s)
            os.killpg(running.pid, signal.SIGKILL)
        if kill % 10 == 9:
            shutil.rmtree(home.lake, ignore_errors=True)  # so that later kills meet an ingest too
    code, said = reviewed(home, fleet)
    assert code == 0, said
    assert bytes_of(home) == wanted
    assert not list(home.root.rglob("*.part"))


def too_large():
    """No file over 200 kB from here on, as on a disk that fills up; the error is EFBIG instead of ENOSPC."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


@pytest.mark.soak
def test_a_disk_that_fills_up(fleet, undisturbed, tmp_path):
    home = new_home(tmp_path)
    code, said = reviewed(home, fleet, preexec_fn=too_large)
    assert code == 2, said
    line = said.splitlines()[-1]
    assert line.startswith("kvledger: ")
    assert "Traceback" not in said
    assert reviewed(home, fleet)[0] == 0
    assert bytes_of(home) == undisturbed[0]


def test_a_clock_that_is_stepped_back_loses_and_doubles_nothing(fleet, tmp_path):
    log = tmp_path / "a.jsonl"
    shutil.copy(fleet.parent / "logs" / "0.jsonl", log)
    home = tmp_path / "home"
    assert counts(ingested(home, log, form="mooncake")) == (400, 400, 0, 0)
    before = lake_hash(home)
    for path in [log, *home.rglob("*")]:
        os.utime(path, (0, 0))
    assert counts(ingested(home, log, form="mooncake")) == (0, 0, 0, 0)
    assert lake_hash(home) == before
    with log.open("a") as file:
        file.write('{"timestamp": 99000000, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n')
    os.utime(log, (0, 0))
    assert counts(ingested(home, log, form="mooncake"))[1] == 1
    assert lake(home).height == 401


def test_a_lake_file_that_was_removed_is_missed_and_a_rebuild_brings_it_back(fleet, tmp_path):
    log = fleet.parent / "logs" / "0.jsonl"
    home = tmp_path / "home"
    ingested(home, log, form="mooncake")
    before = lake_hash(home)
    next((home / "lake" / "requests").rglob("*.parquet")).unlink()
    with pytest.raises(HomeError, match=r"holds 0 rows, 400 were loaded.*run kvledger ingest --rebuild"):
        ingested(home, log, form="mooncake")
    words = ["ingest", str(log), "--format", "mooncake", "--rebuild", "--home", str(home), "--no-prefect"]
    subprocess.run([KVLEDGER, *words], check=True, capture_output=True)
    assert lake_hash(home) == before


def test_two_reviews_at_once(fleet, tmp_path):
    home = new_home(tmp_path)
    with locked(home):
        code, said = reviewed(home, fleet)
    assert code == 2
    assert f"is in use by pid {os.getpid()}" in said
    assert not home.lake.exists()


def test_a_read_only_home(fleet, tmp_path):
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=1m none {mounted} && mount -o remount,ro {mounted}"
    if subprocess.run([*words, mount], check=False, capture_output=True).returncode:
        mount = f"chmod 500 {mounted}"  # no namespaces for this user, who is then not root either
    code, said = reviewed(open_home_path(mounted), fleet, *words, f'{mount} && exec "$@"', "sh")
    assert code == 2
    assert "choose another with --home" in said
    assert len(said.splitlines()) == 1


def open_home_path(mounted):
    from flows.home import Home

    return Home(mounted / "home")
