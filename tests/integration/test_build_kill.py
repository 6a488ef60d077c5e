"""Builds that are killed or run out of disk: the published warehouse stays as it was, and the next build is whole."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from lakes import no_progress, random_rows, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.fleet import load_fleet
from flows.home import Home
from flows.warehouse import default_limits, drafting, published
from transforms.errors import ConfigError, DataError, HomeError, RunError

BUILD = """
import resource, sys
from pathlib import Path
import flows.build as b
from flows.catalog import load_catalog
from flows.home import Home
from flows.facts_id import facts_due
from lakes import no_progress, write_fleet
how, home = sys.argv[1], Home(Path(sys.argv[2]))
audits = b.run_audits
def wait(*given):
    print("ready", flush=True)
    sys.stdin.read()
    audits(*given)
if how == "audits":
    b.run_audits = wait
if how == "anew":
    b.facts_due = lambda *given: facts_due(*given, is_anew=True)
if how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
fleet = write_fleet(home)
try:
    b.build(home, fleet, load_catalog(home), no_progress)
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(2)
"""


def command(home: Home, how: str = "changed") -> list[str]:
    return [sys.executable, "-c", BUILD, how, str(home.root)]


def tables(home: Home) -> dict[str, list[str]]:
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        names = [row[0] for row in connection.execute("select table_name from duckdb_tables()").fetchall()]
        return {name: sorted(map(repr, connection.execute(f"from {name}").fetchall())) for name in names}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Home]:
    """A home whose lake has two days more than its warehouse, and the same one brought up to date."""
    rows = random_rows(seed=4, sessions=300, days=9)
    old = [row for row in rows if row["arrived_at"].day not in (18, 23)]
    place = write_lake(tmp_path_factory.mktemp("home"), old)
    build(place, write_fleet(place), load_catalog(place), no_progress)
    shutil.rmtree(place.lake)
    write_lake(place.root, rows)
    done = Home(tmp_path_factory.mktemp("done") / "home")
    shutil.copytree(place.root, done.root)
    build(done, write_fleet(done), load_catalog(done), no_progress)
    return place, done


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_a_build_killed_at_any_moment_leaves_what_was_published(
    homes: tuple[Home, Home], tmp_path: Path, root_dir: Path, kills: int
) -> None:
    place = Home(tmp_path / "home")
    shutil.copytree(homes[0].root, place.root)
    before = place.warehouse.read_bytes()
    draw, longest_s = random.Random(kills), 1.0
    for kill in range(kills):
        started_s = time.monotonic()
        with subprocess.Popen(command(place, ("changed", "anew")[kill % 2]), cwd=root_dir / "tests") as run:
            drafts = place.warehouse.parent
            while not list(drafts.glob("building-*.duckdb")) and run.poll() is None:
                time.sleep(0.005)
            begun_s = time.monotonic()
            time.sleep(draw.random() * longest_s)
            run.send_signal(signal.SIGKILL)
        longest_s = max(longest_s, begun_s - started_s)
        if place.warehouse.read_bytes() != before:  # killed after its rename: it is the new one, whole
            assert tables(place) == tables(homes[1])
            place.warehouse.write_bytes(before)
    build(place, write_fleet(place), load_catalog(place), no_progress)
    assert tables(place) == tables(homes[1])
    assert {path.name for path in place.warehouse.parent.iterdir()} == {"kvledger.duckdb", "versions"}


def test_a_build_killed_before_its_audits_leaves_a_draft_that_the_next_one_sweeps(
    homes: tuple[Home, Home], tmp_path: Path, root_dir: Path
) -> None:
    place = Home(tmp_path / "home")
    shutil.copytree(homes[0].root, place.root)
    before = place.warehouse.read_bytes()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command(place, "audits"), cwd=root_dir / "tests", **pipes) as run:  # type: ignore[call-overload]
        assert run.stdout.readline() == b"ready\n"
        run.send_signal(signal.SIGKILL)
    assert place.warehouse.read_bytes() == before
    assert list(place.warehouse.parent.glob("building-*.duckdb"))
    ran = subprocess.run(command(place, "full"), cwd=root_dir / "tests", capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout.startswith("HomeError ")
    assert "free some disk" in ran.stdout
    assert ran.stdout.count("\n") == 1
    assert place.warehouse.read_bytes() == before
    assert [path.name for path in place.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_want_of_memory_is_told_apart_from_want_of_disk(
    homes: tuple[Home, Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Home(tmp_path / "home")
    shutil.copytree(homes[0].root, place.root)
    before = place.warehouse.read_bytes()
    fleet, catalog = load_fleet(None, place), load_catalog(place)
    monkeypatch.setenv("KVLEDGER_MEMORY_GIB", "0.004")
    with pytest.raises(RunError, match=r"in 0.004 GiB of memory \(.*; allow more with KVLEDGER_MEMORY_GIB, the old"):
        build(place, fleet, catalog, no_progress)
    no_room = replace(default_limits(place.root), spill_bytes=0)
    with (
        pytest.raises(HomeError, match=r"could not be written .*; free some disk, the old one stands"),
        drafting(place, limits=no_room) as draft,
    ):
        draft.connection.execute("create table spilled as select hash(range) as a from range(3000000) order by a")
    with pytest.raises(HomeError, match=r"denied.*; mend its permissions, the old"), drafting(place) as draft:
        draft.connection.execute("attach '/sys/kvledger.duckdb' as refused")
    for asked in ("plenty", "1e30"):
        monkeypatch.setenv("KVLEDGER_MEMORY_GIB", asked)
        with pytest.raises(ConfigError, match=rf"GIB={asked}: must be a size in GiB, such as 6 or 0\.5"):
            build(place, fleet, catalog, no_progress)
    assert place.warehouse.read_bytes() == before
    assert [path.name for path in place.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_a_damaged_block_or_folder_of_the_warehouse_is_named(homes: tuple[Home, Home], tmp_path: Path) -> None:
    place = Home(tmp_path / "home")
    shutil.copytree(homes[0].root, place.root)
    blocks = "select distinct block_id from pragma_storage_info('{}') where block_id >= 0"
    with duckdb.connect(str(place.warehouse), read_only=True) as connection:
        of_facts, of_others = (
            {row[0] for row in connection.execute(blocks.format(name)).fetchall()}
            for name in ("fct_attempts", "dim_lake_days")
        )
    with place.warehouse.open("r+b") as file:
        file.seek(3 * 4096 + min(of_facts - of_others) * 2**18 + 1000)  # after three headers, blocks of 256 KiB
        file.write(b"damaged")
    damaged = place.warehouse.read_bytes()
    says = re.escape(f"{place.warehouse}: is damaged and cannot be read (Corrupt database file")
    with pytest.raises(DataError, match=says + r".*\); remove it and run kvledger build"):
        build(place, write_fleet(place), load_catalog(place), no_progress)
    with pytest.raises(DataError, match=says), published(place) as connection:
        connection.execute("select * from fct_attempts").fetchall()
    assert place.warehouse.read_bytes() == damaged
    shutil.rmtree(place.warehouse.parent)
    place.warehouse.parent.touch()
    with pytest.raises(HomeError, match=r"warehouse cannot be written \(File exists\)"), drafting(place):
        pass
