"""Prefect around the stages: one flow run a command, one task run a stage and a part. The only importer of Prefect.

Import it after the environment of flows/prefect_home.py stands. Nothing is cached and no result is written: tasks
hand plain manifests on in memory. Transient faults are tried again; bad input and bugs never are.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.execution import is_transient
from flows.log import LOGGER
from flows.prefect_home import ServerError
from flows.processes import cores, worker_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefect.client.schemas.objects import State, TaskRun
    from prefect.futures import PrefectFuture
    from prefect.tasks import Task

    from flows.execution import Stages

P = ParamSpec("P")
T = TypeVar("T")

RETRY_DELAYS_S = (1.0, 10.0)


def _is_worth_retrying(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, BaseException) and is_transient(state.data)


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS_S),
    retry_delay_seconds=list(RETRY_DELAYS_S),
    retry_condition_fn=_is_worth_retrying,
)
def _call(work: Callable[[], object]) -> object:
    """Answer of `work`: the body of every task."""
    return work()


class TaskExecutor(Executor):
    """Hands each call to `pool`, as a task run of its own that waits for the answer."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Answer of `fn(*args, **kwargs)` once a worker has it."""
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()
        part = _call.with_options(name=_name(fn))
        run = part.submit(lambda: self._pool.submit(fn, *args, **kwargs).result())
        run.add_done_callback(partial(_pass_on, answer))
        return answer


def _pass_on(answer: Future[Any], run: PrefectFuture[Any]) -> None:
    try:
        answer.set_result(run.result())
    except BaseException as error:  # noqa: BLE001 -- it is raised where the answer is asked for
        answer.set_exception(error)


class FlowStages:
    """Stages that are task runs of the running flow."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def run(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Answer of `function(*args, **kwargs)`, run as the stage `name`."""
        LOGGER.info("%s", name)
        return cast("T", _call.with_options(name=name)(partial(function, *args, **kwargs)))


class _Outcome(Generic[T]):
    """What became of a body, kept apart from what Prefect made of it."""

    answers: list[T]
    error: Exception | None = None

    def __init__(self) -> None:
        self.answers = []


def run_flow(name: str, body: Callable[[Stages], T], workers: int | None, before_end: Callable[[], None]) -> T:
    """Answer of `body(stages)`, run as one flow run called `name`; `before_end` is called before its end is recorded.

    What the body raises is raised as it is. ServerError if Prefect's server did not let it begin; a server that is
    lost later costs the run's record, not the run.
    """
    outcome: _Outcome[T] = _Outcome()
    runner: Any = ThreadPoolTaskRunner(2 * (workers or cores()))

    @flow(
        name=f"kvledger {name}",
        task_runner=runner,
        persist_result=False,
        validate_parameters=False,
    )
    def command() -> State[Any]:
        try:
            with worker_pool(workers) as pool:
                outcome.answers.append(body(FlowStages(TaskExecutor(pool))))
        except Exception as error:  # noqa: BLE001 -- raised below; Prefect would write it to disk as a pickle
            outcome.error = error
        before_end()
        return Failed(message=str(outcome.error)) if outcome.error else Completed()

    try:
        with _settings_of_environment():
            command(return_state=True)
    except Exception as trouble:
        if not outcome.answers and outcome.error is None:
            raise ServerError(_in_short(trouble)) from trouble
        LOGGER.warning("Prefect could not record the end of this run: %s", _in_short(trouble))
    if outcome.error is not None:
        raise outcome.error.with_traceback(_own_frames(outcome.error.__traceback__))
    return outcome.answers[0]


def _settings_of_environment() -> AbstractContextManager[Any]:
    """The settings that the environment holds now, should Prefect have been imported under others."""
    wanted = {
        setting: os.environ[setting.name]
        for setting in (PREFECT_API_URL, PREFECT_API_AUTH_STRING, PREFECT_HOME)
        if setting.name in os.environ
    }
    if PREFECT_API_URL.value() == wanted.get(PREFECT_API_URL):
        return nullcontext()
    return temporary_settings(updates=wanted)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the dozens of frames that Prefect and its event loop put between ours."""
    if trace is None:
        return None
    deeper = _own_frames(trace.tb_next)
    room = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
    if room in ("prefect", "concurrent"):
        return deeper
    return TracebackType(deeper, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _name(function: Any) -> str:
    """Name of a part's task: that of the function it calls."""
    return str(getattr(function, "__name__", type(function).__name__))


def _in_short(trouble: Exception) -> str:
    """First line of what went wrong inside Prefect."""
    return f"{type(trouble).__name__}: {str(trouble).strip().partition(chr(10))[0]}"[:200]
