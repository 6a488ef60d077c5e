"""Prefect in a home of its own: the environment it reads before it is imported, and the server of one run.

Prefect can start a temporary server by itself, but that one prints tracebacks on our terminal when a good run ends
and outlives us when we are killed. So the same server is started here, its output in HOME/logs/prefect.log, tethered
to this process, while the client is still being imported. With `PREFECT_API_URL` set, that server is used instead.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.log import LOGGER
from flows.processes import end_recorded, end_tethered, start_tethered

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

    from flows.home import Home

LOOPBACK = "127.0.0.1"
HEALTH_POLL_S = 0.05
HEALTH_TIMEOUT_S = 5.0
STARTS = 2
"""How often a server that gave up is started: a port may be taken meanwhile, and a database set aside."""

QUIET = {
    # https://docs.prefect.io/v3/concepts/telemetry: neither the client nor the server reports to anybody
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    # failures reach the user as our one line or as a bug's traceback, not as Prefect's log of them
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
    # results are small manifests in memory: no pickle is written or read
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
}
TEMPORARY = {
    # nobody reads the log kept by a server that goes away with the run
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_UI_ENABLED": "false",
}
BRIEF = {
    # services of a server that lives on; a run of minutes has nothing for them to do
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CANCELLATION_CLEANUP",
        "CLEANUP_RECONCILER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "REPOSSESSOR",
        "SCHEDULER",
        "TRIGGERS",
    )
}
LASTING = {"PREFECT_RUNNER_POLL_FREQUENCY": "5"}
"""Of the server of `kvledger serve`: seconds between looks for runs that are due."""


class ServerError(Exception):
    """Prefect's own temporary server did not start; the text says why in a few words."""


@dataclass
class Server:
    """Prefect's server of this process: a run's temporary one, or that of `kvledger serve`."""

    home: Home
    environment: dict[str, str]
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Address of its API."""
        return self.environment["PREFECT_API_URL"]

    @property
    def folder(self) -> Path:
        """Where its database and its record lie."""
        return Path(self.environment["PREFECT_HOME"])

    @property
    def record(self) -> Path:
        """What lets a later run end it should we be killed."""
        return self.folder / "server.json"

    @property
    def log(self) -> Path:
        """What it printed."""
        return _log(self.home, self.folder)


_RUNNING: dict[Path, Server] = {}
"""Servers of this process by folder; they live until it exits."""


def uses_own_server(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a temporary server is needed: nobody named one with PREFECT_API_URL."""
    return not environment.get("PREFECT_API_URL")


def sealed(home: Home, environment: Mapping[str, str], port: int, *, is_lasting: bool = False) -> dict[str, str]:
    """`environment` for Prefect's client and own server on `port`, free of the user's own Prefect settings.

    A random password keeps the other users of the machine out of the server.
    """
    password = f"kvledger:{secrets.token_hex(16)}"
    kept = {name: value for name, value in environment.items() if not name.startswith("PREFECT_")}
    longest_start = environment.get("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS")
    around_proxy = ",".join(filter(None, [environment.get("NO_PROXY") or environment.get("no_proxy"), LOOPBACK]))
    return {
        **kept,
        **QUIET,
        **TEMPORARY,
        **(LASTING if is_lasting else BRIEF),
        **({"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": longest_start} if longest_start else {}),
        "PREFECT_HOME": str((home.schedule if is_lasting else home.prefect).resolve()),
        "PREFECT_API_URL": f"http://{LOOPBACK}:{port}/api",
        "PREFECT_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "NO_PROXY": around_proxy,
        "no_proxy": around_proxy,
    }


def beside(home: Home, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for a client of the server that PREFECT_API_URL names, its files in HOME/prefect."""
    return {**QUIET, **environment, "PREFECT_HOME": str(home.prefect.resolve())}


@contextmanager
def environment_of(home: Home, *, is_lasting: bool = False) -> Iterator[Server | None]:
    """Set the environment Prefect must be imported in; gives our own server, started, or None if one is named."""
    before = dict(os.environ)
    server = start_server(home, is_lasting=is_lasting) if uses_own_server() else None
    os.environ.update(server.environment if server else beside(home, before))
    for name in os.environ.keys() - server.environment.keys() if server else ():
        del os.environ[name]
    try:
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)


def start_server(home: Home, *, is_lasting: bool = False) -> Server:
    """Prefect's server of this home, started and not yet ready; a server left by a killed run is ended first.

    It ends when this process does: at exit, after Prefect's own last messages, or by its tether; until then it serves
    every run of this home. `is_lasting`: the one that keeps a schedule. ServerError where none can be started.
    """
    folder = home.schedule if is_lasting else home.prefect
    running = _RUNNING.get(folder)
    if running and running.process.poll() is None:
        return running
    try:
        folder.mkdir(parents=True, exist_ok=True)
        home.logs.mkdir(parents=True, exist_ok=True)
        end_recorded(folder / "server.json")
        environment = sealed(home, os.environ, _free_port(), is_lasting=is_lasting)
        server = Server(home, environment, _launch(home, environment))
    except OSError as error:
        raise ServerError(str(error)) from error
    _RUNNING[folder] = server
    atexit.register(end_server, server)
    return server


def end_server(server: Server) -> None:
    """End the server and wait until it is gone."""
    end_tethered(server.process, server.record)


def revive_server(server: Server) -> None:
    """Start the server again should it have been lost, so that the run's end can be recorded without long waits."""
    if server.process.poll() is None:
        return
    try:
        end_server(server)
        server.process = _launch(server.home, server.environment)
        await_server(server)
    except (ServerError, OSError) as error:
        LOGGER.warning("Prefect's server was lost and did not start again: %s", error)


def await_server(server: Server) -> None:
    """Return when the server answers; ServerError says in a few words why it does not."""
    deadline_s = time.monotonic() + float(server.environment["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"])
    starts = 1
    while not _answers(server.url):
        if time.monotonic() > deadline_s:
            raise ServerError(f"no answer in time; see {server.log}")
        if server.process.poll() is not None:
            if starts == STARTS:
                raise ServerError(f"it ended with code {server.process.returncode}; see {server.log}")
            starts += 1
            _start_again(server)
        time.sleep(HEALTH_POLL_S)


def _start_again(server: Server) -> None:
    """Start a server that gave up once more, with a new database where the old one was the reason."""
    said = server.log.read_text(encoding="utf-8", errors="replace")
    if "sqlite" in said or "alembic" in said:
        for file in server.folder.glob("prefect.db*"):
            file.replace(file.with_name(f"unreadable-{file.name}"))
    end_server(server)
    server.process = _launch(server.home, server.environment)


def _launch(home: Home, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    port = environment["PREFECT_API_URL"].rpartition(":")[2].removesuffix("/api")
    folder = Path(environment["PREFECT_HOME"])
    return start_tethered(
        ["prefect", "server", "start", "--host", LOOPBACK, "--port", port, "--no-ui"],
        environment=environment,
        folder=folder,
        log=_log(home, folder),
        record=folder / "server.json",
    )


def _log(home: Home, folder: Path) -> Path:
    return home.logs / ("prefect.log" if folder.name == home.prefect.name else "prefect-schedule.log")


def _free_port() -> int:
    """A free port of the loopback device; OSError where that device is down, as in a bare network namespace."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        socket.create_connection((LOOPBACK, port), timeout=HEALTH_TIMEOUT_S).close()
        return port


def _answers(url: str) -> bool:
    """Whether the API at `url` says that it is healthy; no proxy is asked."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/health", timeout=HEALTH_TIMEOUT_S):
            return True
    except (urllib.error.URLError, OSError):
        return False
