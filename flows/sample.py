"""Writes the sample: two weeks of made-up gateway logs and the example fleet they belong to."""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import shutil
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.processes import ended_by_signals, worker_pool
from flows.shipped import shipped
from transforms import sample as sample_code
from transforms.errors import HomeError
from transforms.sample.attempts import Attempts, attempts_of
from transforms.sample.services import (
    AGENT,
    CHAT,
    MOST_DAYS,
    SERVICES,
    SUMMARISER,
    file_name,
    service_called,
)
from transforms.sample.spend_log import spend_log
from transforms.sample.traffic import traffic_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.home import Home
    from flows.progress import Progress

STAMP = ".complete.json"
"""Written last: what the sample was made from, and its rows and files."""

GZIP_LEVEL = 3
"""As quick as level 1 on these lines, and a tenth smaller; level 6 takes twice the time for a fifth less."""

LONGEST_FIRST = (AGENT.name, CHAT.name, SUMMARISER.name)


@dataclass(frozen=True)
class SampleSettings:
    """What decides the bytes: same settings, same files. `thin` = n keeps one session in n, whole."""

    seed: int = 2
    scale: float = 1.0
    days: int = MOST_DAYS
    thin: int = 1


@dataclass(frozen=True)
class SampleResult:
    """What lies in `output`: files, rows and bytes; nothing was written where it `is_unchanged`."""

    output: Path
    files: int
    requests: int
    bytes: int
    is_unchanged: bool
    is_fleet_copied: bool


def write_sample(home: Home, output: Path | None, settings: SampleSettings, progress: Progress) -> SampleResult:
    """The logs of `settings` in `output`, one file a service and UTC day; returns what lies there.

    Without `output` they go to HOME/sample, and the shipped fleet to HOME/fleet.toml where there is none. A folder
    that holds this very sample is left as it is; the files of another sample there are replaced. HomeError where the
    folder cannot be written.
    """
    folder = output or home.root / "sample"
    stamp = _read_stamp(folder, settings)
    is_unchanged = stamp is not None
    if stamp is None:
        with ended_by_signals(), _aside(folder) as aside:
            stamp = _stamp(settings, _write_logs(aside, settings, progress))
            _put_in_place(aside, folder, stamp)
    is_fleet_copied = output is None and not home.fleet.exists()
    if is_fleet_copied:
        shutil.copyfile(shipped("data", "fleet.toml"), home.fleet)
    sizes = stamp["bytes"].values()
    return SampleResult(folder, len(sizes), stamp["requests"], sum(sizes), is_unchanged, is_fleet_copied)


def _write_logs(aside: Path, settings: SampleSettings, progress: Progress) -> dict[str, tuple[int, int]]:
    """Write all files into `aside`; rows and bytes of each by its name."""
    written: dict[str, tuple[int, int]] = {}
    with worker_pool() as pool, progress("writing the sample", len(SERVICES) * settings.days) as advance:
        traffics = {pool.submit(_attempts, name, settings): name for name in LONGEST_FIRST}
        files = {}
        for traffic in as_completed(traffics):
            name = traffics[traffic]
            for day, attempts in enumerate(traffic.result()):
                path = aside / file_name(service_called(name), day)
                files[pool.submit(_write_log, path, name, attempts)] = path.name
        for file in as_completed(files):
            written[files[file]] = file.result()
            advance()
    return written


def _attempts(name: str, settings: SampleSettings) -> list[Attempts]:
    """The attempts of one service, a table a day."""
    with _no_collector():
        traffic = traffic_of(name, settings.seed, settings.days, settings.scale)
        return [attempts_of(traffic, day, settings.thin) for day in range(settings.days)]


def _write_log(path: Path, name: str, attempts: Attempts) -> tuple[int, int]:
    """Write one file, whose bytes hold no date of writing; rows and bytes."""
    with _no_collector():
        lines = b"".join(spend_log(attempts, service_called(name)))
    compressed = gzip.compress(lines, GZIP_LEVEL, mtime=0)
    path.write_bytes(compressed)
    return len(attempts), len(compressed)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Spare the work inside the search for cycles among millions of small rows, a sixth of its time; it makes none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """An empty folder inside `folder`, gone when the block ends."""
    aside = folder / ".partial"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    except OSError as error:
        raise HomeError(
            f"sample folder {folder} cannot be written ({error.strerror}); choose another with --output"
        ) from error
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(aside: Path, folder: Path, stamp: dict[str, Any]) -> None:
    """Replace the sample in `folder` by the one in `aside`; the stamp goes first and comes last."""
    (folder / STAMP).unlink(missing_ok=True)
    for service in SERVICES:
        for day in range(MOST_DAYS):
            (folder / file_name(service, day)).unlink(missing_ok=True)
    for name in sorted(stamp["bytes"]):
        (aside / name).replace(folder / name)
    (aside / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    (aside / STAMP).replace(folder / STAMP)


def _stamp(settings: SampleSettings, written: dict[str, tuple[int, int]]) -> dict[str, Any]:
    return {
        "generator": _generator(),
        "settings": asdict(settings),
        "requests": sum(rows for rows, _ in written.values()),
        "bytes": {name: size for name, (_, size) in sorted(written.items())},
    }


def _read_stamp(folder: Path, settings: SampleSettings) -> dict[str, Any] | None:
    """The stamp in `folder` if the sample of `settings` lies there complete, else None."""
    try:
        stamp: dict[str, Any] = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        is_same = stamp["generator"] == _generator() and stamp["settings"] == asdict(settings)
        is_whole = all((folder / name).stat().st_size == size for name, size in stamp["bytes"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return stamp if is_same and is_whole else None


def _generator() -> str:
    """Fingerprint of the code that makes the sample: another one may give other bytes for the same settings."""
    files = sorted(Path(sample_code.__file__).parent.glob("*.py"))
    parts = [np.__version__.encode(), *(path.read_bytes() for path in files)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]
