"""Hashes that need a secret or a fast engine: tenants under HOME/tenant.key, and the ids of rows that have none."""

from __future__ import annotations

import hashlib
import os
import secrets
from typing import TYPE_CHECKING

import polars as pl

from transforms.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
TENANT_BYTES = 8
CONTENT_HEX = 16
FEW_ROWS = 20_000
"""Below this Python's hashlib is done before DuckDB has started."""


def tenant_key(path: Path) -> bytes:
    """The home's key, made with mode 0600 at first use; HomeError where it cannot be read or has another length."""
    try:
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            key = path.read_bytes()
        else:
            key = secrets.token_bytes(KEY_BYTES)
            with os.fdopen(handle, "wb") as file:
                file.write(key)
    except OSError as error:
        raise HomeError(f"{path}: the key of tenant hashes cannot be read or made ({error.strerror})") from error
    if len(key) != KEY_BYTES:
        raise HomeError(f"{path}: holds {len(key)} bytes instead of {KEY_BYTES}; put the old key back, or start anew")
    return key


def hash_tenants(tenants: pl.Series, key: bytes) -> pl.Series:
    """16 hex characters per tenant: keyed blake2b; NULL stays NULL."""
    known = tenants.unique().drop_nulls().to_list()
    hashed = [hashlib.blake2b(t.encode(), key=key, digest_size=TENANT_BYTES).hexdigest() for t in known]
    if not known:
        return tenants
    return tenants.replace_strict(known, hashed, default=None, return_dtype=pl.String)


def content_ids(texts: pl.Series) -> pl.Series:
    """First 16 hex characters of the sha256 of each text."""
    if len(texts) < FEW_ROWS:
        ids = [hashlib.sha256(text.encode()).hexdigest()[:CONTENT_HEX] for text in texts]
        return pl.Series("content_id", ids, dtype=pl.String)
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("texts", texts.rename("content").to_frame())
        found = connection.sql("select substr(sha256(content), 1, $1) as content_id from texts", params=[CONTENT_HEX])
        return pl.DataFrame(found.to_arrow_table())["content_id"]
