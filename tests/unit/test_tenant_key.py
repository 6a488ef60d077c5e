"""The key of tenant hashes: one for all who ask at once, whole from its first instant, readable to its owner only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from flows.identifiers import KEY_BYTES, tenant_key
from transforms.errors import HomeError


def test_all_who_ask_at_once_get_the_same_key(tmp_path):
    together = Barrier(8)

    def ask(trial):
        together.wait()
        return tenant_key(tmp_path / f"{trial}.key")

    with ThreadPoolExecutor(8) as askers:
        for trial in range(20):
            keys = set(askers.map(ask, [trial] * 8))
            assert {len(key) for key in keys} == {KEY_BYTES}
            assert len(keys) == 1
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 20


def test_a_key_that_is_not_whole_is_refused(tmp_path):
    (tmp_path / "tenant.key").write_bytes(b"short")
    with pytest.raises(HomeError, match="holds 5 bytes instead of 32; put the old key back"):
        tenant_key(tmp_path / "tenant.key")
