"""What reaches the terminal: one JSON object on stdout, one line of text, or one line of error on stderr."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from flows.log import LOGGER
from transforms.errors import RunError

PIPE_CLOSED = 141
"""Exit code where the reader of stdout left, as `head` does: that of a program ended by SIGPIPE (128 + 13)."""
ELSEWHERE = "make room or send it elsewhere; what the command wrote to its home stands"


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` as the one JSON object of stdout; NaN and Infinity become null."""
    write_out(orjson.dumps(finite(document), option=orjson.OPT_INDENT_2, default=str).decode() + "\n")


def finite(value: Any) -> Any:
    """`value` with every NaN and Infinity in it replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def print_line(text: str) -> None:
    """Print one line of a command's answer on stdout."""
    write_out(text + "\n")


def write_out(text: str) -> None:
    """Write `text` to stdout at once; RunError where stdout is closed or full, a quiet end where its reader left."""
    if sys.stdout is None:  # started with stdout closed
        raise RunError(f"stdout is closed; {ELSEWHERE}")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise stdout_trouble(error) from error


def stdout_trouble(error: OSError) -> RunError | SystemExit:
    """What to raise when stdout cannot be written; what it still holds goes nowhere, so that nothing fails at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return SystemExit(PIPE_CLOSED)
    return RunError(f"stdout cannot be written ({error.strerror}); {ELSEWHERE}")


def print_note(text: str) -> None:
    """Print one line beside the answer (a default taken, a file left out) on stderr, unless `--quiet` was given."""
    if LOGGER.isEnabledFor(logging.WARNING) and any(h.level <= logging.WARNING for h in LOGGER.handlers):
        _complain(text)


def print_error(text: str) -> None:
    """Print an expected failure as one line on stderr."""
    _complain("kvledger: " + " ".join(text.split()))


def _complain(text: str) -> None:
    """Write one line to stderr; where that is closed or full there is nobody to tell."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
