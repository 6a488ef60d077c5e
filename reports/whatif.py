"""What-ifs as a page: today beside each scenario first, then what each is made of, sweeps as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from reports.blocks import Table, present, text
from reports.charts.sweep import MEASURES, sweep_charts
from reports.marts import Marts, rows, some
from reports.page import Chapter, Headline, Page, Section
from reports.printed import compact, gpu_hours, rounded, shortened, week_days, whole
from reports.review import coverage
from reports.scenario_actions import scenario_actions, worth_doing
from reports.whatif_tables import (
    ANSWERED,
    FLEET,
    LOSSES,
    POINTS,
    SERVICE,
    SOURCE,
    TODAY,
    autoscaled_table,
    first_table,
    held_table,
    is_autoscaled,
    lengths_table,
    scenario_table,
    signed,
    times_table,
)
from reports.words import AGAIN, LABELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASSUMED = "assumed"
ASSUMED_FIRST = "assumed: "
"""How the line on what is assumed begins."""
STEP_TIMES = "step times"
MOST_HEADLINES = 3
MOST_POINTS = 12
"""Points up to which the first table shows the whole of a sweep."""


def scenario_rows(marts: Marts, asked: Sequence[str], deployments: Sequence[str]) -> pl.DataFrame:
    """Rows of mart_scenarios of today and the scenarios `asked`, deployment by deployment, in the order asked."""
    frame = rows(marts, "mart_scenarios").filter(
        pl.col("scenario_id").is_in([TODAY, *asked]), pl.col("deployment_id").is_in(list(deployments))
    )
    return frame.sort("deployment_id", "position", maintain_order=True)


def whatif_page(
    marts: Marts, week: str, frame: pl.DataFrame, versions: Mapping[str, str], commands: Sequence[str]
) -> Page:
    """The page of the scenarios in `frame` (`scenario_rows`) on `week`, each deployment's beside its today."""
    names = frame["deployment_id"].unique(maintain_order=True).to_list()
    warnings = warning_lines(frame, marts)
    shown = noted(frame)
    note = _unnoted(frame.height - shown.height)
    return Page(
        title="What if",
        week=week,
        days=week_days(week),
        run_id=text(frame["run_id"].first()),
        version=versions.get("kvledger", ""),
        coverage=coverage(marts),
        headline=headlines(marts, frame),
        verdicts=(),
        decisions=first_table(shown, is_whole=True, note=note),
        brief=first_table(shown, note=note),
        fleet="",
        warnings=warnings,
        legend=LABELS,
        chapters=(
            *(_chapter(marts, frame.filter(pl.col("deployment_id") == name), name, n) for n, name in enumerate(names)),
            _last_chapter(warnings, commands),
        ),
    )


