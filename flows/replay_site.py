"""One deployment as the replay sees it: engine with its release's defaults, KV pool, and what its steps cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.calibrations import load_calibrations
from flows.catalog import load_catalog
from flows.home import Home
from transforms.errors import ConfigError
from transforms.planner.memory.engine_settings import with_defaults
from transforms.planner.memory.kv_account import kv_account
from transforms.planner.memory.kv_layers import drafter_layers
from transforms.planner.memory.kv_on_gpu import PLENTY_BYTES, kv_on_gpu
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.model_shape import model_shape
from transforms.planner.replay.replay_costs import ReplayParameters, replay_costs
from transforms.planner.replay.replay_settings import kv_pool
from transforms.planner.steps.calibration_choice import chosen
from transforms.planner.steps.hardware import engine_work

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from flows.catalog import Catalog
    from transforms.catalog import CatalogModel, Gpu
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_account import KvAccount
    from transforms.planner.replay.replay_settings import KvPool
    from transforms.planner.replay.step_costs import StepCosts
    from transforms.planner.steps.step_work import StepWork


@dataclass(frozen=True)
class ReplaySite:
    """One replica: what it is, what it holds, and how long its steps take."""

    model: CatalogModel
    gpu: Gpu
    engine: Engine
    pool: KvPool
    max_model_len: int | None
    work: StepWork
    parameters: ReplayParameters
    provenance: str
    source: str
    """Where the parameters come from, in words."""
    tpot_error_ratio: float
    """Median error of a time per output token on what the fit has not seen: groups left out, or requests held out."""
    ttft_error_ratio: float
    """The same of a time to the first token."""

    @property
    def costs(self) -> StepCosts:
        """Seconds of a step of one engine: of one data-parallel rank."""
        engine = self.engine
        return replay_costs(self.work, self.parameters, engine.speculative_tokens, engine.data_parallel_size)

    @property
    def title(self) -> str:
        """Model, GPU and tensor-parallel size in words."""
        return f"{self.model.model_id} on {self.gpu.name} tp {self.engine.tensor_parallel_size}"


@dataclass(frozen=True)
class SiteQuestion:
    """What the command line says of a deployment; `given` are the engine's settings it names."""

    model: str
    gpu: str
    engine: Engine
    given: Collection[str] = ()
    kv_blocks: int | None = None


def replay_site(
    question: SiteQuestion, home: Path, calibration: Path | None = None, *, is_carried: bool = False
) -> ReplaySite:
    """The replica asked for, its steps by the file `calibration`, else by the catalog's for that engine and GPU.

    `is_carried`: the calibration may be of another model, GPU or layout, and is carried over.
    """
    catalog = load_catalog(Home(home))
    model, gpu = catalog.model(question.model), catalog.gpu(question.gpu)
    known_version(question.engine.name, question.engine.version)
    engine, _ = with_defaults(question.engine, question.given, model_shape(model.config, model.where), gpu)
    account = _account(model, gpu, engine, question.kv_blocks)
    pool = kv_pool(account, question.kv_blocks, gpu.offload_bytes_per_s)
    site = catalog_site(catalog, model, gpu, engine, pool, account.max_model_len)
    return under_calibration(site, calibration, is_carried=is_carried)


def catalog_site(  # noqa: PLR0917 - the parts of a replica
    catalog: Catalog, model: CatalogModel, gpu: Gpu, engine: Engine, pool: KvPool, max_model_len: int | None
) -> ReplaySite:
    """The replica made of these, its steps by the catalog's calibration for its engine and GPU."""
    usual = chosen(load_calibrations(catalog), engine.name, gpu)
    return ReplaySite(
        model=model,
        gpu=gpu,
        engine=engine,
        pool=pool,
        max_model_len=max_model_len,
        work=engine_work(model.config, model.where, gpu, engine),
        parameters=ReplayParameters(usual.parameters),
        provenance=usual.provenance,
        source=usual.source,
        tpot_error_ratio=usual.tpot_error_ratio,
        ttft_error_ratio=usual.ttft_error_ratio,
    )


def under_calibration(site: ReplaySite, calibration: Path | None, *, is_carried: bool) -> ReplaySite:
    """`site` with its steps by the file `calibration`, carried over where asked; as it is where there is none."""
    if calibration is None:
        return site
    from flows.own_calibration import read_calibration

    return read_calibration(calibration, site, is_carried=is_carried)


def _account(model: CatalogModel, gpu: Gpu, engine: Engine, blocks: int | None) -> KvAccount:
    """KV account of one replica; with blocks from the engine's log only the sizes in it count."""
    if blocks is None:
        return kv_on_gpu(model.config, model.where, gpu, engine).account
    if blocks < 1:
        raise ConfigError(f"kv_blocks = {blocks} must be above zero")
    shape = model_shape(model.config, model.where)
    engine = replace(engine, drafter_layers=drafter_layers(shape, engine))
    is_blackwell = gpu.is_data_centre_blackwell
    return kv_account(shape, engine, PLENTY_BYTES, holds_states=True, is_data_centre_blackwell=is_blackwell)
