"""The first screen: for each deployment what to do, how sure that is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from reports.blocks import text
from reports.charts.decision import decision_chart
from reports.marts import Marts, only, rows, some
from reports.page import Headline, Verdict
from reports.printed import (
    NO_INTERVAL,
    UNKNOWN,
    change,
    gib,
    gpus,
    interval,
    percent,
    sentence,
    shortened,
    signed,
    usd,
    usd_per_hour,
    whole,
    yes_no,
)
from reports.words import demand_word, mover_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ADD, UNMET, RELEASE, KEEP, IDLE = "add", "unmet", "release", "keep", "idle"
KINDS = (ADD, UNMET, RELEASE, KEEP, IDLE)
"""What a deployment should do, the most urgent first."""
ROLES = {ADD: "add", UNMET: "add", RELEASE: "release", KEEP: "need", IDLE: "need"}
MOST_ACTIONS = 3
"""Most actions of a deployment on the first screen."""
MOST_CAUSES = 2
"""Most movers that the first screen names."""
RESIDUAL = "residual"
MOST_NAMED = 4
"""Most deployments that the headline names."""
NAME_LENGTH = 48
AMPLE_FACTOR = 2.0
"""Headroom from which nothing binds today: the peak may grow to three times its size."""
NO_TRAFFIC = "no traffic this week"
NOT_SIZED = "not sized"
NOTHING = "No deployment has traffic this week: there is nothing to decide."
LEAST_UNSERVED_RATIO = 0.01
"""Share of requests without a deployment from which the headline speaks of it; the warnings always do."""


def verdicts(marts: Marts) -> tuple[Verdict, ...]:
    """One verdict a deployment, those that need GPUs first."""
    frame = rows(marts, "mart_decision")
    idle = _without_traffic(marts, frame)
    counts = [frame[name].max() for name in ("needed_gpus", "now_gpus", "high_gpus")]
    most = max((int(str(count)) for count in counts if count is not None), default=1)
    decided = sorted([*frame.iter_rows(named=True), *idle], key=_urgency)
    return tuple(_verdict(marts, decision, most, number) for number, decision in enumerate(decided))


def headline(marts: Marts, found: Sequence[Verdict]) -> tuple[Headline, ...]:
    """The decision in one line: requests nobody serves, then what each deployment should do, the urgent ones first."""
    ratio = only(marts, "mart_coverage")["unserved_ratio"] or 0.0
    unserved = f"{percent(ratio)} of the requests are served by no deployment."
    first = (Headline(unserved, kind=ADD),) if ratio >= LEAST_UNSERVED_RATIO else ()
    if all(verdict.kind == IDLE for verdict in found):
        unusable = [verdict for verdict in found if verdict.action != NO_TRAFFIC]
        return first + (_named(unusable) or (Headline(NOTHING),))
    urgent = [verdict for verdict in found if verdict.kind in (ADD, UNMET)]
    if len(found) <= MOST_NAMED:
        return first + _named(found)
    if not urgent:
        return (*first, Headline("No deployment needs more GPUs."))
    return (*first, *_named(urgent), *_more(urgent[MOST_NAMED:]), Headline("The others are below."))


def _more(found: Sequence[Verdict]) -> tuple[Headline, ...]:
    """How many more than those named need GPUs, or cannot keep their objectives."""
    counts = {kind: sum(verdict.kind == kind for verdict in found) for kind in (ADD, UNMET)}
    words = {ADD: ("needs GPUs", "need GPUs"), UNMET: ("cannot keep its objectives", "cannot keep their objectives")}
    return tuple(Headline(f"{n} more {words[kind][n > 1]}.", kind=kind) for kind, n in counts.items() if n)


def _named(found: Sequence[Verdict]) -> tuple[Headline, ...]:
    return tuple(
        Headline(f"{verdict.action}.", shortened(verdict.name, NAME_LENGTH), verdict.kind)
        for verdict in found[:MOST_NAMED]
    )


def _without_traffic(marts: Marts, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Decision rows, all but the name unknown, of deployments that the week's plan says nothing about."""
    unknown = dict.fromkeys(frame.columns)
    return [
        unknown | {"deployment_id": name, "action_text": NO_TRAFFIC}
        for name in rows(marts, "dim_deployments")["deployment_id"]
        if name not in set(frame["deployment_id"])
    ]


def _urgency(decision: Mapping[str, Any]) -> tuple[int, int, str]:
    """Order of verdicts: what lacks most GPUs, what cannot keep its promise, what could release most, the rest."""
    short = int(decision["short_gpus"] or 0)
    return KINDS.index(_kind(decision["action_text"])), -abs(short), str(decision["deployment_id"])


def _verdict(marts: Marts, decision: Mapping[str, Any], most_gpus: int, number: int) -> Verdict:
    kind = _kind(decision["action_text"])
    name = str(decision["deployment_id"])
    has_counts = decision["now_gpus"] is not None
    before = decision["previous_needed_gpus"]
    return Verdict(
        name=name,
        short_name=shortened(name, NAME_LENGTH),
        what=_what(only(marts, "dim_deployments", deployment_id=name)),
        kind=kind,
        action=text(decision["action_text"]),
        needed=whole(decision["needed_gpus"]),
        interval=_ends(decision) if kind != IDLE else NOT_SIZED,
        before="" if before is None else f"{whole(before)} last week",
        now=whole(decision["now_gpus"]),
        facts=_facts(decision) if kind != IDLE else (),
        reasons=_reasons(marts, decision),
        actions=tuple(_actions(marts, name)),
        chart=decision_chart(decision, most_gpus, f"decision-{number}", ROLES[kind]) if has_counts else None,
    )


