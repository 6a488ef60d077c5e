"""What reaches the terminal: one JSON object on stdout, one line of text, or one line of error on stderr."""

from __future__ import annotations

import logging
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
    """Print `document` as the one JSON object of stdout; NaN and Infinity become null, as orjson has it."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    write_out(orjson.dumps(document, option=options, default=_known_to_json).decode() + "\n")


def _known_to_json(value: Any) -> Any:
    """What orjson does not know as what it knows: other mappings as dicts, all else as text."""
    return dict(value) if isinstance(value, Mapping) else str(value)


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
