"""Progress of long work: a bar on stderr when that is a terminal, nothing in a pipe, a file or with `--quiet`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from flows.log import LOGGER


class Advance(Protocol):
    """What a stage calls when `done` more parts (files, tables, deployments) are finished."""

    def __call__(self, done: int = 1) -> None:
        """Move the bar by `done` parts."""


Progress = Callable[[str, int | None], AbstractContextManager[Advance]]
"""`with progress("reading logs", total_parts) as advance:`, then `advance()` after each part; None: length unknown."""


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Advance]:
    """Draw the bar `label` of `total` parts, on a terminal only; gives the function that moves it by parts done."""
    if not has_terminal():
        yield _draw_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        row = bars.add_task(label, total=total)

        def advance(done: int = 1) -> None:
            bars.advance(row, done)

        yield advance


def has_terminal() -> bool:
    """Whether bars are wanted: stderr is a terminal that can redraw a line, and `--quiet` was not given."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not _is_quiet()


def _is_quiet() -> bool:
    """Whether the log on stderr shows errors only, which is what `--quiet` sets."""
    shown = [handler.level for handler in LOGGER.handlers if type(handler) is logging.StreamHandler]
    return bool(shown) and min(shown) >= logging.ERROR


def _draw_nothing(done: int = 1) -> None:
    """Take a step without a bar."""
