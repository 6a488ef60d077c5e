"""The fleet as relations of the build: deployments with their memory and KV groups, who serves what, and settings."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.facts_id import FACTS_ID, MADE_OF, RECIPE, recipe_text
from flows.lake_days import LAKE_DAYS
from flows.lake_days import REQUESTS as REQUEST_DAYS
from flows.raw_inputs import HOURS, SERVES, hours_of_week, register_frame
from flows.warehouse import WAREHOUSE_VERSION
from transforms.errors import ConfigError, KvledgerError
from transforms.fleet import Deployment, Fleet, deployment_of
from transforms.planner.memory.engine_settings import with_defaults
from transforms.planner.memory.kv_on_gpu import kv_on_gpu
from transforms.planner.model.model_shape import model_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.lake_days import LakeDay
    from transforms.catalog import CatalogModel, Gpu
    from transforms.planner.memory.budget import MemoryBudget
    from transforms.planner.memory.kv_account import KvAccount

_TEXT, _COUNT, _REAL, _SIZE, _FLAG = pl.String(), pl.Int64(), pl.Float64(), pl.Int32(), pl.Boolean()

DEPLOYMENTS: Mapping[str, pl.DataType] = {
    "deployment_id": _TEXT,
    "model_id": _TEXT,
    "gpu_id": _TEXT,
    "engine_name": _TEXT,
    "engine_version": _TEXT,
    "tensor_parallel_size": _SIZE,
    "pipeline_parallel_size": _SIZE,
    "data_parallel_size": _SIZE,
    "replicas": _SIZE,
    "gpus_per_replica_gpus": _SIZE,
    "max_model_len_tokens": _COUNT,
    "max_num_seqs_requests": _COUNT,
    "max_num_batched_tokens": _COUNT,
    "gpu_memory_utilization_ratio": _REAL,
    "kv_cache_dtype": _TEXT,
    "has_prefix_caching": _FLAG,
    "slo_ttft_p95_s": _REAL,
    "slo_tpot_p95_s": _REAL,
    "slo_window_s": _REAL,
    "gpu_price_usd_per_hour": _REAL,
    "gpu_memory_bytes": _COUNT,
    "weights_bytes": _COUNT,
    "activation_bytes": _COUNT,
    "non_torch_bytes": _COUNT,
    "kv_capacity_bytes": _COUNT,
    "kv_capacity_tokens": _COUNT,
    "kv_token_bytes": _REAL,
    "memory_provenance": _TEXT,
}
KV_GROUPS: Mapping[str, pl.DataType] = {
    "deployment_id": _TEXT,
    "kv_group": _TEXT,
    "block_tokens": _SIZE,
    "max_blocks": _COUNT,
    "bytes_per_block": _COUNT,
    "fixed_bytes": _COUNT,
}
MEMORY: Mapping[str, pl.DataType] = {
    "deployment_id": _TEXT,
    "name": _TEXT,
    "value_bytes": _COUNT,
    "provenance": _TEXT,
    "source_text": _TEXT,
}
SETTINGS: Mapping[str, pl.DataType] = dict.fromkeys(("name", "value_text", "unit", "provenance", "source_text"), _TEXT)


@dataclass(frozen=True)
class Placed:
    """A deployment with what the catalog and the KV account say of one replica of it."""

    deployment: Deployment
    model: CatalogModel
    gpu: Gpu
    memory: MemoryBudget
    """Of one GPU."""
    account: KvAccount
    """Of one engine: of a replica, or of each of its data-parallel ranks."""
    gpu_price_usd_per_hour: float | None
    window_s: float
    """Span the objective is judged over."""
    assumed_engine: tuple[str, ...]
    """Engine settings that the fleet file leaves to the engine: `deployment.engine` has their defaults."""


def place(deployment: Deployment, fleet: LoadedFleet, catalog: Catalog) -> Placed:
    """`deployment` with its model, GPU, memory and KV account; CatalogError or CapacityError where it cannot be."""
    try:
        model = catalog.model(deployment.model, fleet.base)
        gpu = catalog.gpu(deployment.gpu)
        shape = model_shape(model.config, model.model_id)
        given = {key.removeprefix("engine.") for key in deployment.given if key.startswith("engine.")}
        engine, assumed = with_defaults(deployment.engine, given, shape, gpu)
        found = kv_on_gpu(model.config, model.model_id, gpu, engine)
        price = catalog.prices().of(deployment.gpu, fleet.fleet.prices)
        settled = replace(deployment, engine=engine)
        return Placed(settled, model, gpu, found.memory, found.account, price, deployment.slo.window_s, assumed)
    except KvledgerError as error:
        raise type(error)(f"{fleet.path}: deployment '{deployment.name}': {error}") from error


def register_fleet(
    connection: duckdb.DuckDBPyConnection, fleet: LoadedFleet, catalog: Catalog, days: Sequence[LakeDay], facts: str
) -> None:
    """Make raw_deployments, _kv_groups, _memory, _serves, _settings and _hours of `fleet` (after raw_requests).

    `days` are those the facts are made of, as raw_lake_days; `facts` is their facts_id.
    """
    placed = [place(deployment, fleet, catalog) for deployment in fleet.fleet.deployments]
    models = [row[0] for row in connection.execute("select distinct model from raw_requests").fetchall()]
    register_frame(connection, "raw_deployments", DEPLOYMENTS, map(deployment_row, placed))
    register_frame(connection, "raw_kv_groups", KV_GROUPS, (row for one in placed for row in kv_group_rows(one)))
    register_frame(connection, "raw_memory", MEMORY, (row for one in placed for row in memory_rows(one)))
    register_frame(connection, "raw_serves", SERVES, _serves(models, fleet))
    settings = settings_rows(fleet.fleet, fleet.path, {FACTS_ID: facts, RECIPE: recipe_text(fleet, catalog)})
    register_frame(connection, "raw_settings", SETTINGS, settings)
    register_frame(connection, "raw_lake_days", LAKE_DAYS, map(astuple, days))
    arrivals = sorted({day.arrival_date for day in days if day.lake_part == REQUEST_DAYS})
    register_frame(connection, "raw_hours", HOURS, hours_of_week(arrivals, fleet.fleet.planning.timezone))


def deployment_row(placed: Placed) -> dict[str, Any]:
    """Row of raw_deployments: engine, objective, price, memory of a GPU, KV of a replica."""
    deployment, engine = placed.deployment, placed.deployment.engine
    return {
        "deployment_id": deployment.name,
        "model_id": placed.model.model_id,
        "gpu_id": placed.gpu.name,
        "engine_name": engine.name,
        "engine_version": engine.version,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "pipeline_parallel_size": engine.pipeline_parallel_size,
        "data_parallel_size": engine.data_parallel_size,
        "replicas": deployment.replicas,
        "gpus_per_replica_gpus": placed.account.replica_gpus,
        "max_model_len_tokens": placed.account.max_model_len,
        "max_num_seqs_requests": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "gpu_memory_utilization_ratio": engine.gpu_memory_utilization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "has_prefix_caching": engine.enable_prefix_caching,
        "slo_ttft_p95_s": deployment.slo.ttft_p95_s,
        "slo_tpot_p95_s": deployment.slo.tpot_p95_s,
        "slo_window_s": placed.window_s,
        "gpu_price_usd_per_hour": placed.gpu_price_usd_per_hour,
        "gpu_memory_bytes": placed.gpu.memory_bytes,
        "weights_bytes": placed.memory.weights_bytes,
        "activation_bytes": placed.memory.activation_bytes,
        "non_torch_bytes": placed.memory.non_torch_bytes,
        "kv_capacity_bytes": placed.account.replica_capacity_bytes,
        "kv_capacity_tokens": placed.account.replica_capacity_tokens,
        "kv_token_bytes": float(placed.account.bytes_per_token),
        "memory_provenance": placed.memory.provenance["kv_bytes"],
    }


def kv_group_rows(placed: Placed) -> list[dict[str, Any]]:
    """Rows of raw_kv_groups: the groups of the KV account, what a request holds on the one rank that has it."""
    return [
        {
            "deployment_id": placed.deployment.name,
            "kv_group": group.name,
            "block_tokens": group.block_tokens,
            "max_blocks": group.max_blocks,
            "bytes_per_block": group.bytes_per_block,
            "fixed_bytes": group.fixed_bytes,
        }
        for group in placed.account.groups
    ]


def memory_rows(placed: Placed) -> list[dict[str, Any]]:
    """Rows of raw_memory: each part of one GPU's memory with its provenance and source."""
    memory = placed.memory
    return [
        {
            "deployment_id": placed.deployment.name,
            "name": "gpu_memory_bytes" if part == "total_bytes" else part,
            "value_bytes": getattr(memory, part),
            "provenance": memory.provenance[part],
            "source_text": memory.sources[part],
        }
        for part in sorted(memory.provenance)
    ]


