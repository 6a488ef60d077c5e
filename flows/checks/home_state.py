"""What the home holds: whether it can be written, who is at it, room on the disk, last runs, damage, leftovers."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flows.checks.check import Check, fail, halves, ok, warn
from flows.damage import UNREADABLE, damaged_files
from flows.lake import request_days
from flows.schema import check_schema, loaded_rows
from transforms.errors import DataError, HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flows.home import Home

LEAST_FREE_BYTES, SCARCE_FREE_BYTES = 256 << 20, 2 << 30
"""Below the first DuckDB's own spill files find no room; below the second a week of millions of rows may not."""
MIB, GIB = 1 << 20, 1 << 30
KEY_MODE = 0o600


def home_state(home: Home) -> Iterator[Check]:
    """Findings on one home, which may not be there yet."""
    yield _writable(home)
    yield _disk(home)
    if not home.root.is_dir():
        return
    is_free, holder = lock_state(home)
    yield ok("lock", "free" if is_free else f"held by {holder}")
    yield _tenant_key(home)
    yield _lake(home)
    yield _damage(home)
    warehouse = _warehouse(home)
    yield warehouse
    if warehouse.state == "ok" and home.warehouse.exists():
        yield from _plans(home)
    yield _reports(home)
    yield _leftovers(home, is_free=is_free)


def lock_state(home: Home) -> tuple[bool, str]:
    """Whether nobody writes to the home now, and who does."""
    try:
        with (home.root / ".lock").open("r", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False, handle.read().strip() or "another process"
    except OSError:
        return True, ""
    return True, ""


def _writable(home: Home) -> Check:
    place = home.root if home.root.exists() else next(above for above in home.root.absolute().parents if above.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-"):
            pass
    except OSError as error:
        todo = "choose another with --home or mend its permissions"
        return fail("home", f"{home.root} cannot be written ({error.strerror})", todo)
    return ok("home", f"{home.root}{'' if home.root.exists() else ': not there yet; the first run makes it'}")


def _disk(home: Home) -> Check:
    place = next(at for at in (home.root.absolute(), *home.root.absolute().parents) if at.exists())
    free_bytes = shutil.disk_usage(place).free
    text = f"{free_bytes / GIB:,.1f} GiB free"
    if free_bytes < LEAST_FREE_BYTES:
        return fail("disk", text, "make room, or move the home with --home")
    if free_bytes < SCARCE_FREE_BYTES:
        return warn("disk", text, "make room before a large ingest")
    return ok("disk", text)


def _tenant_key(home: Home) -> Check:
    try:
        mode = home.tenant_key.stat().st_mode & 0o777
    except OSError:
        return ok("tenant key", "not made yet")
    if mode != KEY_MODE:
        return warn("tenant key", f"{home.tenant_key} has mode {mode:o}", f"chmod 600 {home.tenant_key}")
    return ok("tenant key", "mode 600")


def _lake(home: Home) -> Check:
    """Rows of the lake against what the manifest says was loaded: a file that somebody removed shows here."""
    try:
        check_schema(home)
        rows = loaded_rows(home)
    except HomeError as error:
        return fail("lake", *halves(str(error)))
    except UNREADABLE as error:
        return fail("lake", f"cannot be read ({error})", f"remove {home.lake} and ingest the logs again")
    days = request_days(home)
    return ok("lake", f"{rows:,} rows on {len(days)} days" if days else "empty")


def _damage(home: Home) -> Check:
    damaged = damaged_files([*sorted(home.lake.rglob("*.parquet")), *sorted(home.plans.rglob("*.parquet"))])
    first = next(damaged, None)
    if first is None:
        return ok("files", "every Parquet file of lake and plans can be read")
    number = 1 + sum(1 for _ in damaged)
    is_plan = home.plans in first.parents
    todo = "remove it and run kvledger plan for that week" if is_plan else f"remove {home.lake} and ingest again"
    return fail("files", f"{number} damaged, the first {first}", todo)


def _warehouse(home: Home) -> Check:
    from flows.warehouse import published

    if not home.warehouse.exists():
        return ok("warehouse", "not built yet")
    try:
        with published(home) as connection:
            found = connection.execute("select count(*) from duckdb_tables()").fetchone()
    except DataError as error:
        text, _, remedy = str(error).rpartition("; ")
        return fail("warehouse", text, remedy)
    return ok("warehouse", f"{found[0] if found else 0} tables, built {_written(home.warehouse)}")


def _plans(home: Home) -> Iterator[Check]:
    """Plans against the requests they were made from, and reports on disk against the plans."""
    from flows.older_plans import older_plans, reports_of_other_plans

    try:
        older, others = older_plans(home), reports_of_other_plans(home)
    except DataError as error:
        yield warn("plans", *halves(str(error)))
        return
    yield warn("plans", *halves(older[0].text)) if older else ok("plans", "none is older than its requests")
    if others:
        text = f"{', '.join(others)} planned again since: kvledger review --week {others[-1]} writes the report anew"
        yield ok("reports", text)


def _reports(home: Home) -> Check:
    weeks = sorted(home.reports.glob("week=*/review.html"))
    if not weeks:
        return ok("last review", "none yet")
    return ok("last review", f"{weeks[-1].parent.name.removeprefix('week=')}, written {_written(weeks[-1])}")


def _leftovers(home: Home, *, is_free: bool) -> Check:
    """What a killed run left; the next run of `ingest` finishes its commit or throws it away."""
    if not is_free:
        return ok("staging", "in use")
    if (home.lake / "journal.json").exists():
        return warn("staging", "a commit was cut short", "the next run finishes it: kvledger review")
    left = [path for name in ("runs", "commit") for path in (home.staging / name).rglob("*") if path.is_file()]
    if left:
        size = sum(path.stat().st_size for path in left) / MIB
        return warn("staging", f"{size:,.1f} MiB of a run that was cut short", "the next run clears it")
    return ok("staging", "clean")


def _written(path: Path) -> str:
    return datetime.fromtimestamp(os.stat(path).st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")  # noqa: PTH116