def noted(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows for the first table: of a sweep over MOST_POINTS only its ends, its knee and where the first is cut."""
    keys, value = ["deployment_id", "swept_setting"], pl.col("swept_value")
    is_end = (value == value.min().over(keys)) | (value == value.max().over(keys))
    is_single = pl.col("swept_setting").is_null()
    is_short = value.count().over(keys) <= MOST_POINTS
    return frame.filter(is_single | is_short | is_end | pl.col("is_knee") | pl.col("is_first_cut"))


def _unnoted(left: int) -> str:
    """That `noted` left so many points of sweeps out, and where they stand; empty for none."""
    one_or_more = "1 point" if left == 1 else f"{whole(left)} points"
    return f"{one_or_more} between left out here; all are in the report's {POINTS.lower()}." if left else ""


def headlines(marts: Marts, frame: pl.DataFrame) -> tuple[Headline, ...]:
    """One sentence a deployment: the scenario worth doing, else what its sweep shows or what changes most."""
    found = []
    for name in frame["deployment_id"].unique(maintain_order=True):
        own = frame.filter(pl.col("deployment_id") == name)
        words = worth_doing(marts, name, own["scenario_id"].to_list()) or _sweep_words(own) or _scenario_words(own)
        found.append(Headline(words + ".", shortened(name)))
    if len(found) > MOST_HEADLINES:
        return (*found[:MOST_HEADLINES], Headline(f"{len(found) - MOST_HEADLINES} more deployments below."))
    return tuple(found)


def _sweep_words(own: pl.DataFrame) -> str:
    """Knee and first cut of the deployment's first sweep; empty without one."""
    swept = own.filter(pl.col("swept_setting").is_not_null())
    if swept.is_empty():
        return ""
    setting = swept["swept_setting"][0]
    points = swept.filter(pl.col("swept_setting") == setting)
    words = []
    for flag, told in (("is_first_cut", "the first session is cut at"), ("is_knee", "the knee is at")):
        marked = points.filter(pl.col(flag))
        words += [f"{told} {setting} = {_plain(marked['swept_value'][0])}"] if marked.height else []
    return ", ".join(words) or f"nothing bends along {setting}"


def _scenario_words(own: pl.DataFrame) -> str:
    """What the scenario does that changes the GPUs most, else the requests in objective."""
    others = own.filter((pl.col("scenario_id") != TODAY) & (pl.col("outcome") == ANSWERED))
    if others.is_empty():
        return "no scenario can run on this deployment"
    row = others.sort(
        pl.col("needed_change_gpus").abs(), pl.col("attainment_change_ratio").abs(), descending=True, nulls_last=True
    ).row(0, named=True)
    if row["fixed_fleet_gpu_s"] is not None:
        return f"{shortened(row['scenario_id'])} {_autoscaled_words(row)}"
    is_reached_today = own.filter(pl.col("scenario_id") == TODAY)["is_slo_reachable"].to_list() != [False]
    if row["is_slo_reachable"] is False and is_reached_today:
        return f"{shortened(row['scenario_id'])} cannot keep its objectives with any number of replicas"
    gpus = row["needed_change_gpus"]
    words = [f"needs {whole(row['needed_gpus'])} GPUs ({signed(gpus, whole)})" if gpus else "needs as many GPUs"]
    points = row["attainment_change_ratio"]
    if points is not None and rounded(points * 100, 1) != "0.0":
        words.append(f"{signed(points * 100, lambda value: rounded(value, 1))} points of the requests in objective")
    if row["rejected_change_requests"]:
        words.append(f"{signed(row['rejected_change_requests'], whole)} turns refused")
    if row["lost_change_requests"]:
        words.append(f"{signed(row['lost_change_requests'], compact)} later turns lost")
    return f"{shortened(row['scenario_id'])} {', '.join(words)}"


def _autoscaled_words(row: Mapping[str, Any]) -> str:
    """What an autoscaler saves and causes against the fixed fleet."""
    saved_s, caused = -row["autoscaled_change_gpu_s"], row["autoscaled_change_requests"]
    more = "fewer" if saved_s >= 0 else "more"
    replicas = row["fixed_fleet_replicas"]
    paid = f"pays {gpu_hours(abs(saved_s))} {more} than {replicas} fixed replica{'s' * (replicas > 1)}"
    of = f"({gpu_hours(row['paid_gpu_s'])} against {gpu_hours(row['fixed_fleet_gpu_s'])})"
    missed = f"{whole(abs(caused))} {'more' if caused > 0 else 'fewer'} requests miss the objective"
    return f"{paid} {of}, {missed if caused else 'as many requests miss the objective'}"


def warning_lines(frame: pl.DataFrame, marts: Marts) -> tuple[str, ...]:
    """What a reader must know before any figure: what is assumed, a clamping front end, outputs nobody knows."""
    lines = []
    for row in frame.filter(pl.col("scenario_id") == TODAY).iter_rows(named=True):
        name = shortened(row["deployment_id"])
        assumed = _assumed(row, marts)
        lines += [f"{ASSUMED_FIRST}{name}: {assumed}"] if assumed else []
        if row["clamped_requests"]:
            lines.append(
                f"{name}: {whole(row['clamped_requests'])} requests were answered although prompt and caller's limit "
                "are above max_model_len: the front end clamps, and so do the scenarios unless they set "
                "requested_output"
            )
    lines += list(_compacted(frame))
    lines += list(_unreached(frame))
    lines += list(_extended(frame))
    return tuple(dict.fromkeys(lines))


def _assumed(row: Mapping[str, Any], marts: Marts) -> str:
    """The inputs of the deployment's plan that nobody measured here, as the review names them; empty for none."""
    known = some(marts, "mart_assumed", deployment_id=row["deployment_id"])
    if known is None:
        return "some inputs; kvledger plan names them" if row["provenance"] == ASSUMED else ""
    words = text(known["assumed_text"][0])
    return f"{words} (step times: {text(row['step_time_source'])})" if STEP_TIMES in words.split(", ") else words


def _compacted(frame: pl.DataFrame) -> list[str]:
    """What compaction leaves out: nobody knows how the client summarises."""
    return [
        f"{shortened(row['deployment_id'])}, {shortened(row['scenario_id'])}: {whole(row['compacted_requests'])} turns "
        "go on with a compacted context; the calls that summarise it, each of up to max_model_len tokens, are left out"
        for row in frame.filter(pl.col("compacted_requests") > 0).iter_rows(named=True)
    ]


def _unreached(frame: pl.DataFrame) -> list[str]:
    """The floor of each scenario whose objective no number of replicas meets."""
    lost = frame.filter(pl.col("is_slo_reachable").not_() & pl.col("slo_floor_text").is_not_null())
    named = lost.filter(pl.col("swept_setting").is_null() | pl.col("is_knee") | (pl.col("scenario_id") == TODAY))
    return [
        f"{shortened(row['deployment_id'])}, {shortened(row['scenario_id'])}: {row['slo_floor_text']}"
        for row in named.iter_rows(named=True)
    ]


def _extended(frame: pl.DataFrame) -> list[str]:
    longer = frame.filter(pl.col("extendable_requests") > 0)
    return [
        f"{shortened(row['deployment_id'])}, {shortened(row['scenario_id'])}: {whole(row['extendable_requests'])} "
        f"outputs ({_share(row)} of the requests) ended at today's max_model_len and could go on, by nothing up to "
        f"{compact(row['extension_max_tokens'])} tokens in all; the replay adds none (assumed)"
        for row in longer.iter_rows(named=True)
    ]


def _share(row: Mapping[str, Any]) -> str:
    return f"{rounded(100 * row['extendable_requests'] / row['offered_requests'], 2)} %"


def _chapter(marts: Marts, own: pl.DataFrame, name: str, number: int) -> Chapter:
    chart_id = f"whatif-{number}"
    single = own.filter(pl.col("swept_setting").is_null())
    judged = present(scenario_actions(marts, name, own["scenario_id"].to_list()))
    sections = [Section("Worth doing?", tables=judged, is_wide=True)] if judged else []
    sections += [_sweep(own, setting, f"{chart_id}-{n}") for n, setting in enumerate(_swept(own))]
    if single.height > 1:
        paid = (autoscaled_table(single),) if is_autoscaled(single) else ()
        shown = (*paid, lengths_table(single), times_table(single), held_table(single))
        sections.append(Section("Beside today", tables=shown, is_wide=True))
    why = own.filter(pl.col("why_text").is_not_null() & pl.col("swept_setting").is_null())
    lead = " ".join(f"{row['scenario_id']}: {row['why_text']}" for row in why.iter_rows(named=True))
    return Chapter(chart_id, name, shortened(name), lead, tuple(sections))


def _last_chapter(lines: Sequence[str], commands: Sequence[str]) -> Chapter:
    known = Table("Warnings", ("Warning",), (True,), tuple((line,) for line in lines), SOURCE, empty="None.")
    sections = (
        Section("What must be known", tables=(known,), anchor="warnings", is_wide=True),
        Section("How to reproduce", note=AGAIN, commands=tuple(commands)),
    )
    return Chapter("reproduce", "Warnings, how to reproduce", "How to reproduce", "", sections)


def _swept(own: pl.DataFrame) -> list[str]:
    return own["swept_setting"].drop_nulls().unique(maintain_order=True).to_list()


def _sweep(own: pl.DataFrame, setting: str, chart_id: str) -> Section:
    """Curves and table of one sweep, today's figures above its points."""
    points = own.filter(pl.col("swept_setting") == setting).sort("swept_value")
    today = own.filter(pl.col("scenario_id") == TODAY)
    both = pl.concat([today, points])
    judged = points["curve_measure"][0]
    about = f"The knee is that of {MEASURES[judged][0].lower()}. " if judged in MEASURES else ""
    return Section(
        f"Sweep of {setting}",
        sweep_charts(points, setting, chart_id),
        (scenario_table(POINTS, both, (*LOSSES, *SERVICE, *FLEET)), lengths_table(both)),
        note=about + "Behind the GPUs needed at a point stand closed forms of latency; named scenarios are replayed.",
        is_wide=True,
    )


def _plain(value: float) -> str:
    return f"{value:,.6g}" if value != int(value) else f"{int(value):,}"
