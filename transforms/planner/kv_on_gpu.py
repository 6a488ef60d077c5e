"""One road from a model, a GPU and an engine to memory and KV account; the command, the build and the plan take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transforms.planner.kv_account import check_starts, kv_account
from transforms.planner.kv_layers import drafter_layers
from transforms.planner.kv_versions import known_version
from transforms.planner.memory import memory_budget
from transforms.planner.model_shape import model_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine
    from transforms.planner.kv_account import KvAccount
    from transforms.planner.memory import MemoryBudget


@dataclass(frozen=True)
class KvOnGpu:
    """Engine with its drafter settled, memory of one GPU, KV account of one replica."""

    engine: Engine
    memory: MemoryBudget
    account: KvAccount


def kv_on_gpu(config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine) -> KvOnGpu:
    """Memory and KV account of one replica on `gpu`; CapacityError where weights or one request do not fit."""
    known_version(engine.name, engine.version)
    shape = model_shape(config, where)
    engine = replace(engine, drafter_layers=drafter_layers(shape, engine))
    memory = memory_budget(config, gpu, engine, where)
    is_blackwell = gpu.is_data_centre_blackwell
    account = kv_account(shape, engine, memory.kv_bytes, holds_states=True, is_data_centre_blackwell=is_blackwell)
    if engine.max_model_len is not None:
        check_starts(account, f"{where} on {gpu.name}")
    return KvOnGpu(engine, memory, account)
