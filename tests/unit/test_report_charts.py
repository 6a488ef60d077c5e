"""Charts: what they hold, what they refuse, and when they stay away."""

from __future__ import annotations

import math

import polars as pl
import pytest
from report_week import GIB, HOSTILE, empty_week, frame, full_page, full_week

from reports.blocks import CHART_ROWS, Chart, chart_document
from reports.charts.arrivals import rate_chart, rhythm_chart
from reports.charts.batch_curve import batch_charts
from reports.charts.bursts import dispersion_chart, peak_charts
from reports.charts.histogram import length_chart, wait_chart
from reports.charts.kv_time import MOST_BARS, deployment_chart, tenant_chart
from reports.charts.latency import latency_chart
from reports.charts.outlook import forecast_chart, mover_charts
from reports.charts.residency import residency_chart


def all_charts() -> list[Chart]:
    page = full_page()
    below = [chart for c in page.chapters for s in c.sections for chart in s.charts]
    return below + [verdict.chart for verdict in page.verdicts if verdict.chart]


def test_every_field_a_spec_names_is_in_its_rows() -> None:
    for chart in all_charts():
        made = {name for step in transforms_of(chart.spec) for name in names_made(step)}
        assert fields_of(chart.spec) <= set(chart.rows.columns) | made, chart.chart_id
        assert chart.rows.height <= CHART_ROWS, chart.chart_id