def _kind(action: str | None) -> str:
    """Which of KINDS an action's text is."""
    words = (action or "").lower()
    starts = {"add": ADD, "no number": UNMET, "could release": RELEASE, "no traffic": IDLE, "no usable": IDLE}
    return next((kind for start, kind in starts.items() if words.startswith(start)), KEEP)


def _what(deployment: Mapping[str, Any]) -> tuple[str, ...]:
    """Model, GPUs of a replica, and how several data-parallel ranks share them."""
    if not deployment["model_id"]:
        return ("not in the fleet file",)
    model = str(deployment["model_id"]).rsplit("/", 1)[-1]
    gpus = f"{whole(deployment['gpus_per_replica_gpus'])} × {deployment['gpu_id']} a replica"
    if (deployment["data_parallel_size"] or 1) > 1:
        gpus += f" (TP {deployment['tensor_parallel_size']}, DP {deployment['data_parallel_size']})"
    return shortened(model), gpus


def _ends(decision: Mapping[str, Any]) -> str:
    if decision["needed_gpus"] is None:
        return ""
    ends = interval(decision["low_gpus"], decision["high_gpus"])
    ends = ends if ends == NO_INTERVAL else f"interval {ends}"
    return ends if decision["is_slo_reachable"] is not False else f"{ends}, for KV and compute alone"


def _binds(decision: Mapping[str, Any]) -> str:
    """The demand that binds; where today's replicas offer several times the peak, that it does not bind yet."""
    word = demand_word(decision["binding_demand"])
    is_ample = (decision["headroom_factor"] or 0.0) >= AMPLE_FACTOR and decision["binding_demand"] != "latency"
    return f"nothing yet, {word} first" if is_ample else word


def _facts(decision: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    left = f"{percent(decision['headroom_factor'])} (asked {percent(decision['headroom_ratio'])})"
    cost = f"{usd_per_hour(decision['now_cost_usd_per_hour'])} → {usd_per_hour(decision['cost_usd_per_hour'])}"
    peak = f"{gib(decision['residency_peak_bytes'])} of {gib(decision['now_capacity_bytes'])}"
    lost = {"yes": "holds", "no": "does not hold"}.get(yes_no(decision["is_one_lost_ok"]), UNKNOWN)
    facts = (
        ("Binds", _binds(decision)),
        ("Peak headroom", left if decision["binding_demand"] != "latency" else UNKNOWN),
        ("KV at peak", peak),
        ("Cost", cost if decision["cost_usd_per_hour"] is not None else "no price for this GPU"),
        ("Output tokens", f"{usd(decision['output_cost_usd_per_million_tokens'])} a million"),
        ("One replica lost", lost),
    )
    return tuple(fact for fact in facts if UNKNOWN not in fact[1])


def _reasons(marts: Marts, decision: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    ahead = some(marts, "mart_growth", deployment_id=decision["deployment_id"])
    assumed = some(marts, "mart_assumed", deployment_id=decision["deployment_id"])
    reasons = (
        ("Why", decision["binding_text"]),
        ("Objective", decision["slo_floor_text"]),
        ("Changed", _changed(marts, decision)),
        ("Ahead", None if ahead is None else ahead["growth_text"][0]),
        ("How sure", decision["confidence_text"]),
        ("Assumed", None if assumed is None else assumed["assumed_text"][0]),
    )
    return tuple((label, sentence(str(words))) for label, words in reasons if words)


def _actions(marts: Marts, deployment_id: str) -> Iterator[str]:
    """What is worth doing, each with what it saves and what it risks."""
    frame = some(marts, "mart_actions", deployment_id=deployment_id)
    if frame is None:
        return
    for row in frame.sort("position").head(MOST_ACTIONS).iter_rows(named=True):
        risk = f"risk: {row['risk_text']}" if row["risk_text"] else ""
        words = "; ".join(part for part in (row["saving_text"], risk) if part)
        yield sentence(f"{row['action_text']}: {words}")


def _changed(marts: Marts, decision: Mapping[str, Any]) -> str | None:
    """Last week's GPUs and the change of KV·time before the main cause; that alone where there is no week before."""
    before, held = decision["previous_needed_gpus"], decision["kv_time_change_factor"]
    why = f" ({decision['count_text']})" if decision["count_text"] else ""
    counts = "" if before is None else f"{whole(before)} → {gpus(decision['needed_gpus'])} needed{why}"
    moved = "" if held is None else f"KV·time {change(held)}"
    cause = _cause(marts, decision["deployment_id"]) or decision["change_text"]
    return "; ".join(words for words in (counts, moved, cause) if words) or None


def _cause(marts: Marts, deployment_id: str) -> str:
    """The movers with the largest parts of the change in GPUs; empty where nothing is known to have moved them."""
    frame = some(marts, "mart_week_changes", deployment_id=deployment_id)
    if frame is None:
        return ""
    moved = frame.filter(pl.col("demand_part_gpus") != 0, pl.col("mover") != RESIDUAL)
    first = moved.sort(pl.col("demand_part_gpus").abs(), descending=True).head(MOST_CAUSES)
    parts = [f"{mover_word(row['mover'])} {signed(row['demand_part_gpus'])}" for row in first.iter_rows(named=True)]
    return f"mainly {', '.join(parts)} GPUs before rounding" if parts else ""
