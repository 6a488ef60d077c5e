"""How far predicted step times are from measured ones, by engine, GPU and model: how far to trust a plan."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart, Column, table, text
from reports.charts.grammar import base, layered, spec
from reports.marts import Marts, rows
from reports.page import Section
from reports.printed import percent, whole, yes_no
from reports.theme import colour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE_PX = 26
SOURCE = "the catalog's calibrations (kvledger predict --accuracy)"
LARGEST_ERROR = 2.0
"""Where the axis ends; larger errors stand at its end."""
NOTE = (
    "Public benchmarks against what the catalog's calibrations predict. Left out: the model's points on that GPU were "
    "not in the fit, as yours are not. A TPOT that is 15 % off moves compute and latency demands by about as much; the "
    "KV memory demand rests on KV bytes, not on step times. kvledger calibrate fits them to your own logs."
)


def accuracy_section(marts: Marts, groups: Sequence[Mapping[str, Any]]) -> Section | None:
    """Chart and table of `groups` (one an engine, GPU, model and weight dtype); None without any."""
    if not groups:
        return None
    ours = set(rows(marts, "dim_deployments")["gpu_id"])
    frame = pl.DataFrame([
        {
            "engine": group["engine"], "gpu": group["gpu"], "model": group["model"].replace("--", "/"),
            "weights": group["weights"], "points": group["points"], "is_ours": group["gpu"] in ours,
            **{f"{part}_{name}": group[part][name] for part in ("fit", "left_out")
               for name in ("tpot_median_ratio", "tpot_p90_ratio", "ttft_median_ratio")},
        }
        for group in groups
    ]).sort("is_ours", "engine", "gpu", "model", "weights", descending=[True, False, False, False, False])  # fmt: skip
    return Section(
        "How far to trust step times: predicted against measured",
        (_chart(frame),),
        (
            table("Errors by engine, GPU and model", frame, [
                Column("engine", "Engine", text, is_text=True),
                Column("gpu", "GPU", text, is_text=True),
                Column("is_ours", "In this fleet", yes_no, is_text=True),
                Column("model", "Model", text, is_text=True),
                Column("weights", "Weights", text, is_text=True),
                Column("points", "Runs", whole),
                Column("fit_tpot_median_ratio", "TPOT median, fit", percent),
                Column("left_out_tpot_median_ratio", "left out", percent),
                Column("left_out_tpot_p90_ratio", "p90, left out", percent),
                Column("fit_ttft_median_ratio", "TTFT median, fit", percent),
                Column("left_out_ttft_median_ratio", "left out", percent),
            ], SOURCE),
        ),
        note=NOTE,
        is_wide=True,
        anchor="accuracy",
    )  # fmt: skip


def _chart(frame: pl.DataFrame) -> Chart:
    data = frame.select(
        pl.concat_str("engine", "gpu", separator=" · ").alias("place"),
        "model",
        "weights",
        "points",
        pl.col("left_out_tpot_median_ratio").clip(upper_bound=LARGEST_ERROR).alias("error"),
        pl.when("is_ours").then(pl.lit("GPU of this fleet")).otherwise(pl.lit("other GPU")).alias("whose"),
    )
    return Chart(
        chart_id="accuracy",
        title="Error of the predicted time per output token, one dot a model",
        note="Median of the sizes of the errors, the model left out of the fit.",
        alt="Median error of the predicted time per output token by engine and GPU, one dot a model",
        source=SOURCE,
        spec=_spec(LINE_PX * data["place"].n_unique()),
        rows=data,
        headings={"place": "Engine · GPU", "model": "Model", "weights": "Weights", "points": "Runs",
                  "error": "TPOT error (share)", "whose": "Whose"},
        is_wide=True,
    )  # fmt: skip


@cache
def _spec(height_px: int) -> dict[str, Any]:
    error = alt.X("error", type="quantitative").axis(format="%", tickCount=6, grid=True).title("median TPOT error")
    place = alt.Y("place", type="nominal").sort(None).axis(domain=False, ticks=False, labelLimit=220, grid=True)
    shade = alt.Color("whose", type="nominal").scale(
        domain=["GPU of this fleet", "other GPU"], range=[colour("need"), colour("before")]
    )  # fmt: skip
    dots = base().mark_point(filled=True, opacity=0.85, size=70).encode(
        x=error, y=place.title(None), color=shade.title(None),
        tooltip=[alt.Tooltip("model:N"), alt.Tooltip("weights:N"), alt.Tooltip("points:Q", title="runs"),
                 alt.Tooltip("error:Q", title="TPOT error", format=".1%")],
    )  # fmt: skip
    return spec(layered(dots), height_px)
