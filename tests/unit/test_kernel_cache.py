"""The compiled kernel's folder: a new one after any change of its sources; compiling is announced while it is empty."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import pytest

from flows import kernel_cache


@pytest.fixture
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVLEDGER_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ["NUMBA_CACHE_DIR"])  # put back afterwards
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)


@pytest.mark.usefixtures("_own_folder")
def test_the_folder_follows_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = kernel_cache.use_kernel_cache()
    assert first == kernel_cache.use_kernel_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == str(first)
    assert first.parent == tmp_path
    monkeypatch.setattr(kernel_cache, "_SOURCES", ("kernel/*.py",))
    assert kernel_cache.use_kernel_cache() != first


@pytest.mark.usefixtures("_own_folder")
def test_compiling_is_announced_once() -> None:
    said: list[str] = []
    folder = kernel_cache.use_kernel_cache(said.append)
    assert len(said) == 1
    (folder / "run.run-26.py311.nbi").touch()
    kernel_cache.use_kernel_cache(said.append)
    assert len(said) == 1
