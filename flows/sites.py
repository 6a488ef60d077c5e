"""What the planner knows of a placed deployment: its replica, clock and price, and how its GPUs are had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.calibrations import deployment_calibration
from transforms.planner.replay.replay_settings import kv_pool
from transforms.planner.sizing.gpus import Terms
from transforms.planner.sizing.plan_replicas import Price, Site
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.hardware import step_model

if TYPE_CHECKING:
    from flows.catalog import Catalog
    from flows.deployments import Placed
    from flows.fleet import LoadedFleet
    from transforms.fleet import Engine, Slo

    Named = tuple[str, float]

SEED = 20_240_101
"""Seed of every draw a plan makes; part of its run_id."""

SLO_TARGETS = ("ttft_p95_s", "tpot_p95_s")


def site_of(placed: Placed, fleet: LoadedFleet, catalog: Catalog, covered_s: float) -> Site:
    """What the planner knows of one deployment: replica, clock, price, and how its GPUs are had."""
    engine, account, planning = placed.deployment.engine, placed.account, fleet.fleet.planning
    given = placed.deployment.given
    calibration = deployment_calibration(placed, fleet, catalog)
    step = step_model(placed.model.config, placed.model.model_id, placed.gpu, engine, calibration)
    replica = Replica(
        step=step,
        groups=account.groups,
        kv_token_bytes=account.bytes_per_token,
        kv_capacity_bytes=account.replica_capacity_bytes,
        kv_capacity_tokens=account.replica_capacity_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len_tokens=account.max_model_len,
        has_prefix_caching=engine.enable_prefix_caching,
        gpus=account.replica_gpus,
        ttft_p95_s=placed.deployment.slo.ttft_p95_s,
        tpot_p95_s=placed.deployment.slo.tpot_p95_s,
        window_s=max(1, round(placed.window_s)),
        engine=engine,
        pool=kv_pool(account, host_bytes_per_s=placed.gpu.offload_bytes_per_s).pool,
        mixed_context_factor=calibration.mixed_context_factor,
    )
    return Site(
        replica=replica,
        now_replicas=placed.deployment.replicas,
        terms=Terms(account.replica_gpus, placed.gpu.gpus_per_node, placed.gpu.is_whole_node, planning.spare_replicas),
        headroom_ratio=planning.headroom_ratio,
        price=_price(placed, fleet, catalog),
        memory_provenance=placed.memory.provenance["kv_bytes"],
        covered_s=covered_s,
        seed=SEED,
        step_error_ratio=calibration.tpot_error_ratio,
        assumed_slo=_assumed(placed.deployment.slo, SLO_TARGETS, given, "slo."),
        assumed_engine=_assumed(engine, placed.assumed_engine, frozenset(), ""),
    )


def _assumed(table: Slo | Engine, keys: tuple[str, ...], given: frozenset[str], prefix: str) -> tuple[Named, ...]:
    """Those of `keys` that `given` does not name, with the value they have."""
    return tuple((key, float(getattr(table, key))) for key in keys if prefix + key not in given)


def _price(placed: Placed, fleet: LoadedFleet, catalog: Catalog) -> Price | None:
    usd = placed.gpu_price_usd_per_hour
    if usd is None:
        return None
    if placed.gpu.name in fleet.fleet.prices:
        return Price(usd, "assumed", f"[prices] of {fleet.path.name}")
    prices = catalog.prices()
    return Price(usd, prices.provenance, prices.sources.get(placed.gpu.name, "catalog"))