def transforms_of(node: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    if isinstance(node, dict):
        found += node.get("transform", [])
        for value in node.values():
            found += transforms_of(value)
    elif isinstance(node, list):
        for value in node:
            found += transforms_of(value)
    return found


def names_made(step: dict[str, object]) -> list[str]:
    made = step.get("as", [])
    return [made] if isinstance(made, str) else list(made)  # type: ignore[call-overload]


def fields_of(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["field"]} if isinstance(node.get("field"), str) else set()
        return own.union(*(fields_of(value) for value in node.values()))
    return set().union(*(fields_of(value) for value in node)) if isinstance(node, list) else set()


def test_nothing_to_draw_is_no_chart() -> None:
    tables = empty_week()
    assert residency_chart(tables, "chat", "x") is None
    assert peak_charts(tables, "chat", "x") == ()
    assert dispersion_chart(tables, "chat", "x") is None
    assert mover_charts(tables, "chat", "x") == ()
    assert forecast_chart(tables, "chat", "x") is None
    assert tenant_chart(tables, "chat", "x") is None
    assert deployment_chart(tables, "x") is None
    assert rate_chart(tables, "chat", "x") is None
    assert rhythm_chart(tables, "chat", "x") is None
    assert length_chart(tables, "chat", "prompt", "x") is None
    assert wait_chart(tables, "chat", "x") is None
    assert latency_chart(tables, "chat", "x") is None
    assert batch_charts(tables, "chat", "x") == ()


def test_residency_has_one_row_a_window_in_gib() -> None:
    tables = full_week(windows=12)
    chart = residency_chart(tables, "coding-agent", "x")
    assert chart is not None
    assert chart.rows.columns == ["at", "decode", "prefill", "pinned", "promised", "capacity"]
    assert chart.rows.height == 12
    mart = tables["mart_residency"].filter(deployment_id="coding-agent", pace="observed", phase="decode")
    assert chart.rows["decode"].to_list() == [value / GIB for value in mart["residency_mean_bytes"]]
    assert chart.rows["capacity"].unique().to_list() == [376.0]


def test_residency_without_logged_times_shows_the_promised_pace() -> None:
    tables = full_week(windows=12)
    tables["mart_residency"] = tables["mart_residency"].filter(pace="slo")
    chart = residency_chart(tables, "chat", "x")
    assert chart is not None
    assert "no times" in chart.note
    assert chart.rows["promised"].null_count() == 12
    assert chart.rows["decode"].sum() > 0


def test_only_the_tenants_that_hold_most_are_drawn() -> None:
    chart = tenant_chart(full_week(windows=2), HOSTILE, "x")
    assert chart is not None
    assert chart.rows["holder"].n_unique() == MOST_BARS
    assert chart.note.startswith("The 12 largest of 20. Pinned waits: modelled")
    totals = chart.rows.group_by("holder", maintain_order=True).agg(pl.col("gib_s").sum())["gib_s"].to_list()
    assert totals == sorted(totals, reverse=True)


def test_latency_modelled_and_logged_are_told_apart() -> None:
    tables = empty_week()
    tables["mart_latency"] = frame("mart_latency", [
        {"deployment_id": "chat", "measure": "ttft", "source": source, "latency_p50_s": 0.4, "latency_p99_s": 1.0}
        for source in ("logged", "modelled")
    ])  # fmt: skip
    chart = latency_chart(tables, "chat", "x")
    assert chart is not None
    assert chart.rows.select("measure", "kind").rows() == [("TTFT", "answered"), ("TTFT", "all, modelled")]


def test_latency_of_all_requests_stands_under_that_of_the_answered() -> None:
    tables = full_week(windows=2)
    chart = latency_chart(tables, "chat", "x")
    assert chart is not None
    kinds = ["answered", "all, failures as misses"]
    assert chart.rows["measure"].to_list() == [
        word for word in ("queue", "prefill", "TTFT", "TPOT", "E2E") for _ in kinds
    ]
    assert chart.rows["kind"].to_list() == kinds * 5
    answered, every = chart.rows.filter(measure="TTFT").iter_rows(named=True)
    mart = tables["mart_latency"].row(by_predicate=(pl.col("deployment_id") == "chat") & (pl.col("measure") == "ttft"),
                                      named=True)  # fmt: skip
    assert [answered["latency_p95_s"], every["latency_p95_s"]] == [mart["latency_p95_s"], mart["latency_all_p95_s"]]
    assert every["latency_p99_s"] is None
    tables["mart_latency"] = tables["mart_latency"].with_columns(failed_requests=pl.lit(0))
    quiet = latency_chart(tables, "chat", "x")
    assert quiet is not None
    assert quiet.rows["kind"].unique().to_list() == ["answered"]


def test_too_many_rows_are_refused() -> None:
    rows = pl.DataFrame({"n": range(CHART_ROWS + 1)})
    chart = Chart("x", "t", "", "a", "s", {}, rows, {"n": "N"})
    with pytest.raises(ValueError, match="5001 rows"):
        chart_document(chart)


def test_values_json_cannot_hold_become_null() -> None:
    rows = pl.DataFrame({"v": [math.nan, math.inf, 1 / 3, None]})
    document = chart_document(Chart("x", "t", "", "a", "s", {}, rows, {"v": "V"}))
    assert document["rows"] == [[None], [None], [0.333333], [None]]
    assert document["fields"] == [{"name": "v", "kind": "number", "heading": "V"}]


def test_movers_stand_largest_first_whatever_their_sign() -> None:
    gpus, held = mover_charts(full_week(), "coding-agent", "x")
    assert gpus.rows["mover"].to_list() == ["request rate", "lengths", "cache hits", "residual"]
    assert held.rows["gib_s"].to_list() == pytest.approx([2.31e6, 1.9e6, -0.6e6, 0.1e6])


def test_the_forecast_has_facts_only_where_they_are_known_and_the_gpus_of_now() -> None:
    chart = forecast_chart(full_week(), "coding-agent", "x")
    assert chart is not None
    assert chart.rows["fact"].drop_nulls().to_list() == [18.5, 18.5]
    assert set(chart.rows["now"]) == {16}


def test_the_busiest_hour_and_minute_are_drawn_apart() -> None:
    hour, minute = peak_charts(full_week(), "chat", "x")
    assert (hour.rows["at"][1] - hour.rows["at"][0]).total_seconds() == 60
    assert (minute.rows["at"][1] - minute.rows["at"][0]).total_seconds() == 1
