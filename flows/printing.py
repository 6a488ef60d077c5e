"""What reaches the terminal: one JSON object on stdout, one line of text, or one line of error on stderr."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping
from typing import Any

import orjson

from flows.log import LOGGER


def print_json(document: Mapping[str, Any]) -> None:
    """Print `document` as the one JSON object of stdout; NaN and Infinity become null."""
    sys.stdout.write(orjson.dumps(finite(document), option=orjson.OPT_INDENT_2, default=str).decode() + "\n")
    sys.stdout.flush()


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
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_note(text: str) -> None:
    """Print one line beside the answer (a default taken, a file left out) on stderr, unless `--quiet` was given."""
    if LOGGER.isEnabledFor(logging.WARNING) and any(h.level <= logging.WARNING for h in LOGGER.handlers):
        sys.stderr.write(text + "\n")


def print_error(text: str) -> None:
    """Print an expected failure as one line on stderr."""
    sys.stderr.write("kvledger: " + " ".join(text.split()) + "\n")
