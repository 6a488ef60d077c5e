"""How a command runs its stages: as one Prefect flow, or as the very same calls without Prefect.

A command's body is a list of calls, `stages.run("build", build, home, …)`; what a stage splits into parts goes to
`stages.executor`, a pool of processes. Both ways make the same calls in the same order, so they write the same bytes.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from flows import prefect_home
from flows.cluster import cluster_asked
from flows.log import LOGGER
from flows.prefect_home import ServerError
from flows.processes import ended_by_signals, worker_pool
from transforms.errors import BusyError, ConfigError, RunError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from flows.home import Home
    from flows.prefect_home import Server

P = ParamSpec("P")
T = TypeVar("T")

WITHOUT = "this run goes on without Prefect, whose server did not start: %s"
TRANSIENT = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
        errno.EINTR, errno.EIO, errno.ENETDOWN, errno.ENETUNREACH, errno.EPIPE, errno.ESTALE, errno.ETIMEDOUT,
    }
)  # fmt: skip
"""Faults of disks and networks that may be gone a second later; a missing file, a full disk or a refusal is not."""


class Stages(Protocol):
    """What the body of a command makes its calls with."""

    @property
    def executor(self) -> Executor:
        """Runs the parts of a stage (one file, one deployment) in worker processes."""

    def run(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Answer of `function(*args, **kwargs)`, run as the stage `name`."""


@dataclass(frozen=True)
class PlainStages:
    """Stages that are just called."""

    executor: Executor

    def run(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Answer of `function(*args, **kwargs)`, run as the stage `name`."""
        LOGGER.info("%s", name)
        return function(*args, **kwargs)


@dataclass(frozen=True)
class Execution:
    """One way of running bodies: under Prefect's `server`, under a server the user named, or without Prefect."""

    is_plain: bool
    server: Server | None
    workers: int | None

    def run(self, name: str, body: Callable[[Stages], T]) -> T:
        """Answer of `body(stages)`, run as the command `name`."""
        with lost_worker_named():
            return self._run_plainly(body) if self.is_plain else self._run_under_prefect(name, body)

    def _run_plainly(self, body: Callable[[Stages], T]) -> T:
        with worker_pool(self.workers) as pool:
            return body(PlainStages(pool))

    def _run_under_prefect(self, name: str, body: Callable[[Stages], T]) -> T:
        from flows import orchestration  # imports Prefect, while its server starts

        try:
            if self.server:
                prefect_home.await_server(self.server)
            return orchestration.run_flow(name, body, self.workers, self._before_end)
        except ServerError as error:
            if self.server is None:
                raise RunError(
                    f"Prefect's server at {os.environ['PREFECT_API_URL']} cannot be used ({error}); "
                    "start it, unset PREFECT_API_URL, or pass --no-prefect"
                ) from error
            if asked := cluster_asked():
                raise RunError(
                    f"the {asked} cluster cannot be used ({error}); mend it, or unset KVLEDGER_TASK_RUNNER"
                ) from error
            LOGGER.warning(WITHOUT, error)
            return self._run_plainly(body)

    def _before_end(self) -> None:
        if self.server:
            prefect_home.revive_server(self.server)


@contextmanager
def lost_worker_named() -> Iterator[None]:
    """RunError that says what to do where a worker process of the block was ended from outside."""
    try:
        yield
    except BrokenProcessPool as error:
        raise RunError(
            "a worker process was ended from outside, most likely for want of memory; "
            "free some, or run again with KVLEDGER_WORKERS=1"
        ) from error


@contextmanager
def execution(home: Home, *, no_prefect: bool = False, workers: int | None = None) -> Iterator[Execution]:
    """Open the way commands are run on `home`, which the caller holds locked.

    Prefect's server starts here and is waited for in `run`: what is imported in between costs no time. SIGTERM and
    SIGHUP inside the block close all that is open and leave with 128 + signal.
    """
    is_plain = no_prefect or os.environ.get("KVLEDGER_ORCHESTRATOR") == "none"
    with ended_by_signals(), ExitStack() as opened:
        server = None
        if not is_plain:
            try:
                server = opened.enter_context(prefect_home.environment_of(home))
            except ServerError as error:
                LOGGER.warning(WITHOUT, error)
                is_plain = True
        yield Execution(is_plain=is_plain, server=server, workers=workers or workers_asked())


def workers_asked() -> int | None:
    """Number of worker processes that KVLEDGER_WORKERS asks for; None: one a core."""
    asked = os.environ.get("KVLEDGER_WORKERS")
    if asked is None:
        return None
    if not asked.isdecimal() or int(asked) < 1:
        raise ConfigError(f"KVLEDGER_WORKERS={asked}: must be a number of worker processes, 1 or more")
    return int(asked)


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the dozens of frames that Prefect and its event loop put between ours."""
    if trace is None:
        return None
    deeper = own_frames(trace.tb_next)
    room = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
    if room in ("prefect", "concurrent"):
        return deeper
    return TracebackType(deeper, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def is_transient(error: BaseException | None) -> bool:
    """Whether trying again in a moment may help: true for a busy home or store and faults of disks and networks.

    An error of ours that was raised from such a fault is one too.
    """
    while error is not None:
        if isinstance(error, TimeoutError | ConnectionError | BusyError | StoreError):
            return True
        if isinstance(error, OSError):
            return error.errno in TRANSIENT
        error = error.__cause__
    return False
