"""`[publish] to = "s3://bucket/prefix"`: report, warehouse and marts of a review where others can read them.

What did not change since the last time is not sent again; `index.html` goes last, so that it never names what is not
there yet. With `lake = true` the lake is mirrored too. Marts and files of the lake that are no more leave the target.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from flows.lake_files import write_table
from flows.object_store import open_store, put, read_secrets, store_trouble_named
from flows.records import read_record, write_record
from flows.warehouse import published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flows.home import Home
    from transforms.fleet_running import Publish

HASH_BYTES = 4 << 20
MIRRORED = ("lake/", "marts/")
"""What begins so is removed at the target once it is gone here; reports of earlier weeks stay."""


def publish_files(home: Home, target: Publish, week: str) -> str:
    """URL of the report of `week`, once it, the warehouse and the marts (Parquet) are at `target`."""
    assert target.to is not None
    url = target.to.rstrip("/")
    read_secrets(home)
    store = open_store(url)
    record = home.staging / f"published-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
    now = read_record(record)  # key -> sha256 of what was sent
    files = dict(_files(home, week, is_with_lake=target.lake))
    for key, path in files.items():
        digest = _digest(path)
        if now.get(key) != digest:
            put(store, url, path, key)
            now[key] = digest
            write_record(record, now)
    gone = [key for key in now if key.startswith(MIRRORED) and key not in files]
    _remove(url, gone)
    write_record(record, {key: now[key] for key in now if key not in gone})
    return f"{url}/reports/week={week}/review.html"


def _files(home: Home, week: str, *, is_with_lake: bool) -> Iterator[tuple[str, Path]]:
    """Key and file of everything that is published, in the order it is sent."""
    if is_with_lake:
        for path in sorted(home.lake.rglob("*.parquet")):
            yield f"lake/{path.relative_to(home.lake).as_posix()}", path
    yield "warehouse/kvledger.duckdb", home.warehouse
    yield from _marts(home)
    for path in sorted((home.reports / f"week={week}").glob("review.*")):
        yield f"reports/week={week}/{path.name}", path
    yield "reports/index.html", home.reports / "index.html"


def _marts(home: Home) -> Iterator[tuple[str, Path]]:
    folder = home.staging / "marts"
    folder.mkdir(parents=True, exist_ok=True)
    with published(home) as connection:
        names = connection.sql("select table_name from duckdb_tables() where table_name like 'mart_%' order by all")
        for (name,) in names.fetchall():
            path = folder / f"{name}.parquet"
            write_table(connection.table(str(name)).pl(), path)
            yield f"marts/{name}.parquet", path


def _remove(url: str, keys: list[str]) -> None:
    if not keys:
        return
    import obstore

    with store_trouble_named(url):
        obstore.delete(open_store(url), keys)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
