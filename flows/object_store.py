"""Object stores (`s3://bucket/…`, `gs://bucket/…`, `az://container/…`): listing, fetching and putting, with patience.

obstore tries a request again on 5xx answers, lost connections and time-outs, with exponential back-off and jitter; a
body that ends early is fetched anew. What stays refused after that is a StoreError, which the schedule tries again.
Settings and secrets come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or from HOME/store.env of mode 0600.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from transforms.errors import ConfigError, InputError, RunError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from obstore import ObjectMeta
    from obstore.store import ObjectStore, RetryConfig

    from flows.home import Home

SCHEMES = ("s3", "gs", "az")
SECRET_MODE = 0o600
CHUNK_BYTES = 8 << 20
FETCHES = 3
"""How often one object is begun; requests inside are tried again by obstore itself."""

RETRY: RetryConfig = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=180),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=15), "base": 2.0},
}


@dataclass(frozen=True)
class Stored:
    """One object: its key below the place that was asked for, its size, and the store's mark of its content."""

    key: str
    size_bytes: int
    etag: str


def is_url(path: str) -> bool:
    """Whether `path` names a place in an object store."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def read_secrets(home: Home) -> None:
    """Set what HOME/store.env says, NAME=VALUE a line, in the environment; what stands there already stays.

    ConfigError where others may read that file.
    """
    path = home.root / "store.env"
    try:
        mode = path.stat().st_mode & 0o777
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    if mode & ~SECRET_MODE:
        raise ConfigError(f"{path} has mode {mode:o} and holds secrets; chmod 600 {path}")
    for line in lines:
        name, mark, value = line.strip().partition("=")
        if mark and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())


def open_store(url: str) -> ObjectStore:
    """The store at `url`, whose path every key is below; ConfigError where the address cannot be one."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query:
        raise ConfigError(f"{parts.scheme}://{parts.hostname or ''}…: write it like s3://bucket/prefix, secrets apart")
    try:
        return from_url(url.rstrip("/"), retry_config=RETRY)
    except (BaseError, ValueError) as error:
        raise ConfigError(
            f"{url}: cannot be opened ({_in_short(error)}); check the address and the settings"
        ) from error


def list_objects(url: str) -> list[Stored]:
    """The objects below `url`, in order of key; hidden ones (a part begins with a dot) and empty folders left out."""
    import obstore

    with store_trouble_named(url):
        found = [meta for batch in obstore.list(open_store(url)) for meta in batch]
    kept = (meta for meta in found if not any(part.startswith(".") for part in meta["path"].split("/")))
    return sorted(
        (_stored(meta["path"], meta) for meta in kept if not meta["path"].endswith("/")),
        key=lambda stored: stored.key,
    )


def head_object(url: str) -> Stored | None:
    """The object at `url` itself; None where there is none of that name."""
    import obstore
    from obstore.exceptions import NotFoundError

    above, _, name = url.rstrip("/").rpartition("/")
    with store_trouble_named(url):
        try:
            meta = obstore.head(open_store(above), name)
        except (NotFoundError, FileNotFoundError):
            return None
    return _stored(name, meta)


def fetch(url: str, stored: Stored, target: Path) -> None:
    """Write the object `stored` below `url` to `target`, whole or not at all."""
    import obstore

    store = open_store(url)
    aside = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        for left in reversed(range(FETCHES)):
            try:
                with store_trouble_named(f"{url}/{stored.key}"), aside.open("wb") as file:
                    for chunk in obstore.get(store, stored.key).stream(min_chunk_size=CHUNK_BYTES):
                        file.write(chunk)
            except StoreError:
                if not left:
                    raise
                continue
            if aside.stat().st_size == stored.size_bytes:
                break
            if not left:
                raise StoreError(f"{url}/{stored.key}: changed while it was read; run it again")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def put(store: ObjectStore, url: str, path: Path, key: str) -> None:
    """Put the file `path` at `key` of `store`, which is the one at `url`; the object is there whole or not at all."""
    import obstore

    with store_trouble_named(f"{url}/{key}"):
        obstore.put(store, key, path)


@contextmanager
def store_trouble_named(what: str) -> Iterator[None]:
    """One line for what a store refuses: StoreError where later may go well, else what to mend."""
    from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise InputError(f"{what}: no such object; check bucket and key") from error
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise RunError(
            f"{what}: the store refuses our credentials; set them in the environment or store.env"
        ) from error
    except BaseError as error:
        raise StoreError(f"{what}: the store does not answer ({_in_short(error)}); try again later") from error


def _stored(key: str, meta: ObjectMeta) -> Stored:
    """What `meta` says of the object; its etag bare, as Azure quotes it in a HEAD and not in a listing."""
    return Stored(key, meta["size"], (meta["e_tag"] or "").strip('"'))


def _in_short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
