"""Prefect around the stages: one flow run a command, one task run a stage and a part. The only importer of Prefect.

Commands use `run_flow`; `kvledger serve` and workers of a process pool start the flow `scheduled`.

Import it after the environment of flows/prefect_home.py stands. Nothing is cached and no result is written: tasks
hand plain manifests on in memory. Transient faults are tried again; bad input and bugs never are.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.deployments import run_deployment
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.runtime import flow_run
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.types.entrypoint import EntrypointType

from flows.cluster import call_name, cluster_asked, cluster_executor, cluster_task_runner
from flows.execution import is_transient, lost_worker_named, own_frames, workers_asked
from flows.log import LOGGER, start_logging
from flows.prefect_home import ServerError
from flows.printing import print_note
from flows.processes import cores, worker_pool
from flows.run_notes import done_markdown, failed_markdown
from transforms.errors import ConfigError, KvledgerError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prefect.client.schemas.objects import State, TaskRun
    from prefect.futures import PrefectFuture
    from prefect.tasks import Task

    from flows.execution import Stages
    from flows.schedule import Planned

P = ParamSpec("P")
T = TypeVar("T")

RETRY_DELAYS_S = (1.0, 10.0)
PATIENT_RETRY_DELAYS_S = (5.0, 30.0, 120.0, 600.0)
"""Of stages that nobody waits for: a run of the schedule."""


def _is_worth_retrying(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, BaseException) and is_transient(state.data)


_TRIED_AGAIN: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "persist_result": False,
    "retries": len(RETRY_DELAYS_S),
    "retry_delay_seconds": list(RETRY_DELAYS_S),
    "retry_condition_fn": _is_worth_retrying,
}


@task(**_TRIED_AGAIN)
def _call(work: Callable[[], object]) -> object:
    """Answer of `work`: the body of the task of every part."""
    return work()


_WORK: list[Callable[[], Any]] = []
"""What the flow run that is under way does, and in it the stage: apart from flow and task, which a cluster copies."""


def _run_work() -> Any:
    """Answer of what is under way: the body of every flow, and of the task of every stage."""
    return _WORK[-1]()


_stage = task(**_TRIED_AGAIN)(_run_work)


class TaskExecutor(Executor):
    """Hands each call to `pool`, as a task run of its own that waits for the answer."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Answer of `fn(*args, **kwargs)` once a worker has it."""
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()
        part = _call.with_options(name=call_name(fn))
        run = part.submit(lambda: self._pool.submit(fn, *args, **kwargs).result())
        run.add_done_callback(partial(_pass_on, answer))
        return answer


def _pass_on(answer: Future[Any], run: PrefectFuture[Any]) -> None:
    try:
        answer.set_result(run.result())
    except BaseException as error:  # noqa: BLE001 -- it is raised where the answer is asked for
        answer.set_exception(error)


@contextmanager
def _executor(workers: int | None) -> Iterator[Executor]:
    """What the parts of stages run on: a pool of processes here, or the cluster that KVLEDGER_TASK_RUNNER names."""
    if cluster_asked():
        with cluster_executor(lambda work, name: _call.with_options(name=name).submit(work).result) as executor:
            yield executor
    else:
        with worker_pool(workers) as pool:
            yield TaskExecutor(pool)


def _task_runner(workers: int | None) -> Any:
    """Prefect's task runner: Dask's or Ray's, or threads that wait for our pool."""
    number = workers or cores()
    return cluster_task_runner(number) if cluster_asked() else ThreadPoolTaskRunner(2 * number)


