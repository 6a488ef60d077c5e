"""Logs in object stores: copies of them in HOME/staging/objects, read like files; what did not change is not fetched.

An object is known by its key, size and etag. Copies stay, so that the next run fetches only what is new; where they are
removed they are fetched again, and, being the same bytes, read as unchanged.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from flows.object_store import fetch, head_object, is_url, list_objects, read_secrets
from flows.records import read_record, write_record
from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flows.home import Home
    from flows.object_store import Stored
    from flows.progress import Progress
    from transforms.fleet import Source

AT_ONCE = 8
"""Objects fetched at the same time: they wait for the network, not for a core."""


def fetched(home: Home, sources: Sequence[Source], progress: Progress) -> list[Source]:
    """`sources`, those in object stores with the path of their copies; InputError where one names no object."""
    if any(is_url(source.path) for source in sources):
        read_secrets(home)
    return [_fetched(home, source, progress) if is_url(source.path) else source for source in sources]


def objects_of(url: str) -> tuple[str, str, list[Stored]]:
    """Where the objects that `url` names lie, the rest of the pattern below that, and the objects.

    `url` is one object, a prefix that stands for all below it, or a pattern (`*`, `?`, `[…]`, `**`).
    """
    place, pattern = _fixed(url)
    if not pattern:
        single = head_object(url)
        if single is not None:
            return place.rpartition("/")[0], single.key, [single]
    found = [stored for stored in list_objects(place) if not pattern or matches(stored.key, pattern)]
    if not found:
        raise InputError(f"{url}: no such object; check bucket, prefix and pattern")
    for stored in found:
        _check_key(stored.key, url)
    return place, pattern, found


def matches(key: str, pattern: str) -> bool:
    """Whether `key` fits `pattern`, part by part as in a file system; `**` stands for any number of parts."""
    return _match(key.split("/"), pattern.split("/"))


def _match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match(parts[number:], pattern[1:]) for number in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])


def _fixed(url: str) -> tuple[str, str]:
    """The part of `url` before the first part with a wildcard, and the rest."""
    parts = url.rstrip("/").split("/")
    wild = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:wild]), "/".join(parts[wild:])


def _check_key(key: str, url: str) -> None:
    """InputError where a key cannot be the name of a file below ours."""
    if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise InputError(f"{url}: has an object whose key is no relative path; leave it out with a pattern")


def _fetched(home: Home, source: Source, progress: Progress) -> Source:
    place, pattern, found = objects_of(source.path)
    folder = home.staging / "objects" / hashlib.sha256(source.path.encode()).hexdigest()[:16]
    record = folder / "objects.json"
    known = read_record(record)
    stale = [stored for stored in found if not _is_here(folder, stored, known)]
    _forget(folder, found)
    with progress(f"fetching {source.name or source.path}", len(stale)) as advance, ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda stored: fetch(place, stored, folder / "files" / stored.key), stale):
            advance()
    marks = {stored.key: [stored.size_bytes, stored.etag] for stored in found}
    folder.mkdir(parents=True, exist_ok=True)
    write_record(record, marks)
    return replace(source, path=str((folder / "files" / pattern).absolute()))


def _is_here(folder: Path, stored: Stored, known: dict[str, list[object]]) -> bool:
    """Whether the copy of `stored` is there and of its size and etag in `known`, those fetched before."""
    copy = folder / "files" / stored.key
    return known.get(stored.key) == [stored.size_bytes, stored.etag] and copy.is_file()


def _forget(folder: Path, found: Iterable[Stored]) -> None:
    """Remove copies of objects that are no longer there."""
    kept = {folder / "files" / stored.key for stored in found}
    for copy in (folder / "files").rglob("*"):
        if copy.is_file() and copy not in kept:
            copy.unlink()
