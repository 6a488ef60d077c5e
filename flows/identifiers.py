"""Tenants under the key of the home: the same tenant is the same hash here, and another in every other home."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from transforms.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
TENANT_BYTES = 8


def tenant_key(path: Path) -> bytes:
    """The home's key, made with mode 0600 at first use; HomeError where it cannot be read or has another length.

    Workers may ask at the same moment, and any of them may be killed: the key is whole from its first instant.
    """
    try:
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            _make(path)
            key = path.read_bytes()
    except OSError as error:
        raise HomeError(f"{path}: the key of tenant hashes cannot be read or made ({error.strerror})") from error
    if len(key) != KEY_BYTES:
        raise HomeError(f"{path}: holds {len(key)} bytes instead of {KEY_BYTES}; put the old key back, or start anew")
    return key


def _make(path: Path) -> None:
    """Put a new key at `path`, unless another process was first."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink()


def hash_tenants(tenants: pl.Series, key: bytes) -> pl.Series:
    """16 hex characters per tenant: keyed blake2b; NULL stays NULL."""
    known = tenants.unique().drop_nulls().to_list()
    hashed = [hashlib.blake2b(t.encode(), key=key, digest_size=TENANT_BYTES).hexdigest() for t in known]
    if not known:
        return tenants
    return tenants.replace_strict(known, hashed, default=None, return_dtype=pl.String)
