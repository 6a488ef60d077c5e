"""Logging: stdlib, to stderr and to a rotating file in the home; never with field values from logs."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

from transforms.errors import HomeError

if TYPE_CHECKING:
    from flows.home import Home

LOGGER = logging.getLogger("kvledger")
FILE_MAX_BYTES = 2_000_000
FILE_KEPT = 3


def start_logging(*, verbose: bool, quiet: bool) -> None:
    """Send the product's log to stderr: warnings, more with `verbose`, errors only with `quiet`."""
    for earlier in tuple(LOGGER.handlers):
        LOGGER.removeHandler(earlier)
        earlier.close()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("kvledger: %(message)s"))
    handler.setLevel(logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    logging.raiseExceptions = False  # a log that can no longer be written (disk full, pipe closed) ends no run


def log_to_home(home: Home) -> None:
    """Send the product's log also to HOME/logs/kvledger.log (rotating); HomeError where that cannot be written."""
    if any(isinstance(handler, RotatingFileHandler) for handler in LOGGER.handlers):
        return
    path = home.logs / "kvledger.log"
    try:
        home.logs.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=FILE_MAX_BYTES, backupCount=FILE_KEPT)
    except OSError as error:
        raise HomeError(f"{path} cannot be written ({error.strerror}); mend its permissions or use --home") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
