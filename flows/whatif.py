"""What-ifs: today and every scenario on the same week's traffic, side by side, kept as plan_scenarios and reported."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.build import rebuild_marts
from flows.catalog import load_catalog
from flows.deployments import place
from flows.facts_id import has_current_facts
from flows.kernel_cache import use_kernel_cache
from flows.lake_files import write_table
from flows.plan import SCENARIOS, check_facts, covered_s_of, former_scenarios, plan_folder, run_id_of, weeks_of
from flows.printing import print_note
from flows.scenario_files import read_scenario
from flows.warehouse import published
from flows.whatif_answer import Question, answer
from flows.whole_file import whole_file
from transforms.errors import ConfigError, DataError, nearest
from transforms.planner.sizing.plan_tables import PLAN_GRAINS, PLAN_TABLES, plan_rows
from transforms.planner.whatif.curve import mark_curves
from transforms.planner.whatif.scenarios import parse_sets, parse_sweep, scenarios_of
from transforms.planner.whatif.settings import changed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.progress import Progress
    from transforms.fleet import Deployment
    from transforms.planner.whatif.scenarios import Scenario


@dataclass(frozen=True)
class Asked:
    """What `kvledger whatif` was asked on its command line, as typed."""

    sets: Sequence[str] = ()
    scenarios: Sequence[str] = ()
    sweeps: Sequence[str] = ()
    scale: float | None = None
    deployment: str | None = None
    week: str | None = None


@dataclass(frozen=True)
class Told:
    """What a what-if left in the warehouse: rows of plan_scenarios of one week."""

    week: str
    scenarios: tuple[str, ...]
    deployments: tuple[str, ...]


def scenarios_asked(asked: Asked) -> tuple[Scenario, ...]:
    """Today and the scenarios asked for; ConfigError in one line for what cannot be."""
    scale = [] if asked.scale is None else [f"rate_scale={asked.scale!r}"]
    base = parse_sets([*asked.sets, *scale])
    files = [read_scenario(named) for named in asked.scenarios]
    return scenarios_of(base, files, [point for sweep in asked.sweeps for point in parse_sweep(sweep, base)])


def typed(asked: Asked) -> str:
    """`asked` as options of the command line, without week, home and fleet file."""
    options = (("--set", asked.sets), ("--scenario", asked.scenarios), ("--sweep", asked.sweeps))
    words = [f"{name} {shlex.quote(value)}" for name, values in options for value in values]
    words += [] if asked.scale is None else [f"--scale {asked.scale:g}"]
    words += [] if asked.deployment is None else [f"--deployment {shlex.quote(asked.deployment)}"]
    return " ".join(words)


def whatif(home: Home, fleet: LoadedFleet, asked: Asked, progress: Progress, executor: Executor) -> Told:
    """What was published of one week (default: the latest) with its marts; the caller holds the lock."""
    scenarios, catalog = scenarios_asked(asked), load_catalog(home)
    deployments = _deployments(fleet, asked.deployment)
    _check(scenarios, deployments, catalog, fleet)
    if not has_current_facts(home, fleet, catalog):
        with published(home):  # says so where there is no warehouse at all
            raise DataError(
                f"the warehouse was built from another fleet file, lake, catalog or version than those of now "
                f"({fleet.path}); run kvledger review (or kvledger build) first"
            )
    with published(home) as connection:
        week, _earlier = weeks_of(connection, asked.week)
        placed = [place(deployment, fleet, catalog) for deployment in fleet.fleet.deployments]
        check_facts(connection, placed)
        covered_s = covered_s_of(connection, week)
    today = {one.deployment.name: one.account.max_model_len for one in placed}
    questions = [
        Question(home, fleet, deployment, scenario, position, week, covered_s, today[deployment.name])
        for deployment in deployments
        for position, scenario in enumerate(scenarios)
    ]
    rows = answers(questions, progress, executor)
    _keep(home, week, run_id_of(home, fleet, catalog, week), rows)
    rebuild_marts(home, progress, fleet.fleet.warehouse.keep_versions)
    return Told(
        week,
        tuple(scenario.scenario_id for scenario in scenarios),
        tuple(deployment.name for deployment in deployments),
    )


def answers(questions: Sequence[Question], progress: Progress, executor: Executor) -> list[dict[str, Any]]:
    """A row of plan_scenarios for each of `questions`, in their order, answered in parallel."""
    use_kernel_cache(print_note)
    with progress("replaying scenarios", len(questions)) as advance:
        futures = [executor.submit(answer, question) for question in questions]
        for future in futures:
            future.add_done_callback(lambda _done: advance())
        rows = [_about(question) | future.result() for question, future in zip(questions, futures, strict=True)]
    mark_curves(rows)
    return rows


def _about(question: Question) -> dict[str, Any]:
    """What names the row: deployment, scenario, and where it lies on its curve."""
    scenario = question.scenario
    return {
        "deployment_id": question.deployment.name,
        "scenario_id": scenario.scenario_id,
        "position": question.position,
        "settings_text": scenario.settings_text,
        "why_text": scenario.why or None,
        "swept_setting": scenario.swept,
        "swept_value": scenario.swept_value,
    }


def _deployments(fleet: LoadedFleet, name: str | None) -> list[Deployment]:
    found = [one for one in fleet.fleet.deployments if name in {None, one.name}]
    if not found:
        known = [one.name for one in fleet.fleet.deployments]
        raise ConfigError(
            f"--deployment {name}: no deployment of {fleet.path}{nearest(name or '', known)}; "
            f"it has {', '.join(known) or 'none'}"
        )
    return found


def _check(
    scenarios: Sequence[Scenario], deployments: Sequence[Deployment], catalog: Catalog, fleet: LoadedFleet
) -> None:
    """CatalogError where a scenario names a GPU or a model that nobody has described; ConfigError for odd values."""
    for scenario in scenarios:
        if "gpu" in scenario.settings:
            catalog.gpu(scenario.settings["gpu"])
        if "model" in scenario.settings:
            catalog.model(scenario.settings["model"], fleet.base)
        for deployment in deployments:
            try:
                changed(deployment, fleet.fleet.planning, scenario.settings)
            except ConfigError as error:
                raise ConfigError(f"scenario '{scenario.scenario_id}' on '{deployment.name}': {error}") from None


def _keep(home: Home, week: str, run_id: str, rows: Sequence[dict[str, Any]]) -> None:
    """Put `rows` into the week's plan_scenarios, in place of those of the same deployment and name.

    Those of the deployment under other inputs (another run_id) go as well: they were held against another today.
    """
    keys = {"run_id": run_id, "week": week}
    fresh = plan_rows(SCENARIOS, keys, list(rows))
    former = former_scenarios(home, week)
    asked = set(fresh["deployment_id"])
    stays = former.join(
        fresh.select("deployment_id", "scenario_id"), on=["deployment_id", "scenario_id"], how="anti"
    ).filter(~pl.col("deployment_id").is_in(list(asked)) | (pl.col("run_id") == run_id))
    table = pl.concat([stays, fresh]).sort(PLAN_GRAINS[SCENARIOS], nulls_last=True, maintain_order=True)
    folder = plan_folder(home, week)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / f"{SCENARIOS}.parquet") as aside:
        write_table(table.select(list(PLAN_TABLES[SCENARIOS])), aside)
