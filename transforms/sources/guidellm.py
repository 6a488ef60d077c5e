"""GuideLLM's report (`benchmarks.json`): benchmarks, each with its requests by how they ended.

Source: log_formats.md §9; schema versions 1 (0.3 to 0.5) and 2 (0.6 on), and the reports before them, whose requests
carry their stamps and counts themselves. Stamps are epoch seconds. `incomplete` requests were cut off at the end of
their benchmark; one that was never sent reached no backend and is ignored. Requests before a benchmark's measured span
are its warm-up (`synthetic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.errors import InputError
from transforms.fields.decode import at, decode
from transforms.finish import frame
from transforms.sources._guidellm_request import Benchmark, request_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transforms.batches import Batch, Head
    from transforms.fields.decode import Record
    from transforms.fleet import Source

FORMAT = "guidellm"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {}
GROUPS = ("successful", "incomplete", "errored")
NOT_A_REPORT = "no report with benchmarks"
NO_REQUESTS = (
    "holds distributions only, no requests; write the report as JSON without limiting the requests it keeps "
    "(guidellm benchmark --output-path report.json, no --sample-size or --output-sampling)"
)


def recognise(head: Head) -> str | None:
    """Why `head` looks like a report: benchmarks with requests or metrics of successful and errored ones."""
    for record in head.records:
        benchmarks = record.get("benchmarks")
        first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
        is_grouped = any(isinstance(at(first, "requests", group), list) for group in GROUPS)
        if is_grouped or (isinstance(benchmarks, list) and at(record, "metadata", "guidellm_version")):
            return "a report with benchmarks and their requests"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request that was sent; InputError where a report has none to show."""
    del source
    decoded = decode(batch)
    rows: list[dict[str, Any]] = []
    rejects, ignored = list(decoded.rejects), 0
    for record in decoded.records:
        if not isinstance(record.value.get("benchmarks"), list):
            rejects.append(Reject(record.position, NOT_A_REPORT))
            continue
        found = 0
        for benchmark, group, request in _requests(record):
            found += 1
            try:
                row = request_row(request, group, benchmark)
            except ValueError as error:
                rejects.append(Reject(record.position, str(error)))
                continue
            ignored += row is None
            rows += [] if row is None else [row]
        if not found:
            raise InputError(NO_REQUESTS)
    _make_unique(rows)
    return Parsed(frame(rows), rejects, ignored)


def _requests(record: Record) -> Iterator[tuple[Benchmark, str, Mapping[str, Any]]]:
    """Every request of a report, with its benchmark and the group it stands in."""
    for each in record.value["benchmarks"]:
        benchmark = Benchmark.of(each, record)
        for group in GROUPS:
            held = at(each, "requests", group)
            for request in held if isinstance(held, list) else ():
                yield benchmark, group, request if isinstance(request, dict) else {}


def _make_unique(rows: list[dict[str, Any]]) -> None:
    """Add the arrival to request ids that a later benchmark of the report uses again."""
    seen: set[str] = set()
    for row in rows:
        name = row["request_id"]
        if name in seen:
            row["request_id"] = f"{name}@{row['arrived_at']}"
        seen |= {name} - {None}
