"""What the tests of ingest share: runs in this process or in a pool, the lake as a frame, its bytes as one hash."""

from __future__ import annotations

import hashlib
import tomllib
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from flows.home import open_home
from flows.ingest import ingest
from flows.lake import reject_days, rejects_path, request_days, requests_paths
from flows.processes import worker_pool
from transforms.canonical import SCHEMA
from transforms.fleet import Privacy, Source


class Here(Executor):
    """Runs every call at once, in this process."""

    def submit(self, fn, /, *args, **kwargs):
        answer = Future()
        try:
            answer.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001
            answer.set_exception(error)
        return answer


@contextmanager
def no_progress(label, total):
    yield lambda done=1: None


def ingested(root, *paths, form, workers=0, base=Path("/"), mapping=None, privacy="hashed", **settings):
    """The result of ingesting `paths` in format `form` into the home at `root`."""
    if mapping is not None and not isinstance(mapping, dict):
        mapping = tomllib.loads(Path(mapping).read_text())
    sources = [Source(form, str(path), map=mapping, **settings) for path in paths]
    home = open_home(Path(root))
    given = {"base": base, "privacy": Privacy(privacy), "progress": no_progress}
    if not workers:
        return ingest(home, sources, executor=Here(), **given)
    with worker_pool(workers) as pool:
        return ingest(home, sources, executor=pool, **given)


def lake(root):
    """All rows of the lake, in its order."""
    home = open_home(Path(root))
    paths = [path for day in request_days(home) for path in requests_paths(home, day)]
    if not paths:
        return pl.DataFrame(schema=SCHEMA)
    return pl.scan_parquet(paths, schema=SCHEMA, missing_columns="insert", extra_columns="ignore").collect()


def rejects(root):
    """All rejects of the lake."""
    home = open_home(Path(root))
    days = reject_days(home)
    paths = [rejects_path(home, day) for day in days]
    return pl.read_parquet(paths, hive_partitioning=False) if paths else pl.DataFrame()


def lake_hash(root):
    """One hash over names and bytes of all files of the lake."""
    digest = hashlib.sha256()
    folder = Path(root) / "lake"
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def counts(result):
    """(read, loaded, duplicates, rejected) of a run."""
    return tuple(result.total(name) for name in ("read", "loaded", "duplicates", "rejected"))
