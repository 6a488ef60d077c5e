"""Stages under Prefect: the same answers, errors and bytes as without it, nothing of Prefect's on the terminal, no
process and no pickle left behind. Real Prefect throughout; its server starts once for the tests in this process.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from serving import STATES, eventually, place_trace, serving, stored

from flows.cluster import cluster_asked
from flows.execution import Execution, Stages, execution, is_transient
from flows.home import Home, open_home
from flows.prefect_home import LOOPBACK, sealed
from flows.processes import recorded, started
from transforms.errors import ConfigError, InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

KVLEDGER = Path(sys.executable).parent / "kvledger"
ENDED_RUNS = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from flows.execution import execution
from flows.home import locked, open_home
from flows.processes import recorded, started
from tests.integration.test_orchestration import nap_until
home = open_home(Path(sys.argv[1]))
with locked(home), execution(home) as way:
    for number in (15, 2, 0):
        try:
            way.run("nap", lambda stages: stages.run("nap", nap_until, number, home.root, stages.executor))
        except BaseException as error:
            napped = int((home.root / "napping").read_text())
            (home.root / "napping").unlink()
            print(repr(error), started(napped), flush=True)
"""


# ---- a small pipeline of the same shape as the real ones: parts in workers, then one that puts them together


def double(folder: str, number: int) -> tuple[int, int]:
    """Twice the number, and the process that found it; 7 is bad input, 8 a bug, 9 a disk that fails once."""
    if number == 7:
        raise InputError("numbers.txt: 7 is not a number; mend line 1")
    if number == 8:
        raise ZeroDivisionError
    marker = Path(folder) / f"{number}.tries"
    marker.open("a").write("x")
    if number == 9 and len(marker.read_text()) == 1:
        raise OSError(errno.EIO, "the disk is tired")
    if number == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number, os.getpid()


def nap(folder: str) -> None:
    """Work of a minute, whose process id stands in a file."""
    (Path(folder) / "napping.tmp").write_text(str(os.getpid()))
    (Path(folder) / "napping.tmp").rename(Path(folder) / "napping")
    time.sleep(60)


def nap_until(number: int, folder: Path, executor: Executor) -> None:
    """Send this process signal `number` (0: none) while a worker naps, as a user or the system may."""
    asleep = executor.submit(nap, str(folder))
    assert eventually((folder / "napping").exists)
    os.kill(os.getpid(), number)
    asleep.result()


def double_all(folder: Path, numbers: list[int], executor: Executor) -> list[tuple[int, int]]:
    return list(executor.map(double, [str(folder)] * len(numbers), numbers))


def write_sum(folder: Path, doubled: list[tuple[int, int]]) -> int:
    total = sum(value for value, _ in doubled)
    (folder / "sum.txt").write_text(f"{[value for value, _ in doubled]} {total}\n")
    return total


def body(stages: Stages, folder: Path, numbers: list[int]) -> tuple[int, set[int]]:
    doubled = stages.run("double", double_all, folder, numbers, executor=stages.executor)
    return stages.run("sum", write_sum, folder, doubled), {pid for _, pid in doubled}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return open_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def prefect(home: Home) -> Iterator[Execution]:
    """Commands run under Prefect, on a server that starts once."""
    with execution(home, workers=2) as way:
        assert way.server is not None
        yield way


@pytest.fixture(scope="module")
def plain(home: Home) -> Iterator[Execution]:
    with execution(home, no_prefect=True, workers=2) as way:
        yield way


def rows(home: Home, query: str) -> list[tuple[Any, ...]]:
    database = sqlite3.connect(home.prefect / "prefect.db")
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_both_ways_give_the_same_answer_and_bytes(prefect: Execution, plain: Execution, tmp_path: Path) -> None:
    written = []
    for way, name in ((prefect, "prefect"), (plain, "plain")):
        (tmp_path / name).mkdir()
        total, pids = way.run("double", lambda stages, name=name: body(stages, tmp_path / name, [3, 1, 2]))
        assert total == 12
        assert os.getpid() not in pids
        assert [started(pid) for pid in pids] == [None] * len(pids)
        written.append((tmp_path / name / "sum.txt").read_text())
    assert written == ["[6, 2, 4] 12\n"] * 2


def test_one_flow_run_a_command_and_one_task_run_a_stage_and_part(
    prefect: Execution, home: Home, tmp_path: Path
) -> None:
    prefect.run("count", lambda stages: body(stages, tmp_path, [1, 2, 3, 4, 5]))
    runs = "select r.id, r.state_type from flow_run r join flow f on f.id = r.flow_id where f.name = 'kvledger count'"
    ((run, state),) = rows(home, runs)
    assert state == "COMPLETED"
    counted = f"select count(*) from task_run where flow_run_id = '{run}' and state_type = 'COMPLETED'"  # noqa: S608
    assert eventually(lambda: rows(home, counted) == [(7,)])  # the server writes task runs a moment after they end