def serves_rows(models: Iterable[str | None], fleet: Fleet) -> list[tuple[str | None, str]]:
    """(model, deployment) for each of `models` that a deployment of `fleet` serves; None is a row without a model."""
    resolved = (
        (model, deployment_of(model, fleet.deployments)) for model in sorted(set(models), key=lambda m: m or "")
    )
    return [(model, name) for model, name in resolved if name is not None]


def _serves(models: Iterable[str | None], fleet: LoadedFleet) -> list[tuple[str | None, str]]:
    try:
        return serves_rows(models, fleet.fleet)
    except ConfigError as error:
        raise ConfigError(f"{fleet.path}: {error}") from error


def settings_rows(fleet: Fleet, path: Path, made_of: Mapping[str, str]) -> list[dict[str, str]]:
    """Rows of raw_settings: `[planning]`, privacy, the versions that made the warehouse and what it is `made_of`."""
    planning, source = fleet.planning, path.name
    settings = [
        ("headroom_ratio", f"{planning.headroom_ratio:g}", "ratio", source),
        ("spare_replicas", str(planning.spare_replicas), "replicas", source),
        ("lead_time_days", str(planning.lead_time_days), "days", source),
        ("horizon_weeks", str(planning.horizon_weeks), "weeks", source),
        ("timezone", planning.timezone, "", source),
        ("identifiers", fleet.privacy.identifiers, "", source),
    ]
    versions = [
        ("kvledger_version", version("kvledger"), "", "installed package"),
        ("duckdb_version", version("duckdb"), "", "installed package"),
        ("warehouse_version", str(WAREHOUSE_VERSION), "", "installed package"),
        *((name, value, "", MADE_OF[name]) for name, value in made_of.items()),
    ]
    rows = [(*row, "assumed") for row in settings] + [(*row, "measured") for row in versions]
    return [
        {"name": name, "value_text": value, "unit": unit, "source_text": where, "provenance": word}
        for name, value, unit, where, word in rows
    ]
