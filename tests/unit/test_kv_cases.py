"""Real start-up logs: the account prints what the engine printed, within the rounding of the log."""

from __future__ import annotations

import csv
import json
import re
import statistics
from pathlib import Path

import pytest

from transforms.errors import CatalogError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import KvAccount, default_prefix_caching, kv_account
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.model_shape import model_shape

pytestmark = pytest.mark.shared

GIB = 1 << 30
MEDIAN_ERROR_RATIO = 1.5e-4  # what check/kv_truth.py allows
Row = dict[str, str]


def rows(shared: Path) -> list[Row]:
    with (shared / "cases" / "kv" / "cases.csv").open() as lines:
        return list(csv.DictReader(lines))


def number(text: str) -> int | None:
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None


def answer(row: Row, shared: Path) -> KvAccount:
    config = json.loads((shared / "cases" / "kv" / "configs" / f"{row['config_file']}.json").read_text())
    shape = model_shape(config, row["config_file"])
    name, version = row["engine"].split()[0], row["cli_version"] or None
    caching = {"on": True, "off": False}.get(row["cli_prefix_caching"], default_prefix_caching(shape, name, version))
    engine = Engine(
        name=name,
        version=version,
        tensor_parallel_size=number(row["tp"]) or 1,
        pipeline_parallel_size=number(row["pp"]) or 1,
        decode_context_parallel_size=number(row["dcp"]) or 1,
        block_size=number(row["block_size"]),
        max_num_batched_tokens=number(row["max_num_batched_tokens"]) or 8192,
        speculative_tokens=number(row["spec"]) or 0,
        drafter_layers=number(row["cli_drafter_layers"]) or 0,
        kv_cache_dtype=row["cli_kv_cache_dtype"],
        max_model_len=number(row["concurrency_len"] or row["max_model_len"]),
        enable_prefix_caching=caching,
        disable_hybrid_kv_cache_manager={"on": False, "off": True}.get(row["cli_hybrid_kv_manager"]),
    )
    given = number(row["avail_kv_bytes"]) or int(float(row["avail_kv_gib_per_gpu"]) * GIB)
    return kv_account(shape, engine, given)


def checkable(row: Row, shared: Path) -> bool:
    config = shared / "cases" / "kv" / "configs" / f"{row['config_file']}.json"
    has_room = bool(row["avail_kv_bytes"] or row["avail_kv_gib_per_gpu"])
    is_known = "DeepSeek-V4" not in row["model"] and row["tolerance"] != "skip"
    return has_room and bool(row["kv_tokens"]) and config.exists() and is_known


def tolerance_ratio(row: Row, block_tokens: int) -> float:
    """Half a hundredth of a GiB, one block, and 2e-4; nothing where the log gives bytes."""
    if row["avail_kv_bytes"]:
        return 0.0
    rounding = 0.005 / float(row["avail_kv_gib_per_gpu"]) + block_tokens / int(row["kv_tokens"]) + 2e-4
    return max(float(row["tolerance"] or 0), rounding)


def test_every_log_is_met(shared_dir: Path) -> None:
    cases = [row for row in rows(shared_dir) if checkable(row, shared_dir)]
    assert len(cases) >= 55
    off, errors = [], []
    for row in cases:
        found = answer(row, shared_dir)
        allowed = tolerance_ratio(row, found.block_size_tokens)
        error = found.reported_tokens / int(row["kv_tokens"]) - 1
        errors.append(abs(error))
        if abs(error) > allowed:
            off.append(f"{row['id']}: {found.reported_tokens} for {row['kv_tokens']}")
        if row["max_concurrency"] and row["concurrency_len"]:
            logged = float(row["max_concurrency"])
            if abs((found.max_concurrency or 0) / logged - 1) > allowed + 0.0051 / logged + 0.002:
                off.append(f"{row['id']}: concurrency {found.max_concurrency} for {logged}")
    assert off == []
    assert statistics.median(errors) <= MEDIAN_ERROR_RATIO


def test_hybrids_are_met_to_the_token(shared_dir: Path) -> None:
    """Where a log rounds its GiB, one block more or less is within it; hybrids with large blocks come out exactly."""
    exact = [row for row in rows(shared_dir) if checkable(row, shared_dir) and row["mode"] and row["engine"] == "vllm"]
    met = [row["id"] for row in exact if answer(row, shared_dir).reported_tokens == int(row["kv_tokens"])]
    assert len(met) >= len(exact) - 1


def test_concurrency_of_logs_without_memory(shared_dir: Path) -> None:
    """Blocks follow from the printed tokens where a log names no GiB; its concurrency must follow from them."""
    lfm = next(row for row in rows(shared_dir) if row["id"] == "lfm25-1.2b-metax")
    block_bytes = answer(lfm | {"avail_kv_bytes": str(GIB)}, shared_dir).bytes_per_block_per_gpu
    blocks = int(lfm["kv_tokens"]) // 16 * 3
    found = answer(lfm | {"avail_kv_bytes": str(blocks * block_bytes)}, shared_dir)
    assert found.reported_tokens == int(lfm["kv_tokens"])
    assert round(found.max_concurrency or 0, 2) == pytest.approx(float(lfm["max_concurrency"]), abs=0.02)


def test_deepseek_v4_is_refused_by_name(shared_dir: Path) -> None:
    refused = [row for row in rows(shared_dir) if "DeepSeek-V4" in row["model"]]
    assert refused
    for row in refused:
        with pytest.raises(CatalogError, match="DeepSeek-V4"):
            answer(row, shared_dir)


def test_every_version_of_the_logs_is_known(shared_dir: Path) -> None:
    for row in rows(shared_dir):
        known_version(row["engine"].split()[0], row["cli_version"] or None)
