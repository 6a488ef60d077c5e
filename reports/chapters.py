"""The chapters below the decision: one a deployment, one for the fleet, one on data and assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports import capacity_tables, source_tables, tables
from reports.accuracy import accuracy_section
from reports.blocks import Table, present, text
from reports.charts.arrivals import rate_chart, rhythm_chart
from reports.charts.batch_curve import batch_charts
from reports.charts.bursts import dispersion_chart, peak_charts
from reports.charts.histogram import length_chart, wait_chart
from reports.charts.kv_time import deployment_chart, tenant_chart
from reports.charts.latency import latency_chart
from reports.charts.rate_curve import rate_curve_chart
from reports.charts.residency import residency_chart
from reports.latency_table import latency
from reports.marts import ALL, Marts, only, rows
from reports.outlook import outlook_sections
from reports.output_ends import output_ends
from reports.page import Chapter, Section
from reports.policy_table import policies
from reports.printed import sentence, shortened
from reports.words import AGAIN, LABELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

TRAFFIC = ("mart_arrivals", "mart_lengths", "mart_latency")
"""Tables that have rows of every deployment with requests."""


def deployment_chapter(marts: Marts, deployment_id: str, number: int) -> Chapter:
    """Everything about one deployment: KV, lengths, arrivals, waits, latency, batch."""
    chart_id = f"deployment-{number}"
    has_rows = any(rows(marts, name, deployment_id=deployment_id).height for name in TRAFFIC)
    lead = only(marts, "mart_decision", deployment_id=deployment_id)["binding_text"]
    if not has_rows:
        return Chapter(chart_id, deployment_id, shortened(deployment_id), "No traffic this week.", ())
    return Chapter(
        anchor=chart_id,
        name=deployment_id,
        short_name=shortened(deployment_id),
        lead=sentence(text(lead)),
        sections=(
            _kv(marts, deployment_id, chart_id),
            Section(
                "Prompts and outputs",
                present(
                    length_chart(marts, deployment_id, "prompt", f"{chart_id}-prompts"),
                    length_chart(marts, deployment_id, "output", f"{chart_id}-outputs"),
                ),
                present(tables.lengths(marts, deployment_id), output_ends(marts, deployment_id)),
                is_wide=True,
            ),
            Section(
                "Arrivals",
                present(
                    rate_chart(marts, deployment_id, f"{chart_id}-arrivals"),
                    *peak_charts(marts, deployment_id, f"{chart_id}-busiest"),
                    rhythm_chart(marts, deployment_id, f"{chart_id}-rhythm"),
                    dispersion_chart(marts, deployment_id, f"{chart_id}-dispersion"),
                ),
                (tables.arrivals(marts, deployment_id),),
                is_wide=True,
            ),
            _felt(marts, deployment_id, chart_id),
            *outlook_sections(marts, deployment_id, chart_id),
        ),
    )


def fleet_chapter(marts: Marts) -> Chapter:
    """What compares deployments: KV·time, failed attempts, lengths and arrivals of all traffic."""
    return Chapter(
        anchor="fleet",
        name="Whole fleet",
        short_name="Whole fleet",
        lead="KV·time is bytes held times how long they are held: what a deployment takes out of the cache.",
        sections=(
            Section("GPUs and cost", tables=(tables.fleet(marts),), is_wide=True),
            Section(
                "KV·time",
                present(deployment_chart(marts, "fleet-kv-time")),
                (tables.kv_time(marts), tables.failed_kv(marts)),
                is_wide=True,
            ),
            *_all_traffic(marts),
        ),
    )


def _all_traffic(marts: Marts) -> tuple[Section, ...]:
    """Lengths and arrivals of everything together, where there is more than one deployment."""
    if rows(marts, "mart_arrivals")["deployment_id"].n_unique() <= 2:  # noqa: PLR2004 - one and its total
        return ()
    return (Section("All traffic", tables=(tables.lengths(marts, ALL), tables.arrivals(marts, ALL)), is_wide=True),)


def sources_chapter(
    marts: Marts, versions: Mapping[str, str], commands: Sequence[str], accuracy: Sequence[Mapping[str, Any]]
) -> Chapter:
    """What the figures rest on: data, assumptions, errors of step times, versions and how to make them again."""
    made = Table(
        title="Versions",
        labels=("Package", "Version"),
        is_text=(True, True),
        rows=tuple(versions.items()),
        source="the installation that made this report",
    )
    return Chapter(
        anchor="sources",
        name="Data, assumptions, how to reproduce",
        short_name="Data and assumptions",
        lead="",
        sections=(
            Section("Warnings", tables=(source_tables.warnings(marts),), anchor="warnings", is_wide=True),
            Section("What is counted", tables=(source_tables.counts(marts),), is_wide=True),
            Section("Data quality", tables=(source_tables.data_quality(marts), source_tables.rejects(marts)),
                    is_wide=True),
            Section("Assumptions", tables=(source_tables.assumptions(marts),), note=LABELS, is_wide=True),
            *present(accuracy_section(marts, accuracy)),
            Section("How to reproduce", tables=(made,), commands=tuple(commands), note=AGAIN),
        ),
    )  # fmt: skip


def _kv(marts: Marts, deployment_id: str, chart_id: str) -> Section:
    return Section(
        "KV cache: how much, and for how long",
        present(
            residency_chart(marts, deployment_id, f"{chart_id}-residency"),
            tenant_chart(marts, deployment_id, f"{chart_id}-tenants"),
            *batch_charts(marts, deployment_id, f"{chart_id}-batch"),
            rate_curve_chart(marts, deployment_id, f"{chart_id}-rate"),
        ),
        present(
            tables.demands(marts, deployment_id),
            tables.memory(marts, deployment_id),
            capacity_tables.capacity(marts, deployment_id),
            capacity_tables.batches(marts, deployment_id),
        ),
        is_wide=True,
    )


def _felt(marts: Marts, deployment_id: str, chart_id: str) -> Section:
    return Section(
        "Latency, sessions and tool waits",
        present(
            latency_chart(marts, deployment_id, f"{chart_id}-latency"),
            wait_chart(marts, deployment_id, f"{chart_id}-waits"),
        ),
        present(
            latency(marts, deployment_id),
            tables.tool_waits(marts, deployment_id),
            policies(marts, deployment_id),
            tables.sessions(marts, deployment_id),
        ),
        is_wide=True,
    )
