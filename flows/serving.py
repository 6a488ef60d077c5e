"""`kvledger serve`: the schedule under a Prefect server that was named, or one of our own that ends with us."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.prefect_home import ServerError, await_server, environment_of, revive_server
from transforms.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flows.home import Home
    from flows.prefect_home import Server
    from flows.schedule import Planned

LOOK_AFTER_S = 2.0
"""Seconds between looks whether our own server still lives."""


@dataclass(frozen=True)
class Serving:
    """A schedule that is registered with the server at `url`; `until_stopped` starts what is due until it is ended."""

    url: str
    until_stopped: Callable[[], None]


@contextmanager
def serve_runs(home: Home, planned: Sequence[Planned], *, is_catching_up: bool) -> Iterator[Serving]:
    """Register `planned`; `is_catching_up` runs the first of them at once. What was started ends with the block."""
    if not planned:
        raise ConfigError("[schedule] leaves both review and ingest empty; give at least one a cron line")
    try:
        with environment_of(home, is_lasting=True) as server:
            from flows import orchestration  # imports Prefect, while its server starts

            if server:
                await_server(server)
            with orchestration.serving(planned, is_run_now=is_catching_up) as start, _looked_after(server):
                yield Serving(os.environ["PREFECT_API_URL"], start)
    except ServerError as error:
        raise RunError(f"Prefect's server did not start ({error}); name a running one with PREFECT_API_URL") from error


@contextmanager
def _looked_after(server: Server | None) -> Iterator[None]:
    """Start our own server again whenever it is lost inside the block."""
    is_over = threading.Event()

    def look_after(own: Server) -> None:
        while not is_over.wait(LOOK_AFTER_S):
            revive_server(own)

    watch = threading.Thread(target=look_after, args=(server,), name="server", daemon=True) if server else None
    if watch:
        watch.start()
    try:
        yield
    finally:
        is_over.set()
        if watch:
            watch.join()
