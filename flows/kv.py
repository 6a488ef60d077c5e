"""The KV account of a model on the command line or of a deployment: catalog, memory budget and account put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.catalog import Catalog, load_catalog
from flows.home import Home
from transforms.errors import ConfigError, KvledgerError
from transforms.fleet import Engine
from transforms.fleet_limits import check_scheduling
from transforms.planner.memory.kv_account import default_prefix_caching, kv_account
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.model_shape import ModelShape, model_shape

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from flows.fleet import LoadedFleet
    from transforms.catalog import CatalogModel, Gpu
    from transforms.fleet import Deployment
    from transforms.planner.memory.budget import MemoryBudget
    from transforms.planner.memory.kv_account import KvAccount

GIB_BYTES = 1 << 30
MOST_BYTES = 1 << 50


@dataclass(frozen=True)
class KvQuestion:
    """What `kvledger kv` was asked; None leaves a value to the engine's default."""

    model: str | None = None
    engine: str = "vllm"
    engine_version: str | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
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
    assumed: tuple[str, ...] = ()
    """Engine settings that nobody gave: `engine` has the release's defaults on that GPU."""


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
    engine = _engine(question, shape)
    if question.max_num_seqs and question.max_num_batched_tokens:
        check_scheduling(engine, "engine settings:")
    if gpu is not None:
        return _on_gpu(model, engine, _given(question), gpu, model.model_id, refuses_own_length=False)
    gib = question.available_kv_gib or 0.0
    if not gib * GIB_BYTES <= MOST_BYTES:
        raise ConfigError(f"--available-kv-gib {gib:g}: must be a number of at most {MOST_BYTES // GIB_BYTES} GiB")
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
    return [deployment_kv(deployment, catalog, loaded) for deployment in loaded.fleet.deployments]


def deployment_kv(deployment: Deployment, catalog: Catalog, loaded: LoadedFleet) -> KvAnswer:
    """KV account of one replica of a deployment of the fleet file `loaded`, which errors name."""
    try:
        model = catalog.model(deployment.model, loaded.base)
        gpu = catalog.gpu(deployment.gpu)
        given = {key.removeprefix("engine.") for key in deployment.given if key.startswith("engine.")}
        return _on_gpu(model, deployment.engine, given, gpu, f"{deployment.name}: {model.model_id}")
    except KvledgerError as error:
        raise type(error)(f"{loaded.path}: deployment '{deployment.name}': {error}") from error


def _on_gpu(
    model: CatalogModel,
    engine: Engine,
    given: Collection[str],
    gpu: Gpu,
    title: str,
    *,
    refuses_own_length: bool = True,
) -> KvAnswer:
    from transforms.planner.memory.engine_settings import with_defaults
    from transforms.planner.memory.kv_on_gpu import kv_on_gpu

    known_version(engine.name, engine.version)
    engine, assumed = with_defaults(engine, given, model_shape(model.config, model.where), gpu)
    found = kv_on_gpu(model.config, model.where, gpu, engine, refuses_own_length=refuses_own_length)
    return KvAnswer(title, model.model_id, found.engine, found.account, gpu, found.memory, assumed)


def _given(question: KvQuestion) -> set[str]:
    """Engine settings that the command line names, of those that have a default of their own."""
    named = {
        "max_num_seqs": question.max_num_seqs,
        "max_num_batched_tokens": question.max_num_batched_tokens,
        "gpu_memory_utilization": question.gpu_memory_utilization,
        "enable_prefix_caching": question.prefix_caching,
    }
    return {key for key, value in named.items() if value is not None}


def _engine(question: KvQuestion, shape: ModelShape) -> Engine:
    """Engine asked for, with the version's own defaults where nothing was said."""
    known_version(question.engine, question.engine_version)
    usual = Engine()
    caching = question.prefix_caching
    if caching is None:
        caching = default_prefix_caching(shape, question.engine, question.engine_version)
    manager = question.hybrid_kv_manager
    return Engine(
        name=question.engine,
        version=question.engine_version,
        tensor_parallel_size=question.tp,
        pipeline_parallel_size=question.pp,
        data_parallel_size=question.dp,
        decode_context_parallel_size=question.dcp,
        max_model_len=question.max_model_len,
        max_num_seqs=question.max_num_seqs or usual.max_num_seqs,
        max_num_batched_tokens=question.max_num_batched_tokens or usual.max_num_batched_tokens,
        gpu_memory_utilization=question.gpu_memory_utilization or usual.gpu_memory_utilization,
        kv_cache_dtype=question.kv_cache_dtype,
        block_size=question.block_size,
        disable_hybrid_kv_cache_manager=None if manager is None else not manager,
        enable_prefix_caching=caching,
        speculative_tokens=question.speculative_tokens,
        drafter_layers=question.drafter_layers,
    )
