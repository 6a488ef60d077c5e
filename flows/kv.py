"""The KV account of a model on the command line or of a deployment: catalog, memory budget and account put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.catalog import Catalog, load_catalog
from flows.home import Home
from transforms.errors import ConfigError, KvledgerError
from transforms.fleet import Engine
from transforms.planner.kv_account import default_prefix_caching, kv_account
from transforms.planner.kv_versions import known_version
from transforms.planner.model_shape import ModelShape, model_shape

if TYPE_CHECKING:
    from pathlib import Path

    from transforms.catalog import CatalogModel, Gpu
    from transforms.fleet import Deployment
    from transforms.planner.kv_account import KvAccount
    from transforms.planner.memory import MemoryBudget

GIB_BYTES = 1 << 30


@dataclass(frozen=True)
class KvQuestion:
    """What `kvledger kv` was asked; None leaves a value to the engine's default."""

    model: str | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    speculative_tokens: int = 0
    drafter_layers: int = 0
    prefix_caching: bool | None = None
    hybrid_kv_manager: bool | None = None
    available_kv_bytes: int | None = None
    available_kv_gib: float | None = None
    gpu: str | None = None
    gpu_memory_utilization: float | None = None


@dataclass(frozen=True)
class KvAnswer:
    """The account, what it was asked for, and where the memory for KV comes from if a GPU was named."""

    title: str
    model_id: str
    engine: Engine
    account: KvAccount
    gpu: Gpu | None = None
    budget: MemoryBudget | None = None


def answer_model(question: KvQuestion, home: Path) -> KvAnswer:
    """KV account of one model with the room for KV given in bytes, in GiB or as a GPU; errors name what is amiss."""
    if question.model is None:
        raise ConfigError("kv needs a model: give --model CONFIG.json, or --fleet FILE for every deployment")
    rooms = (question.available_kv_bytes, question.available_kv_gib, question.gpu)
    if sum(room is not None for room in rooms) != 1:
        raise ConfigError(
            "kv needs the room for KV exactly once: give --available-kv-bytes, --available-kv-gib or --gpu"
        )
    catalog = load_catalog(Home(home))
    model = catalog.model(question.model)
    shape = model_shape(model.config, model.where)
    gpu = catalog.gpu(question.gpu) if question.gpu is not None else None
    engine = _engine(question, shape, gpu)
    if gpu is not None:
        return _on_gpu(model, engine, gpu, model.model_id)
    gib = question.available_kv_gib or 0.0
    available_bytes = question.available_kv_bytes or int(gib * GIB_BYTES)
    return KvAnswer(model.model_id, model.model_id, engine, kv_account(shape, engine, available_bytes))


def answer_fleet(question: KvQuestion, path: Path, home: Path) -> list[KvAnswer]:
    """KV account of every deployment of the fleet file at `path`, in its order."""
    from flows.fleet import load_fleet

    if question != KvQuestion():
        raise ConfigError("--fleet takes models, engines and GPUs from the file; drop the other options of kv")
    loaded = load_fleet(path, Home(home))
    if not loaded.fleet.deployments:
        raise ConfigError(f"{path}: the fleet file has no [[deployments]]; add one")
    catalog = load_catalog(Home(home))
    return [deployment_kv(deployment, catalog, loaded.base) for deployment in loaded.fleet.deployments]


def deployment_kv(deployment: Deployment, catalog: Catalog, base: Path) -> KvAnswer:
    """KV account of one replica of `deployment`; `base` is the folder its model path starts at."""
    try:
        model = catalog.model(deployment.model, base)
        gpu = catalog.gpu(deployment.gpu)
        return _on_gpu(model, deployment.engine, gpu, f"{deployment.name}: {model.model_id}")
    except KvledgerError as error:
        raise type(error)(f"deployment '{deployment.name}': {error}") from error


def _on_gpu(model: CatalogModel, engine: Engine, gpu: Gpu, title: str) -> KvAnswer:
    from transforms.planner.kv_on_gpu import kv_on_gpu

    found = kv_on_gpu(model.config, model.where, gpu, engine)
    return KvAnswer(title, model.model_id, found.engine, found.account, gpu, found.memory)


def _engine(question: KvQuestion, shape: ModelShape, gpu: Gpu | None) -> Engine:
    """Engine asked for, with the version's own defaults where nothing was said."""
    known_version(question.engine, question.engine_version)
    usual = Engine()
    tokens, sequences, share = usual.max_num_batched_tokens, usual.max_num_seqs, usual.gpu_memory_utilization
    if gpu is not None:
        from transforms.planner.memory import engine_defaults

        defaults = engine_defaults(gpu, question.engine, question.engine_version)
        tokens, sequences = defaults.max_num_batched_tokens, defaults.max_num_seqs
        share = defaults.gpu_memory_utilization
    caching = question.prefix_caching
    if caching is None:
        caching = default_prefix_caching(shape, question.engine, question.engine_version)
    manager = question.hybrid_kv_manager
    return Engine(
        name=question.engine,
        version=question.engine_version,
        tensor_parallel_size=question.tp,
        pipeline_parallel_size=question.pp,
        decode_context_parallel_size=question.dcp,
        max_model_len=question.max_model_len,
        max_num_seqs=question.max_num_seqs or sequences,
        max_num_batched_tokens=question.max_num_batched_tokens or tokens,
        gpu_memory_utilization=question.gpu_memory_utilization or share,
        kv_cache_dtype=question.kv_cache_dtype,
        block_size=question.block_size,
        disable_hybrid_kv_cache_manager=None if manager is None else not manager,
        enable_prefix_caching=caching,
        speculative_tokens=question.speculative_tokens,
        drafter_layers=question.drafter_layers,
    )
