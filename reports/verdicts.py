"""The first screen: for each deployment what to do, how sure that is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.blocks import text
from reports.charts.decision import decision_chart
from reports.marts import Marts, only, rows
from reports.page import Headline, Verdict
from reports.printed import UNKNOWN, gib, interval, percent, sentence, shortened, usd, usd_per_hour, whole, yes_no
from reports.words import demand_word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

ADD, RELEASE, KEEP = "add", "release", "keep"
ROLES = {ADD: "add", RELEASE: "release", KEEP: "need"}
MOST_NAMED = 4
"""Most deployments that the headline names."""
NAME_LENGTH = 48
NO_TRAFFIC = "no traffic this week"


def verdicts(marts: Marts) -> tuple[Verdict, ...]:
    """One verdict a deployment, those that need GPUs first."""
    frame = rows(marts, "mart_decision")
    idle = _without_traffic(marts, frame)
    counts = [frame[name].max() for name in ("needed_gpus", "now_gpus", "high_gpus")]
    most = max((int(str(count)) for count in counts if count is not None), default=1)
    decided = sorted([*frame.iter_rows(named=True), *idle], key=_urgency)
    return tuple(
        _verdict(decision, only(marts, "dim_deployments", deployment_id=decision["deployment_id"]), most, number)
        for number, decision in enumerate(decided)
    )


def headline(found: Sequence[Verdict]) -> tuple[Headline, ...]:
    """The decision in one line: what each deployment should do, the urgent ones only where there are many."""
    if not found:
        return (Headline("No deployment has traffic this week: there is nothing to decide."),)
    named = found if len(found) <= MOST_NAMED else [v for v in found if v.kind == ADD][:MOST_NAMED]
    parts = tuple(
        Headline(f"{verdict.action}.", shortened(verdict.name, NAME_LENGTH), verdict.kind) for verdict in named
    )
    if not parts:
        return (Headline("No deployment needs more GPUs."),)
    return parts if len(named) == len(found) else (*parts, Headline("The others are below."))


def _without_traffic(marts: Marts, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Decision rows, all but the name unknown, of deployments that the week's plan says nothing about."""
    unknown = dict.fromkeys(frame.columns)
    return [
        unknown | {"deployment_id": name, "action_text": NO_TRAFFIC}
        for name in rows(marts, "dim_deployments")["deployment_id"]
        if name not in set(frame["deployment_id"])
    ]


def _urgency(decision: Mapping[str, Any]) -> tuple[bool, int, int, str]:
    """Order of verdicts: with traffic first, then what lacks most GPUs, what could release most, what may stay."""
    short = int(decision["short_gpus"] or 0)
    kinds = (ADD, RELEASE, KEEP)
    known = decision["needed_gpus"] is None
    return known, kinds.index(_kind(decision["action_text"])), -abs(short), str(decision["deployment_id"])


def _verdict(decision: Mapping[str, Any], deployment: Mapping[str, Any], most_gpus: int, number: int) -> Verdict:
    kind = _kind(decision["action_text"])
    name = str(decision["deployment_id"])
    has_counts = decision["now_gpus"] is not None
    return Verdict(
        name=name,
        short_name=shortened(name, NAME_LENGTH),
        what=_what(deployment),
        kind=kind,
        action=text(decision["action_text"]),
        needed=whole(decision["needed_gpus"]),
        interval="" if decision["needed_gpus"] is None else interval(decision["low_gpus"], decision["high_gpus"]),
        now=whole(decision["now_gpus"]),
        facts=_facts(decision),
        reasons=_reasons(decision),
        chart=decision_chart(decision, most_gpus, f"decision-{number}", ROLES[kind]) if has_counts else None,
    )


def _kind(action: str | None) -> str:
    words = (action or "").lower()
    return ADD if words.startswith("add") else RELEASE if "release" in words else KEEP


def _what(deployment: Mapping[str, Any]) -> tuple[str, ...]:
    """Model, and GPUs of a replica."""
    if not deployment["model_id"]:
        return ("not in the fleet file",)
    model = str(deployment["model_id"]).rsplit("/", 1)[-1]
    return shortened(model), f"{whole(deployment['gpus_per_replica_gpus'])} × {deployment['gpu_id']} a replica"


def _facts(decision: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    left = f"{percent(decision['headroom_factor'])} (asked {percent(decision['headroom_ratio'])})"
    cost = f"{usd_per_hour(decision['now_cost_usd_per_hour'])} → {usd_per_hour(decision['cost_usd_per_hour'])}"
    peak = f"{gib(decision['residency_peak_bytes'])} of {gib(decision['now_capacity_bytes'])}"
    facts = (
        ("Binds", demand_word(decision["binding_demand"])),
        ("Headroom", left),
        ("KV at peak", peak),
        ("Cost", cost if decision["cost_usd_per_hour"] is not None else "no price for this GPU"),
        ("Per M output", usd(decision["output_cost_usd_per_million_tokens"])),
        ("One replica lost", {"yes": "holds", "no": "does not hold"}.get(yes_no(decision["is_one_lost_ok"]), UNKNOWN)),
    )
    return tuple(fact for fact in facts if UNKNOWN not in fact[1]) if decision["needed_gpus"] is not None else ()


def _reasons(decision: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    reasons = (
        ("Why", decision["binding_text"]),
        ("Changed", decision["change_text"]),
        ("How sure", decision["confidence_text"]),
    )
    return tuple((label, sentence(str(words))) for label, words in reasons if words)
