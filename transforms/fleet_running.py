"""The parts of the fleet file that say when a review runs by itself and where what it made goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """`[schedule]`: when `kvledger serve` runs what, as cron lines in `timezone` (default: that of `[planning]`).

    An empty line is never.
    """

    review: str = "0 6 * * mon"
    ingest: str = "30 2 * * *"
    timezone: str | None = None


@dataclass(frozen=True)
class Warehouse:
    """`[warehouse]`: how many earlier warehouses stay beside the published one."""

    keep_versions: int = 1


@dataclass(frozen=True)
class Publish:
    """`[publish]`: the object store (`s3://…`) that a review's report, warehouse and marts go to, and the `lake`."""

    to: str | None = None
    lake: bool = False