class FlowStages:
    """Stages that are task runs of the running flow."""

    def __init__(self, executor: Executor, retry_delays_s: Sequence[float] = RETRY_DELAYS_S) -> None:
        self.executor = executor
        self._retry: dict[str, Any] = {"retries": len(retry_delays_s), "retry_delay_seconds": list(retry_delays_s)}

    def run(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Answer of `function(*args, **kwargs)`, run as the stage `name`."""
        LOGGER.info("%s", name)
        _WORK.append(partial(function, *args, **kwargs))
        try:
            return cast("T", _stage.with_options(name=name, **self._retry)())
        finally:
            _WORK.pop()


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

    def work() -> State[Any]:
        try:
            with _executor(workers) as executor:
                outcome.answers.append(body(FlowStages(executor)))
        except Exception as error:  # noqa: BLE001 -- raised below; Prefect would write it to disk as a pickle
            outcome.error = error
        before_end()
        return Failed(message=str(outcome.error)) if outcome.error else Completed()

    command = flow(
        name=f"kvledger {name}",
        task_runner=_task_runner(workers),
        persist_result=False,
        validate_parameters=False,
    )(_run_work)
    _WORK.append(work)
    try:
        with _settings_of_environment():
            command(return_state=True)
    except Exception as trouble:
        if not outcome.answers and outcome.error is None:
            raise ServerError(_in_short(trouble)) from trouble
        LOGGER.warning("Prefect could not record the end of this run: %s", _in_short(trouble))
    finally:
        _WORK.pop()
    if outcome.error is not None:
        raise outcome.error.with_traceback(own_frames(outcome.error.__traceback__))
    return outcome.answers[0]


@flow(
    name="kvledger scheduled",
    flow_run_name="{command}",
    task_runner=_task_runner(None),
    persist_result=False,
)
def scheduled(command: str, home: str, fleet: str, is_catching_up: bool = False) -> State[Any]:
    """State of one run of the schedule: `command` ("review" or "ingest") on a home and a fleet file.

    What it did, or why it failed and what to do, is kept as artifacts of the run.
    """
    start_logging(verbose=False, quiet=False)
    given = {"command": command, "home": home, "fleet": fleet, "is_catching_up": is_catching_up}
    try:
        from flows import schedule

        with lost_worker_named(), _executor(workers_asked()) as executor:
            stages = FlowStages(executor, PATIENT_RETRY_DELAYS_S)
            ran = schedule.run_scheduled(stages, given, _due_at())
    except Exception as error:  # noqa: BLE001 -- Prefect would write it to disk as a pickle
        LOGGER.error("%s", error, exc_info=None if isinstance(error, KvledgerError) else error)
        _keep(command, failed_markdown(_in_short(error), given), [])
        return Failed(message=_in_short(error))
    for line in ran.lines:
        print_note(line)
    _keep(command, done_markdown(ran.lines, given, datetime.now(UTC)), ran.decision)
    return Completed(message=ran.lines[0])


def _due_at() -> datetime:
    """When the running flow run was due."""
    due_at: datetime = flow_run.scheduled_start_time
    return datetime.fromtimestamp(due_at.timestamp(), UTC)


def _keep(command: str, markdown: str, decision: list[dict[str, Any]]) -> None:
    """Keep what a run has to say as artifacts of it; where the server is lost, the run stands all the same."""
    try:
        create_markdown_artifact(markdown, key=f"kvledger-{command}", description="what the run did")
        if decision:
            create_table_artifact(decision, key="kvledger-decision", description="GPUs needed and GPUs now")
    except Exception as trouble:  # noqa: BLE001 -- whatever keeps the server from taking them
        LOGGER.warning("Prefect could not keep this run's artifacts: %s", _in_short(trouble))


@contextmanager
def serving(planned: Sequence[Planned], *, is_run_now: bool) -> Iterator[Callable[[], None]]:
    """Register `planned` as deployments; lends what starts their runs when they are due, until it is stopped.

    `is_run_now`: the first of them also runs at once. ConfigError on a cron line that is none; RunError where the
    server refuses.
    """
    with _settings_of_environment():
        runner = Runner(name="kvledger", limit=1, pause_on_shutdown=True)
        try:
            for run in planned:
                runner.add_deployment(_deployment(run))
            if is_run_now:
                run_deployment(f"{scheduled.name}/{planned[0].name}", timeout=0)
        except KvledgerError:
            raise
        except Exception as trouble:
            url = os.environ["PREFECT_API_URL"]
            raise RunError(
                f"Prefect's server at {url} cannot be used ({_in_short(trouble)}); start it, or unset PREFECT_API_URL"
            ) from trouble
        yield lambda: asyncio.run(runner.start())


def _deployment(run: Planned) -> RunnerDeployment:
    try:
        schedule = Cron(run.cron, timezone=run.timezone)
        return RunnerDeployment.from_flow(
            scheduled,
            run.name,
            schedule=schedule,
            paused=False,
            parameters=run.parameters,
            description=run.description,
            concurrency_limit=1,
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    except ValueError as error:
        raise ConfigError(
            f"[schedule] '{run.cron}' is no cron line ({run.name}); write it like \"0 6 * * mon\""
        ) from error


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


def _in_short(trouble: Exception) -> str:
    """First line of what went wrong: of an error of ours as it is, else with its kind."""
    if isinstance(trouble, KvledgerError):
        return " ".join(str(trouble).split())
    return f"{type(trouble).__name__}: {str(trouble).strip().partition(chr(10))[0]}"[:200]
