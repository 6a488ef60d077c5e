"""What is installed: Python and packages, the compiled kernel, time zones, a browser."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import zoneinfo
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from flows.checks.check import Check, fail, ok, warn
from flows.kernel_cache import kernel_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHOWN = ("duckdb", "polars", "pyarrow", "prefect", "numba")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "install kvledger again: pip install --upgrade --force-reinstall kvledger"


def installation(zones: Iterable[str]) -> Iterator[Check]:
    """Findings on what is installed; `zones` are the time zones that the fleet file names."""
    yield _packages()
    yield _kernel()
    yield _zones(zones)
    yield _browser()


def unmet(requirements: Iterable[str]) -> list[str]:
    """The requirements that what is installed does not meet, each with what there is instead; extras left out."""
    out = []
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            out.append(f"{wanted.name} is missing")
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            out.append(f"{wanted.name} is {found}, not {wanted.specifier}")
    return out


def _packages() -> Check:
    try:
        wrong = unmet(requires("kvledger") or ())
        own = version("kvledger")
    except PackageNotFoundError:
        return fail("packages", "kvledger is not installed here", INSTALL)
    if wrong:
        return fail("packages", ", ".join(wrong), INSTALL)
    named = ", ".join(f"{name} {version(name)}" for name in SHOWN)
    return ok("packages", f"kvledger {own}, Python {platform.python_version()}, {named} ({sys.prefix})")


def _kernel() -> Check:
    folder = kernel_folder()
    place = folder if folder.is_dir() else next(above for above in folder.parents if above.is_dir())
    if not os.access(place, os.W_OK | os.X_OK):
        todo = "set KVLEDGER_KERNEL_CACHE to a folder that can be written, or every replay compiles anew"
        return warn("kernel cache", f"{folder} cannot be written", todo)
    if not any(folder.rglob("run.run-*.nbi")):
        return ok("kernel cache", f"{folder}: empty; the first replay compiles it, about a minute")
    return ok("kernel cache", f"{folder}: compiled")


def _zones(zones: Iterable[str]) -> Check:
    known = zoneinfo.available_timezones()
    missing = sorted({zone for zone in zones if zone not in known})
    if missing:
        todo = "install the system's tzdata, or pip install tzdata"
        return fail("time zones", f"no data for {', '.join(missing)} ({len(known)} zones known)", todo)
    return ok("time zones", f"{len(known)} known")


def _browser() -> Check:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        return ok("browser", "no Chromium; only the project's own browser tests need one")
    return ok("browser", found)
