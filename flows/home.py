"""The home directory: where everything that is built lives, and the lock that keeps two writers apart."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.errors import BusyError, HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_POLL_S = 0.2


@dataclass(frozen=True)
class Home:
    """Paths of one home directory (`--home`, default ``./data``)."""

    root: Path

    @property
    def lake(self) -> Path:
        """Canonical rows, rejects and the manifest, as Parquet."""
        return self.root / "lake"

    @property
    def staging(self) -> Path:
        """Parsed files that the committer has not merged yet."""
        return self.root / "staging"

    @property
    def plans(self) -> Path:
        """The planner's output, one folder a week; it outlives rebuilds."""
        return self.root / "plans"

    @property
    def warehouse(self) -> Path:
        """The published DuckDB file."""
        return self.root / "warehouse" / "kvledger.duckdb"

    @property
    def reports(self) -> Path:
        """Reports, one folder a week."""
        return self.root / "reports"

    @property
    def logs(self) -> Path:
        """Rotating log of the product itself."""
        return self.root / "logs"

    @property
    def prefect(self) -> Path:
        """Prefect's own state, kept out of the user's ~/.prefect."""
        return self.root / "prefect"

    @property
    def schedule(self) -> Path:
        """State of the Prefect server that `kvledger serve` runs."""
        return self.prefect / "schedule"

    @property
    def tenant_key(self) -> Path:
        """Key of the keyed hash over tenants; mode 0600."""
        return self.root / "tenant.key"

    @property
    def fleet(self) -> Path:
        """The fleet file used when `--fleet` is not given."""
        return self.root / "fleet.toml"

    @property
    def catalog(self) -> Path:
        """The user's own models, GPUs and formats, laid over the shipped ones."""
        return self.root / "catalog"


def open_home(root: Path) -> Home:
    """The home at `root`, made if absent; HomeError where it cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(f"home {root} cannot be made ({error.strerror}); choose another with --home") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise HomeError(f"home {root} cannot be written; choose another with --home or mend its permissions")
    return Home(root)


@contextmanager
def locked(home: Home, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the home's lock while writing; after `wait_s` seconds BusyError names who holds it."""
    try:
        handle = (home.root / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise HomeError(f"home {home.root} cannot be written ({error.strerror}); choose another with --home") from error
    with handle:
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline_s:
                    handle.seek(0)
                    holder = handle.read().strip() or "another process"
                    raise BusyError(
                        f"home {home.root} is in use by {holder}; wait for it, or pass --wait SECONDS"
                    ) from error
                time.sleep(LOCK_POLL_S)
        handle.seek(0)
        handle.truncate()
        handle.write(f"pid {os.getpid()} (kvledger {' '.join(sys.argv[1:2])})".replace(" )", ")"))
        handle.flush()
        try:
            yield
        finally:
            handle.seek(0)
            handle.truncate()
