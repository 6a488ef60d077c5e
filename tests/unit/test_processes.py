"""No process outlives its run: pools and tethered processes end well, on signals, by SIGKILL, and by the next run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.processes import (
    end_recorded,
    end_tethered,
    ended_by_signals,
    start_tethered,
    started,
    worker_pool,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

SERVER = ("http.server", "0", "--bind", "127.0.0.1")


def eventually(holds: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def start(folder: Path, *module: str) -> subprocess.Popen[bytes]:
    return start_tethered(
        module or SERVER, environment=os.environ, folder=folder, log=folder / "log", record=folder / "server.json"
    )


# A run of its own: starts a tethered server and a pool at work, says their ids, and waits for its end.
RUN = """
import os, sys, time
from pathlib import Path
from flows.processes import ended_by_signals, start_tethered, end_tethered, worker_pool
from tests.unit.test_processes import SERVER, nap
folder = Path(sys.argv[1])
record = folder / "server.json"
with ended_by_signals():
    server = start_tethered(SERVER, environment=os.environ, folder=folder, log=folder / "log", record=record)
    try:
        with worker_pool(2) as pool:
            busy = [pool.submit(nap, str(folder), 60.0) for _ in range(2)]
            while len(list(folder.glob("*.busy"))) < 2:
                time.sleep(0.02)
            print(server.pid, *(path.stem for path in folder.glob("*.busy")), flush=True)
            busy[0].result()
    finally:
        end_tethered(server, record)
"""


def nap(folder: str, seconds: float) -> int:
    (Path(folder) / f"{os.getpid()}.busy").touch()
    time.sleep(seconds)
    return os.getpid()


@pytest.fixture
def run(tmp_path: Path, root_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A run at work, with the ids of its server and its two workers."""
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=root_dir, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as at_work:
        assert at_work.stdout
        children = [int(word) for word in at_work.stdout.readline().split()]
        assert len(children) == 3, at_work.communicate()[1]
        yield at_work, children
        at_work.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_run_and_its_processes_quietly(run, number: int, code: int) -> None:
    at_work, children = run
    at_work.send_signal(number)
    assert at_work.wait(timeout=20) == code
    assert [started(pid) for pid in children] == [None, None, None]
    assert at_work.stderr.read() == ""


def test_ctrl_c_reaches_the_whole_terminal_and_only_the_run_speaks(run) -> None:
    at_work, children = run
    os.killpg(at_work.pid, signal.SIGINT)
    assert at_work.wait(timeout=20) == -signal.SIGINT
    assert [started(pid) for pid in children] == [None, None, None]
    said = at_work.stderr.read()
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_a_killed_run_leaves_nothing_behind(run) -> None:
    at_work, children = run
    at_work.kill()
    assert eventually(lambda: [started(pid) for pid in children] == [None, None, None])


def test_a_pool_works_and_carries_its_errors(tmp_path: Path) -> None:
    with worker_pool(1) as pool:
        worker = pool.submit(nap, str(tmp_path), 0.0).result()
        failed = pool.submit(nap, str(tmp_path / "absent"), 0.0)
        with pytest.raises(FileNotFoundError):
            failed.result()
    assert worker != os.getpid()
    assert started(worker) is None


def test_a_pool_is_cut_short_when_its_block_raises(tmp_path: Path) -> None:
    def fail_while_busy() -> None:
        with worker_pool(1) as pool:
            at_work.append(pool.submit(nap, str(tmp_path), 60.0))
            assert eventually(lambda: bool(list(tmp_path.glob("*.busy"))))
            raise KeyError

    at_work: list[Future[int]] = []
    before_s = time.monotonic()
    with pytest.raises(KeyError):
        fail_while_busy()
    assert time.monotonic() - before_s < 20
    with pytest.raises(BrokenProcessPool):
        at_work[0].result()


def test_a_tethered_process_is_ended_and_its_record_goes(tmp_path: Path) -> None:
    server = start(tmp_path)
    written = json.loads((tmp_path / "server.json").read_text())
    assert written["pid"] == server.pid
    assert written["started"] == started(server.pid)
    assert os.getpgid(server.pid) == server.pid
    end_tethered(server, tmp_path / "server.json")
    assert started(server.pid) is None
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]


def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    record, log = tmp_path / "server.json", tmp_path / "log"
    server = start_tethered(["deaf"], environment=environment, folder=tmp_path, log=log, record=record)
    assert eventually(lambda: log.read_text() == "deaf\n")
    end_tethered(server, record)
    assert server.returncode == -signal.SIGKILL


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A recorded server whose run is gone, though it still lives (its tether is held by this test)."""
    server = start(tmp_path)
    record = tmp_path / "server.json"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    record.write_text(json.dumps(json.loads(record.read_text()) | {"owner": gone.pid}))
    yield server
    end_tethered(server, record)


def test_the_next_run_ends_a_recorded_orphan(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    assert end_recorded(tmp_path / "server.json") is True
    assert orphan.wait(timeout=10) is not None
    assert not (tmp_path / "server.json").exists()
    assert end_recorded(tmp_path / "server.json") is False


def test_a_reused_process_id_is_left_alone(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    record = tmp_path / "server.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"started": "another boot 42"}))
    assert end_recorded(record) is False
    assert orphan.poll() is None
    assert not record.exists()


def test_a_server_whose_run_still_lives_is_left_alone(tmp_path: Path) -> None:
    server = start(tmp_path)
    assert end_recorded(tmp_path / "server.json") is False
    assert server.poll() is None
    end_tethered(server, tmp_path / "server.json")


@pytest.mark.parametrize("torn", ["", "{", "[1]", '{"pid": "x"}', '{"pid": 1}'])
def test_a_torn_record_is_thrown_away(tmp_path: Path, torn: str) -> None:
    record = tmp_path / "server.json"
    record.write_text(torn)
    assert end_recorded(record) is False
    assert not record.exists()


def test_signals_are_as_before_after_the_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
