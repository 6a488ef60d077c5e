"""One road from a model, a GPU and an engine to memory and KV account; the command, the build and the plan take it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transforms.errors import CapacityError
from transforms.planner.memory.budget import memory_budget, smallest_tensor_parallel_size
from transforms.planner.memory.kv_account import check_starts, kv_account
from transforms.planner.memory.kv_layers import drafter_layers
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.model_shape import model_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine
    from transforms.planner.memory.budget import MemoryBudget
    from transforms.planner.memory.kv_account import KvAccount
    from transforms.planner.model.model_shape import ModelShape

PLENTY_BYTES = 1 << 50
"""Room for KV that no request fills: what one takes is read off the account."""

RESERVED_BLOCKS = 1
"""vLLM keeps the first block for itself."""


@dataclass(frozen=True)
class KvOnGpu:
    """Engine with its drafter settled, memory of one GPU, KV account of one engine (a data-parallel rank is one)."""

    engine: Engine
    memory: MemoryBudget
    account: KvAccount


def kv_on_gpu(
    config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine, *, refuses_own_length: bool = True
) -> KvOnGpu:
    """Memory and KV account of one engine on `gpu`; CapacityError where weights or one request do not fit.

    Unless `refuses_own_length`, a request as long as the model allows need not fit where max_model_len is not set: the
    account then says that the engine does not start and which length it would start with.
    """
    known_version(engine.name, engine.version)
    shape = model_shape(config, where)
    engine = replace(engine, drafter_layers=drafter_layers(shape, engine))
    try:
        memory = memory_budget(config, gpu, engine, where)
        account = _account(shape, engine, gpu, memory.kv_bytes)
        if refuses_own_length or engine.max_model_len is not None:
            check_starts(account, f"{where} on {gpu.name}")
    except CapacityError as error:
        raise CapacityError(f"{error}{_fitting(config, where, gpu, engine, shape)}") from error
    return KvOnGpu(engine, memory, account)


def _account(shape: ModelShape, engine: Engine, gpu: Gpu, kv_bytes: int) -> KvAccount:
    is_blackwell = gpu.is_data_centre_blackwell
    return kv_account(shape, engine, kv_bytes, holds_states=True, is_data_centre_blackwell=is_blackwell)


def _fitting(config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine, shape: ModelShape) -> str:
    """End of a refusal: the smallest tensor-parallel size whose KV holds one request of max_model_len, if one does."""

    def one_request_bytes(size: int) -> int:
        account = _account(shape, replace(engine, tensor_parallel_size=size), gpu, PLENTY_BYTES)
        blocks = account.blocks_per_request or 0
        return (blocks + RESERVED_BLOCKS) * account.bytes_per_block_per_gpu - 1

    length = engine.max_model_len or shape.max_position_embeddings
    size = smallest_tensor_parallel_size(config, gpu, engine, where, one_request_bytes)
    if length is None or size is None or size == engine.tensor_parallel_size:
        return ""
    return f"; KV for one request of max_model_len {length} takes tensor_parallel_size {size}"
