"""What rate a deployment takes: the share of requests in objective over the requests that arrive a second."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, labelled, layered, spec
from reports.marts import some
from reports.printed import moment
from reports.theme import colour

if TYPE_CHECKING:
    from reports.marts import Marts

HEIGHT_PX = 150
OBJECTIVE_RATIO = 0.95
"""Objectives are 95 % quantiles."""
ROLES = {"today's": "prefill", "needed": "need", "today's, as needed": "need"}
"""Whose fleet a line is -> its colour."""
HEADINGS = {
    "fleet": "Fleet",
    "rate": "Arrivals (requests/s)",
    "each": "A replica (requests/s)",
    "factor": "Times the hardest hour",
    "attained": "In objective (share)",
    "asked": "Hardest hour (requests/s)",
}


def rate_curve_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """A line a fleet, today's and the needed one, the objective and the hardest hour as it was; None without rows."""
    frame = some(marts, "mart_rate_curve", deployment_id=deployment_id)
    if frame is None:
        return None
    asked = frame.filter(pl.col("rate_factor") == 1.0)["rate_requests_per_s"].first()
    data = frame.sort("is_needed", "fleet_replicas", "rate_factor").select(
        fleet=pl.format("{}: {}", _whose(), pl.col("fleet_replicas")) + pl.lit(" replicas"),
        rate="rate_requests_per_s",
        each="replica_rate_requests_per_s",
        factor="rate_factor",
        attained="attainment_ratio",
        asked=pl.lit(asked, pl.Float64),
        whose=_whose(),
    )
    lines = data.select("fleet", "whose").unique(maintain_order=True)
    fleets = dict(zip(lines["fleet"], (ROLES[whose] for whose in lines["whose"]), strict=True))
    return Chart(
        chart_id=chart_id,
        title="What rate the fleet takes before requests miss the objectives",
        note=f"Replays of the hardest hour ({moment(frame['busiest_hour_at'][0])}), thinned out and copied. Upright: "
        "its own rate. Red dashes: 95 %, the share that must keep both objectives.",
        alt=f"{deployment_id}: share of requests in objective over requests per second, {' and '.join(fleets)}",
        source=labelled("mart_rate_curve", frame),
        spec=_spec(tuple(fleets.items())),
        rows=data.drop("whose"),
        headings=HEADINGS,
    )


def _whose() -> pl.Expr:
    words = pl.when("is_today", "is_needed").then(pl.lit("today's, as needed"))
    return words.when("is_today").then(pl.lit("today's")).otherwise(pl.lit("needed"))


@cache
def _spec(fleets: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Lines with dots over the rate, each in its role's colour; the objective and the hour as it was as rules."""
    names, roles = zip(*fleets, strict=True)
    rate = alt.X("rate", type="quantitative").scale(zero=True).axis(tickCount=6).title("requests/s, all replicas")
    share = amount_axis("attained", "in objective", domain=[0, 1]).axis(format="%", tickCount=5)
    shade = alt.Color("fleet", type="nominal").scale(domain=list(names), range=[colour(role) for role in roles])
    shown = [
        alt.Tooltip("fleet:N"),
        alt.Tooltip("rate:Q", title="requests/s", format=",.3~f"),
        alt.Tooltip("each:Q", title="a replica", format=",.3~f"),
        alt.Tooltip("factor:Q", title="times the hardest hour", format=".3~f"),
        alt.Tooltip("attained:Q", title="in objective", format=".1%"),
    ]
    where: dict[str, Any] = {"x": rate, "y": share, "color": shade.legend(symbolType="stroke").title(None)}
    line = base().mark_line(strokeWidth=1.6).encode(**where)
    dots = base().mark_point(filled=True, opacity=1, size=40).encode(**where, tooltip=shown)
    once = base().transform_filter("datum.factor === 1")
    limit = once.mark_rule(strokeDash=[6, 4], strokeWidth=1.6, color=colour("limit"))
    asked = once.mark_rule(strokeWidth=1.2, color=colour("now")).encode(x=alt.X("asked:Q"))
    return spec(layered(limit.encode(y=alt.datum(OBJECTIVE_RATIO)), asked, line, dots), HEIGHT_PX)