@pytest.mark.parametrize("way_name", ["prefect", "plain"])
def test_bad_input_arrives_as_it_was_raised_and_is_not_tried_again(
    way_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    way: Execution = request.getfixturevalue(way_name)
    with pytest.raises(InputError, match=r"^numbers\.txt: 7 is not a number; mend line 1$"):
        way.run("bad", lambda stages: body(stages, tmp_path, [1, 7]))
    assert not (tmp_path / "sum.txt").exists()


def test_a_bug_keeps_its_traceback_without_prefects_frames(prefect: Execution, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        prefect.run("bug", lambda stages: body(stages, tmp_path, [8]))
    shown = "".join(traceback.format_exception(caught.value))
    assert "in double_all" in shown
    assert "in double\n" in shown
    assert "site-packages/prefect" not in shown


def test_a_transient_fault_is_tried_again(prefect: Execution, tmp_path: Path) -> None:
    total, _ = prefect.run("tired", lambda stages: body(stages, tmp_path, [9, 1]))
    assert total == 20
    assert (tmp_path / "9.tries").read_text() == "xx"
    assert (tmp_path / "1.tries").read_text() == "x"


def test_only_faults_of_disks_and_networks_are_transient() -> None:
    transient = [OSError(errno.EIO, ""), OSError(errno.ESTALE, ""), ConnectionResetError(), TimeoutError()]
    lasting = [FileNotFoundError(errno.ENOENT, ""), PermissionError(errno.EACCES, ""), OSError(errno.ENOSPC, "")]
    assert [is_transient(error) for error in transient] == [True] * 4
    assert [is_transient(error) for error in [*lasting, InputError(""), ValueError()]] == [False] * 5


@pytest.mark.parametrize("way_name", ["prefect", "plain"])
def test_a_worker_ended_from_outside_is_one_line(way_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    way: Execution = request.getfixturevalue(way_name)
    with pytest.raises(RunError, match="memory"):
        way.run("killed", lambda stages: body(stages, tmp_path, [10]))


def test_a_server_that_is_lost_is_started_again(prefect: Execution, home: Home, tmp_path: Path) -> None:
    assert prefect.server is not None
    lost = prefect.server.process.pid

    def lose_server(stages: Stages) -> int:
        os.kill(lost, signal.SIGKILL)
        return body(stages, tmp_path, [1])[0]

    assert prefect.run("lost", lose_server) == 2
    assert prefect.server.process.pid != lost
    assert json.loads((home.prefect / "server.json").read_text())["pid"] == prefect.server.process.pid
    states = "select r.state_type from flow_run r join flow f on f.id = r.flow_id where f.name = 'kvledger lost'"
    assert rows(home, states) == [("COMPLETED",)]


def test_nothing_is_pickled_to_disk(prefect: Execution, home: Home, tmp_path: Path) -> None:
    prefect.run("kept", lambda stages: body(stages, tmp_path, [1]))
    with pytest.raises(InputError):
        prefect.run("kept", lambda stages: body(stages, tmp_path, [7]))
    names = {path.name for path in home.prefect.rglob("*") if path.is_file()}
    assert names <= {"prefect.db", "prefect.db-shm", "prefect.db-wal", "memo_store.toml", "server.json"}


def test_a_named_server_is_used_and_one_that_is_down_is_one_line(
    prefect: Execution, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prefect.server is not None
    other = open_home(tmp_path / "other")
    with execution(other) as way:  # inside `prefect`, PREFECT_API_URL names its server
        assert way.server is None
        assert way.run("named", lambda stages: body(stages, tmp_path, [1]))[0] == 2
    assert rows(home, "select name from flow where name = 'kvledger named'")
    assert not list(other.root.rglob("prefect.db"))
    with socket.socket() as silent:  # bound, not listening: refuses
        silent.bind((LOOPBACK, 0))
        monkeypatch.setenv("PREFECT_API_URL", f"http://{LOOPBACK}:{silent.getsockname()[1]}/api")
        with execution(other) as way, pytest.raises(RunError, match="--no-prefect"):
            way.run("down", lambda stages: body(stages, tmp_path, [1]))


def test_the_environment_is_sealed_against_the_users_prefect(tmp_path: Path) -> None:
    theirs = {
        "PREFECT_API_KEY": "secret",
        "PREFECT_HOME": "/somewhere",
        "PREFECT_PROFILE": "cloud",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        "NO_PROXY": "intranet",
        "PATH": "/bin",
    }
    made = sealed(Home(tmp_path), theirs, 4242)
    assert made["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert made["PREFECT_API_URL"] == "http://127.0.0.1:4242/api"
    assert made["DO_NOT_TRACK"] == "1"
    assert made["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert made["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] == "300"
    assert made["NO_PROXY"] == made["no_proxy"] == "intranet,127.0.0.1"
    assert made["PATH"] == "/bin"
    assert {"PREFECT_API_KEY", "PREFECT_PROFILE"} & made.keys() == set()
    assert sealed(Home(tmp_path), {}, 1)["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] == "120"
    assert made["PREFECT_API_AUTH_STRING"] != sealed(Home(tmp_path), theirs, 4242)["PREFECT_API_AUTH_STRING"]


def test_the_number_of_workers_is_checked(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLEDGER_ORCHESTRATOR", "none")
    monkeypatch.setenv("KVLEDGER_WORKERS", "3")
    with execution(home) as way:
        assert (way.is_plain, way.workers) == (True, 3)
    monkeypatch.setenv("KVLEDGER_WORKERS", "many")
    with pytest.raises(ConfigError, match="KVLEDGER_WORKERS=many"), execution(home):
        pass


# ---- whole runs, as processes of their own


@pytest.fixture(scope="module")
def warm_home(prefect: Execution, home: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose Prefect database is migrated, as on every run but the first."""
    prefect.run("warm", lambda stages: stages.run("nothing", int))
    warm = open_home(tmp_path_factory.mktemp("warm"))
    warm.prefect.mkdir()
    source, copy = sqlite3.connect(home.prefect / "prefect.db"), sqlite3.connect(warm.prefect / "prefect.db")
    with source, copy:
        source.backup(copy)
    source.close()
    copy.close()
    return warm


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a proxy, an empty user directory, a compiled kernel and no Prefect settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    for name in ("no_proxy", "NO_PROXY"):
        kept.pop(name, None)
    (tmp_path / "user").mkdir()
    proxy = "http://192.0.2.1:3128"  # TEST-NET-1: nobody answers
    return {**kept, "HOME": str(tmp_path / "user"), "HTTP_PROXY": proxy, "http_proxy": proxy, "ALL_PROXY": proxy}


def test_an_ended_run_leaves_no_process(warm_home: Home, outside: dict[str, str], root_dir: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ENDED_RUNS, str(warm_home.root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=root_dir, stdout=pipe, stderr=pipe, text=True, env=outside) as run:
        assert run.stdout
        assert run.stderr
        said = [run.stdout.readline(), run.stdout.readline()]
        assert said == ["SystemExit(143) None\n", "KeyboardInterrupt() None\n"], run.stderr.read()
        assert eventually((warm_home.root / "napping").exists)
        processes = [json.loads((warm_home.prefect / "server.json").read_text())["pid"]]
        processes.append(int((warm_home.root / "napping").read_text()))
        assert None not in [started(pid) for pid in processes]
        run.kill()
        assert eventually(lambda: [started(pid) for pid in processes] == [None, None])
        assert run.communicate() == ("", "")


def test_a_review_under_prefect_is_the_plain_one_quiet_and_without_a_network(
    warm_home: Home, outside: dict[str, str], tmp_path: Path
) -> None:
    fleet = place_trace(tmp_path)
    plain = open_home(tmp_path / "plain" / warm_home.root.name)  # the report names the home in its commands
    (warm_home.root / "tenant.key").write_bytes(b"one key for both homes, 32 bytes")
    shutil.copy(warm_home.root / "tenant.key", plain.root)
    said = [
        run_review(warm_home, fleet, outside, *without_network()),
        run_review(plain, fleet, outside | {"KVLEDGER_ORCHESTRATOR": "none"}),
    ]
    assert said[0] == said[1]
    assert "prefect" not in said[0][1].lower()
    assert not (warm_home.prefect / "server.json").exists()
    assert list((tmp_path / "user").rglob("*")) == []
    ended = (
        "select f.name, r.state_type from flow_run r join flow f on f.id = r.flow_id order by r.created desc limit 1"
    )
    assert rows(warm_home, ended) == [("kvledger review", "COMPLETED")]
    assert written(warm_home) == written(plain)
    assert tables(warm_home) == tables(plain)


def ingested_on(runner: str | None, home: Home, fleet: Path, environment: dict[str, str]) -> dict[str, bytes]:
    """Name -> bytes of the lake after an ingest with two workers of `runner` (None: without Prefect)."""
    (home.root / "tenant.key").write_bytes(b"one key for both homes, 32 bytes")
    words = [] if runner else ["--no-prefect"]
    command = [KVLEDGER, "ingest", "--rebuild", "--home", str(home.root), "--fleet", str(fleet), *words]
    asked = {"KVLEDGER_WORKERS": "2", **({"KVLEDGER_TASK_RUNNER": runner} if runner else {})}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment | asked)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stderr == ""
    return {path.relative_to(home.root).as_posix(): path.read_bytes() for path in home.lake.rglob("*.parquet")}


@pytest.mark.cluster
@pytest.mark.parametrize("runner", ["dask", pytest.param("ray", marks=pytest.mark.soak)])
def test_a_cluster_gives_the_bytes_of_one_machine(
    runner: str, warm_home: Home, outside: dict[str, str], tmp_path: Path
) -> None:
    fleet = place_trace(tmp_path)
    far = open_home(tmp_path / "far")
    far.prefect.mkdir()
    shutil.copy(warm_home.prefect / "prefect.db", far.prefect)
    direct = {name: value for name, value in outside.items() if "proxy" not in name.lower()}
    lake = ingested_on(runner, far, fleet, direct)
    assert len(lake) >= 3
    assert lake == ingested_on(None, open_home(tmp_path / "near"), fleet, direct)
    tries = "select max(run_count) from task_run where name not like 'parse_part-%'"
    parts = "select count(*), sum(state_type = 'COMPLETED') >= 2 from task_run where name like 'parse_part-%'"
    assert rows(far, parts) == [(2 * rows(far, tries)[0][0], 1)]  # two parts each time the stage was tried
    assert not [path for path in far.root.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_a_cluster_that_nobody_knows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLEDGER_TASK_RUNNER", "spark")
    with pytest.raises(ConfigError, match="must be dask or ray"):
        cluster_asked()


@pytest.mark.soak
def test_a_run_of_the_schedule_leaves_its_decision_and_no_process(warm_home: Home, tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with serving(home, place_trace(tmp_path), warm_home.prefect / "prefect.db", "--catch-up") as process:
        assert eventually(lambda: stored(home, STATES) != [], within_s=180), (home.root / "said.txt").read_text()
        assert stored(home, STATES) == [("review", "COMPLETED")]
        deployments = stored(home, "select name, concurrency_limit from deployment order by name")
        assert [name for name, _ in deployments] == ["daily-ingest", "weekly-review"]
        second = subprocess.run(process.args, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert f"in use by pid {process.pid} (kvledger serve)" in second.stderr
    artifacts = dict(stored(home, "select key, data from artifact where key is not null"))
    assert "report: " in json.loads(artifacts["kvledger-review"])
    (row,) = json.loads(json.loads(artifacts["kvledger-decision"]))
    assert (row["week"], row["deployment"]) == ("2026-W47", "llama")
    assert row["gpus_needed"] >= 1
    assert (home.reports / "week=2026-W47" / "review.html").exists()
    assert recorded(home.schedule / "server.json") == "gone"
    assert not list(home.prefect.rglob("storage"))


@pytest.mark.soak
def test_a_prefect_database_that_cannot_be_read_is_set_aside(outside: dict[str, str], tmp_path: Path) -> None:
    broken = open_home(tmp_path / "broken")
    broken.prefect.mkdir()
    (broken.prefect / "prefect.db").write_bytes(b"no database" * 1000)
    _, said = run_review(broken, place_trace(tmp_path), outside)
    assert "without Prefect" not in said
    assert (broken.prefect / "unreadable-prefect.db").read_bytes() == b"no database" * 1000
    assert rows(broken, "select state_type from flow_run") == [("COMPLETED",)]


def run_review(home: Home, fleet: Path, environment: dict[str, str], *before: str) -> tuple[dict[str, Any], str]:
    """The JSON object of a review without the paths in it, and what it said on stderr."""
    command = [*before, str(KVLEDGER), "review", "--home", str(home.root), "--fleet", str(fleet), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.replace(str(home.root), "HOME")), ran.stderr.replace(str(home.root), "HOME")


def written(home: Home) -> dict[str, bytes]:
    """All that a review writes, but for the warehouse (compared row by row) and the logs."""
    folders = (home.lake, home.plans, home.reports)
    found = {p.relative_to(home.root).as_posix(): p for folder in folders for p in folder.rglob("*") if p.is_file()}
    assert len(found) > 10
    return {name: path.read_bytes() for name, path in found.items()}


def tables(home: Home) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of every table of the warehouse."""
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        names = [row[0] for row in connection.sql("select table_name from duckdb_tables() order by all").fetchall()]
        assert len(names) > 10
        return {name: connection.sql(f"select * from {name} order by all").fetchall() for name in names}  # noqa: S608


def without_network() -> list[str]:
    """Words before a command that take all but the loopback device from it, where this user may do that."""
    words = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    permitted = subprocess.run([*words, "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    return words if permitted and permitted.returncode == 0 else []
