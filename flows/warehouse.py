"""DuckDB files: the one being built, its limits, its rename into place, and the published one read only."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from flows.damage import warehouse_damage_named
from flows.versions import KEPT_VERSIONS, drop_versions, keep_version, version_path
from transforms.errors import ConfigError, DataError, HomeError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.home import Home

STORAGE_VERSION = "v1.4.0"
"""File format of the warehouse: the oldest DuckDB that reads it (its command line on PyPI is still 1.5; v2.0.0 is as
large and as quick here)."""

WAREHOUSE_VERSION = 1
"""Kept in the file; raised when a table or column changes meaning or goes away."""

MEMORY_BYTES = 3 * 2**30
"""Most buffer memory a build asks for (half of the machine's memory where that is less); the rest spills."""

LENT_DOWN_TO_BYTES = 128 * 2**20
"""What a connection keeps of it while another stage needs memory."""

LARGEST_ASKED_BYTES = 2**50
"""Beyond any machine: DuckDB refuses a size that does not fit its own numbers."""

MEMORY_GIB = "KVLEDGER_MEMORY_GIB"
"""Environment variable that says so many GiB instead."""

COPIED_BYTES = 2**30
"""Most bytes that one call copies."""

SPILL_RESERVE_BYTES = 2**30
"""Free disk that spilling leaves alone."""

SPILL_SETTING = "max_temp_directory_size"
"""Named in DuckDB's out-of-memory error where not memory is short but room on the disk to spill to."""


FORBIDDEN = ("Permission denied", "Operation not permitted", "Read-only file system")
"""In DuckDB's error where not room is short but a right."""


@dataclass(frozen=True)
class Limits:
    """What one connection may use: bytes of memory, bytes of spilled data, threads."""

    memory_bytes: int
    spill_bytes: int
    threads: int


@dataclass(frozen=True)
class Draft:
    """A warehouse being built: a temporary file beside the published one, open for writing."""

    connection: duckdb.DuckDBPyConnection
    path: Path
    published: Path


def default_limits(folder: Path) -> Limits:
    """Limits for this machine: see MEMORY_BYTES; spill up to the free disk at `folder`; all usable cores.

    ConfigError where KVLEDGER_MEMORY_GIB is no size.
    """
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free_bytes = shutil.disk_usage(folder).free
    return Limits(
        memory_bytes=_memory_asked_bytes() or min(MEMORY_BYTES, machine_bytes // 2),
        spill_bytes=max(free_bytes - SPILL_RESERVE_BYTES, SPILL_RESERVE_BYTES),
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


def _memory_asked_bytes() -> int | None:
    """Bytes that KVLEDGER_MEMORY_GIB asks for; None where it is not set."""
    asked = os.environ.get(MEMORY_GIB)
    if asked is None:
        return None
    try:
        asked_bytes = int(float(asked) * 2**30)
    except (ValueError, OverflowError):
        asked_bytes = 0
    if not 2**20 <= asked_bytes <= LARGEST_ASKED_BYTES:
        raise ConfigError(f"{MEMORY_GIB}={asked}: must be a size in GiB, such as 6 or 0.5")
    return asked_bytes


@contextmanager
def drafting(home: Home, *, copy_published: bool = False, limits: Limits | None = None) -> Iterator[Draft]:
    """A draft of the warehouse, empty or a copy of the published one; thrown away unless published inside.

    The caller holds the home's lock, so leftovers of killed builds are removed first. DataError where there is
    nothing to copy; HomeError where the disk is full or the folder cannot be written; RunError where memory is short.
    """
    folder = home.warehouse.parent
    path = folder / f"building-{os.getpid()}.duckdb"
    with _disk_errors(folder), warehouse_damage_named(home.warehouse):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        try:
            if copy_published:
                _require_published(home)
                _copy(home.warehouse, path)
            with _open_draft(path, limits or default_limits(folder)) as connection:
                yield Draft(connection, path, home.warehouse)
        finally:
            _sweep(folder)


def publish(draft: Draft, keep_versions: int = KEPT_VERSIONS) -> Path:
    """Path of the published warehouse, now holding the draft; readers of the old file keep what they opened.

    The file it takes the place of is one of the `keep_versions` earlier ones that are kept.
    """
    with _disk_errors(draft.published.parent):
        draft.connection.execute("checkpoint kvledger")
        draft.connection.execute("use memory")
        draft.connection.execute("detach kvledger")
        with draft.path.open("rb") as handle:
            os.fsync(handle.fileno())
        if keep_versions:
            keep_version(draft.published)
        draft.path.replace(draft.published)
        drop_versions(draft.published, keep_versions)
    return draft.published


@contextmanager
def published(home: Home, version: int | None = None, *, is_locked: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection to the published warehouse, or to an earlier `version` of it.

    `is_locked`: its settings cannot be changed, whatever SQL it is given. DataError where there is none or it is no
    warehouse.
    """
    _require_published(home)
    path = version_path(home, version)
    limits = default_limits(home.warehouse.parent)
    settings: dict[str, Any] = {
        "memory_limit": f"{limits.memory_bytes}B",
        "threads": limits.threads,
        "temp_directory": str(home.warehouse.parent / f"reading-{os.getpid()}.spill"),
        "max_temp_directory_size": f"{limits.spill_bytes}B",
        "autoinstall_known_extensions": False,
        "python_enable_replacements": False,
    }
    try:
        connection = duckdb.connect(str(path), read_only=True, config=settings)
    except duckdb.Error as error:
        raise DataError(
            f"{path} is not a warehouse this version can open ({_first_line(error)}); run kvledger build"
        ) from error
    try:
        with warehouse_damage_named(path):
            yield _as_reader(connection, path, is_locked=is_locked)
    finally:
        connection.close()


@contextmanager
def lent_memory(connection: duckdb.DuckDBPyConnection, home: Home) -> Iterator[None]:
    """Give the memory that the queries of `connection` left it with to others for the block; it gets it back after.

    Nothing happens where its settings are locked, or where it holds more that it cannot part with.
    """
    with suppress(duckdb.Error):
        connection.execute(f"set memory_limit = '{LENT_DOWN_TO_BYTES}B'")
    try:
        yield
    finally:
        with suppress(duckdb.Error):
            connection.execute(f"set memory_limit = '{default_limits(home.warehouse.parent).memory_bytes}B'")


def _as_reader(connection: duckdb.DuckDBPyConnection, path: Path, *, is_locked: bool) -> duckdb.DuckDBPyConnection:
    """`connection` to the warehouse at `path`, its version known and its settings those of a reader."""
    _check_version(connection, path)
    if not _is_locked(connection):
        connection.execute("set enable_progress_bar = false")  # a worker looks like a terminal session to DuckDB
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_external_access = false")
        connection.execute(f"set lock_configuration = {is_locked}")
    return connection


def _is_locked(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether this process has the same file open already: connections to it share an instance and its settings."""
    return connection.execute("select current_setting('lock_configuration')").fetchall() == [(True,)]


def _require_published(home: Home) -> None:
    if not home.warehouse.is_file():
        raise DataError(f"no warehouse at {home.warehouse}; run kvledger review or kvledger build first")


def _open_draft(path: Path, limits: Limits) -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {
        "memory_limit": f"{limits.memory_bytes}B",
        "threads": limits.threads,
        "temp_directory": str(path.with_suffix(".spill")),
        "max_temp_directory_size": f"{limits.spill_bytes}B",
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "python_enable_replacements": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    quoted = str(path).replace("'", "''")
    options = ["recovery_mode 'no_wal_writes'"]
    if not path.exists():  # a copy keeps the format it has: DuckDB lowers none
        options.append(f"storage_version '{STORAGE_VERSION}'")
    connection.execute(f"attach '{quoted}' as kvledger ({', '.join(options)})")
    connection.execute("use kvledger")
    connection.execute("set TimeZone = 'UTC'")
    return connection


def _check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    tables = connection.execute("select 1 from duckdb_tables() where table_name = 'dim_settings'").fetchall()
    if not tables:
        raise DataError(f"{path} is no warehouse of kvledger; run kvledger build, or name another home with --home")
    named = "select value_text from dim_settings where name = 'warehouse_version'"
    found = max((int(row[0]) for row in connection.execute(named).fetchall()), default=0)
    if found > WAREHOUSE_VERSION:
        raise DataError(
            f"{path} was built by a newer kvledger (warehouse version {found}, this one knows {WAREHOUSE_VERSION}); "
            "upgrade kvledger, or run kvledger build to make it anew"
        )


def _copy(source: Path, target: Path) -> None:
    """Copy a file inside the kernel: file systems that can share blocks (XFS, Btrfs) copy none."""
    try:
        if not hasattr(os, "copy_file_range"):
            shutil.copyfile(source, target)
            return
        with source.open("rb") as read, target.open("wb") as written:
            while os.copy_file_range(read.fileno(), written.fileno(), COPIED_BYTES):
                pass
    except OSError as error:
        error.filename = str(target)
        raise


def _sweep(folder: Path) -> None:
    for leftover in folder.glob("building-*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        if isinstance(error, duckdb.OutOfMemoryException) and SPILL_SETTING not in str(error):
            had_gib = default_limits(folder).memory_bytes / 2**30
            raise RunError(
                f"the warehouse in {folder} could not be built in {had_gib:.3g} GiB of memory ({_first_line(error)}); "
                f"allow more with {MEMORY_GIB}, the old one stands"
            ) from error
        remedy = "mend its permissions" if any(word in str(error) for word in FORBIDDEN) else "free some disk"
        raise HomeError(
            f"the warehouse in {folder} could not be written ({_first_line(error)}); {remedy}, the old one stands"
        ) from error
    except OSError as error:
        if error.filename is None or not Path(str(error.filename)).is_relative_to(folder):
            raise
        raise HomeError(
            f"{folder} cannot be written ({error.strerror}); free some disk or choose another with --home"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
