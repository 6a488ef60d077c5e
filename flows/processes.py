"""Processes that end with us: the pool that parses logs, and a server that is ended now or by the next run.

Three lines of defence. A process we start is ended and waited for when its work is done, on Ctrl-C and on SIGTERM.
If we are killed, the pipe it holds of ours closes and it ends itself. If even that fails, its record (process id and
start time, so that a reused id is never hit) lets the next run end it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from flows import tether
from flows.records import read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from types import FrameType

END_GRACE_S = 3.0
"""How long a process may take to stop after SIGTERM before SIGKILL."""

POLL_S = 0.02
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STATE_FIELD, START_FIELD = 0, 19
"""Positions in /proc/PID/stat after the command's name: state, and start in clock ticks since boot (proc(5))."""

P = ParamSpec("P")
T = TypeVar("T")

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit(128 + signal), so that everything opened inside is closed first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


class WorkerPool(ProcessPoolExecutor):
    """Worker processes that leave Ctrl-C to the process that owns them."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand one call to a worker; a worker that starts for it inherits that Ctrl-C is held back."""
        held_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held_before)


@contextmanager
def worker_pool(workers: int | None = None) -> Iterator[WorkerPool]:
    """Lend a pool of `workers` processes (default: one a core), which start when first needed.

    They finish what they have when the block ends well, and end at once when it raises or when this process dies.
    """
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = WorkerPool(workers or cores(), context, initializer=_hold_lifeline, initargs=(theirs,))
    try:
        yield pool
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        ours.close()
        theirs.close()


def cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hold_lifeline(lifeline: Connection) -> None:
    """End this worker as soon as its lifeline is cut."""
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()


def _end_with(lifeline: Connection) -> NoReturn:
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def start_tethered(
    module: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path, record: Path
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE ARGUMENT…` in `folder` and a session of its own; its output goes to `log`."""
    command = [sys.executable, "-P", str(Path(tether.__file__)), *module]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 -- our own interpreter and file
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        _record(record, process.pid)
    except OSError:
        end_tethered(process, record)
        raise
    return process


def end_tethered(process: subprocess.Popen[bytes], record: Path) -> None:
    """End the process group of `process`, wait until it is gone, and take its record away."""
    _end_group(process.pid, lambda: process.poll() is None)
    process.wait()
    if process.stdin:
        process.stdin.close()
    if read_record(record).get("pid") == process.pid:
        record.unlink(missing_ok=True)


def end_recorded(record: Path) -> bool:
    """True if a process was left behind by a run that is gone, and has now been ended.

    The recorded start time must be that of the living process: an id that the system has given away is left alone,
    and so is a process whose own run still lives.
    """
    written = read_record(record)
    pid, owner = written.get("pid"), written.get("owner")
    if not isinstance(pid, int) or not isinstance(owner, int):
        record.unlink(missing_ok=True)
        return False
    if started(owner) is not None and started(owner) == written.get("owner_started"):
        return False
    is_ours = started(pid) is not None and started(pid) == written.get("started")
    if is_ours:
        _end_group(pid, lambda: started(pid) == written["started"])
    record.unlink(missing_ok=True)
    return is_ours


def recorded(record: Path) -> str:
    """State of the recorded process: "gone", "running", or "orphaned" where it outlives the run that started it."""
    written = read_record(record)
    pid, owner = written.get("pid"), written.get("owner")
    if not isinstance(pid, int) or started(pid) is None or started(pid) != written.get("started"):
        return "gone"
    is_owned = isinstance(owner, int) and started(owner) is not None and started(owner) == written.get("owner_started")
    return "running" if is_owned else "orphaned"


def started(pid: int | None = None) -> str | None:
    """When process `pid` (default: this one) started, as a text equal for one process only; None if it is gone."""
    stat = Path(f"/proc/{pid or os.getpid()}/stat")
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-o", "lstart=", "-p", str(pid or os.getpid())]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None  # noqa: S603
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    if fields[STATE_FIELD] in "ZX":
        return None
    return f"{BOOT_ID.read_text(encoding='utf-8').strip()} {fields[START_FIELD]}"


def _end_group(group: int, is_alive: Callable[[], bool]) -> None:
    """Ask the process group to stop, then kill it; returns when `is_alive` no longer holds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
        deadline_s = time.monotonic() + END_GRACE_S
        while is_alive():
            if time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S)
        else:
            return


def _record(record: Path, pid: int) -> None:
    """Record process `pid` and this process, its owner."""
    told = {"pid": pid, "started": started(pid), "owner": os.getpid(), "owner_started": started()}
    write_record(record, told)
