"""More than one machine: parts of stages as task runs on Dask or Ray, through Prefect's own task runners.

`KVLEDGER_TASK_RUNNER=dask` (or `ray`; extras `kvledger[dask]`, `kvledger[ray]`) takes a cluster of this machine, with
`KVLEDGER_CLUSTER` the one at that address. Calls and answers are plain and small (where a part lies, where its rows
were written), so HOME and logs must lie where every machine finds them under one path. The bytes are those of one.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

WAITING_THREADS = 64
"""Parts of a stage that are waited for at once."""


class ClusterExecutor(Executor):
    """Hands each call to the flow's task runner and waits for its answer in a thread."""

    def __init__(self, submit: Callable[[Callable[[], object], str], Callable[[], object]], waiting: Executor) -> None:
        self._submit = submit
        self._waiting = waiting

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Answer of `fn(*args, **kwargs)` once the cluster has it."""
        answer = self._submit(partial(fn, *args, **kwargs), call_name(fn))
        return cast("Future[T]", self._waiting.submit(answer))


@contextmanager
def cluster_executor(
    submit: Callable[[Callable[[], object], str], Callable[[], object]],
) -> Iterator[ClusterExecutor]:
    """Lend an executor over `submit(work, name)`, which starts a task run and gives what waits for its answer."""
    with ThreadPoolExecutor(WAITING_THREADS) as waiting:
        yield ClusterExecutor(submit, waiting)


def cluster_asked() -> str | None:
    """The word dask or ray where KVLEDGER_TASK_RUNNER asks for a cluster; None: processes of this machine."""
    asked = os.environ.get("KVLEDGER_TASK_RUNNER") or None
    if asked not in (None, "dask", "ray"):
        raise ConfigError(f"KVLEDGER_TASK_RUNNER={asked}: must be dask or ray")
    return asked


def cluster_task_runner(workers: int) -> Any:
    """Prefect's task runner of the cluster that was asked for; one of our own has `workers` processes of one thread."""
    asked, address = cluster_asked(), os.environ.get("KVLEDGER_CLUSTER")
    try:
        return _dask(workers, address) if asked == "dask" else _ray(workers, address)
    except ImportError as error:
        raise ConfigError(f"KVLEDGER_TASK_RUNNER={asked}: {error}; pip install 'kvledger[{asked}]'") from error


def _dask(workers: int, address: str | None) -> Any:
    from prefect_dask.task_runners import DaskTaskRunner

    own = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "dashboard_address": None,
        "silence_logs": logging.ERROR,
    }
    return DaskTaskRunner(address=address) if address else DaskTaskRunner(cluster_kwargs=own)


def _ray(workers: int, address: str | None) -> Any:
    from prefect_ray.task_runners import RayTaskRunner

    own = {"num_cpus": workers, "include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    return RayTaskRunner(address=address) if address else RayTaskRunner(init_kwargs=own)


def call_name(function: Any) -> str:
    """Name of a part's task: that of the function it calls."""
    return str(getattr(function, "__name__", type(function).__name__))
