"""One deployment under one scenario: what is refused and cut, the replay, the GPUs it needs. Runs in a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from flows.calibrations import calibration_path
from flows.catalog import load_catalog
from flows.deployments import place
from flows.kernel_cache import use_kernel_cache
from flows.replay_site import catalog_site, under_calibration
from flows.sites import SEED, site_of
from flows.whatif_traffic import traffic_of
from transforms.errors import InputError, KvledgerError
from transforms.planner.provenance import MODELLED, weakest
from transforms.planner.replay.replay_settings import kv_pool, replay_settings
from transforms.planner.whatif.context_limit import Fate, LimitRules, limited
from transforms.planner.whatif.limit_counts import limit_counts, log_clamps, raised_limit
from transforms.planner.whatif.needed import needed_fleet
from transforms.planner.whatif.offered import scaled_traffic
from transforms.planner.whatif.replayed import fixed_fleet, fixed_fleet_figures, replay_figures
from transforms.planner.whatif.rewriting import limited_workload, served_columns
from transforms.planner.whatif.settings import changed
from transforms.planner.whatif.shared_replays import SharedReplays

if TYPE_CHECKING:
    from flows.catalog import Catalog
    from flows.deployments import Placed
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.replay_site import ReplaySite
    from transforms.fleet import Deployment
    from transforms.planner.whatif.context_limit import Limited
    from transforms.planner.whatif.offered import Offered
    from transforms.planner.whatif.scenarios import Scenario
    from transforms.planner.whatif.settings import Changed

ANSWERED, NOT_STARTED, NO_TRAFFIC = "answered", "does not start", "no traffic"


@dataclass(frozen=True)
class Question:
    """One deployment of the fleet under one scenario, in one week of which `covered_s` is logged."""

    home: Home
    fleet: LoadedFleet
    deployment: Deployment
    scenario: Scenario
    position: int
    """Of the scenario among those asked for: 0 for today."""
    week: str
    covered_s: float
    max_model_len: int | None
    """Of the deployment today."""


def answer(question: Question) -> dict[str, Any]:
    """Row of plan_scenarios but for its keys; what cannot run says so in `outcome` and `reason_text`."""
    catalog = load_catalog(question.home)
    asked = changed(question.deployment, question.fleet.fleet.planning, question.scenario.settings)
    today, has_blocks = question.max_model_len, question.deployment.engine.enable_prefix_caching
    try:
        traffic = traffic_of(question.home, question.deployment.name, question.week, today, SEED, has_blocks)
        traffic = scaled_traffic(traffic, asked.options.rate_scale, asked.options.scale_mode, asked.options.seed)
    except InputError as error:
        return {"outcome": NO_TRAFFIC, "reason_text": str(error), "provenance": MODELLED}
    try:
        placed = place(asked.deployment, _planned(question.fleet, asked), catalog)
        limit, reason = placed.account.max_model_len, None
    except KvledgerError as error:
        placed, limit = None, asked.deployment.engine.max_model_len or today
        reason = str(error.__cause__ or error)
    rules = _rules(asked, limit, today, traffic)
    found = limited(traffic.turns, rules)
    row = _lengths(traffic, found, rules, today)
    if placed is None:
        return {**row, "outcome": NOT_STARTED, "reason_text": reason}
    try:
        return {**row, **_timed(question, asked, placed, catalog, traffic, found)}
    except KvledgerError as error:
        return {**row, "outcome": NOT_STARTED, "reason_text": str(error)}


def _rules(asked: Changed, limit: int | None, today: int | None, traffic: Offered) -> LimitRules:
    told = asked.refusals.requested_output
    usual = "clamp" if log_clamps(traffic.turns, today) else "reject"
    return LimitRules(limit, told or usual, asked.refusals.rejected_turn, asked.refusals.compact_ratio)


def _lengths(traffic: Offered, found: Limited, rules: LimitRules, today: int | None) -> dict[str, Any]:
    """What follows from lengths and order alone."""
    return {
        **limit_counts(traffic.turns, found, rules),
        **raised_limit(traffic.turns, today, rules.max_model_len),
        "drawn_requests": traffic.trace.drawn_outputs,
        "left_out_requests": traffic.left_out_requests,
        "provenance": MODELLED,
    }


def _timed(  # noqa: PLR0917 - what the question has become on the way
    question: Question, asked: Changed, placed: Placed, catalog: Catalog, traffic: Offered, found: Limited
) -> dict[str, Any]:
    """What takes a clock: the replay on the fleet as it would stand, and the GPUs that the traffic needs."""
    use_kernel_cache()
    fleet = _planned(question.fleet, asked)
    site = site_of(placed, fleet, catalog, question.covered_s)
    engine = replay_site_of(placed, fleet, catalog, is_carried=asked.options.carry_calibration)
    gpus, is_running = site.replica.gpus, asked.deployment.replicas > 0
    figures = _replayed(question, asked, engine, gpus, traffic, found) if is_running else {}
    nothing = "no request is left to replay" if is_running else "no replica runs today, so nothing is replayed"
    return {
        "outcome": ANSWERED,
        "reason_text": None if figures else nothing,
        **figures,
        **needed_fleet(limited_workload(traffic, found), site, is_replayed=question.scenario.swept is None),
        "step_time_source": engine.source,
        "provenance": weakest(MODELLED, engine.provenance, site.replica.step.provenance, site.memory_provenance),
    }


def _replayed(  # noqa: PLR0917 - see _timed
    question: Question, asked: Changed, engine: ReplaySite, gpus: int, traffic: Offered, found: Limited
) -> dict[str, Any]:
    """What the replay answers, and the fixed fleet's beside an autoscaler; nothing where no request is left."""
    columns, replays = served_columns(traffic, found), _replays()
    if not columns.rows:
        return {}
    trace = replace(traffic.trace, columns=columns)
    settings = replay_settings(engine.engine, asked.options, engine.pool.pool, engine.max_model_len, trace)
    result = replays.result(columns, settings, engine.costs)
    refused = int((~found.is_served & (found.fate != Fate.LOST)).sum())
    figures = replay_figures(result, columns, engine.pool, asked.options, refused, gpus)
    fixed = fixed_fleet(settings, question.deployment.replicas)
    if fixed is None:
        return figures
    beside = replays.result(columns, fixed, engine.costs)
    return {**figures, **fixed_fleet_figures(beside, fixed, asked.options, refused, gpus)}


@cache
def _replays() -> SharedReplays:
    """Those of this worker."""
    return SharedReplays()


def replay_site_of(placed: Placed, fleet: LoadedFleet, catalog: Catalog, *, is_carried: bool = False) -> ReplaySite:
    """One replica of a placed deployment as the replay sees it, its steps by its own calibration or the catalog's."""
    pool = kv_pool(placed.account, host_bytes_per_s=placed.gpu.offload_bytes_per_s)
    engine, own = placed.deployment.engine, calibration_path(placed.deployment.calibration, fleet)
    site = catalog_site(catalog, placed.model, placed.gpu, engine, pool, placed.account.max_model_len)
    return under_calibration(site, own, is_carried=is_carried)


def _planned(fleet: LoadedFleet, asked: Changed) -> LoadedFleet:
    return replace(fleet, fleet=replace(fleet.fleet, planning=asked.planning))
