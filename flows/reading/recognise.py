"""Which format a file is in: for `--format auto`, and to say what a file looks like when it is not what was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flows.reading.formats import AUTO, mapping_files, module_of, python_formats, read_mapping
from transforms.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from flows.reading.look import Look
    from transforms.batches import Head
    from transforms.fleet import Source


def recognised(seen: Look, source: Source, catalog: Path | None = None) -> Source:
    """`source` with the format that the file is in, where it says "auto"; InputError where none or two fit."""
    if source.format != AUTO:
        return source
    fits = candidates(seen.head, catalog)
    if len(fits) == 1:
        return replace(source, format=next(iter(fits)))
    if fits:
        listed = "; ".join(f"{name} ({why})" for name, why in fits.items())
        raise InputError(f"{seen.path}: two formats fit: {listed}; say which with --format")
    raise InputError(f"{seen.path}: {unfit(seen.head)}")


def candidates(head: Head, catalog: Path | None = None) -> dict[str, str]:
    """Formats that a file with this head may be in, each with the reason in a few words."""
    fits: dict[str, str] = {}
    for name in python_formats():
        why = module_of(name, catalog).recognise(head)
        if why:
            fits[name] = why
    for name, path in mapping_files(catalog).items():
        wanted = read_mapping(path).get("recognise", {})
        if _fits(head, wanted):
            fits[name] = "columns " + ", ".join(wanted.get("columns", ()) or wanted.get("keys", ()))
    return fits


def _fits(head: Head, wanted: dict[str, list[str]]) -> bool:
    columns, keys = set(wanted.get("columns", ())), set(wanted.get("keys", ()))
    if columns and columns <= set(head.columns):
        return True
    return bool(keys) and bool(head.records) and all(keys <= record.keys() for record in head.records[:3])


def unfit(head: Head) -> str:
    """Why no format fits a file with this head, and what to do, in one line."""
    return advice(head) or (
        "its format is not recognised; name it with --format, or map its fields with --format mapped --map FILE.toml"
    )


def advice(head: Head) -> str | None:
    """What would serve in place of a log that cannot, in one line; None for any other file."""
    for keys, told in UNFIT_RECORDS:
        if any(keys <= record.keys() for record in head.records):
            return told
    plain = [line for line in head.text if not line.startswith(("{", "[{"))]
    for words, told in UNFIT_TEXTS:
        if any(word in line for word in words for line in plain):
            return told
    return None


VLLM_TEXT = (
    "vLLM's text log carries no tokens and no times per request; "
    "ingest its OTLP traces (--otlp-traces-endpoint, format otel) or the gateway's log instead"
)
SGLANG_TEXT = (
    "SGLang's text log is cut short and has no times per request; write its request log as JSON "
    "(--log-requests --log-requests-format json) or use --export-metrics-to-file, both format sglang"
)
SWE_AGENT = "a SWE-agent trajectory has no request times and no tokens per request; ingest the gateway's log instead"
OPENHANDS = (
    "an OpenHands output has no arrival times of its model calls; ingest the gateway's log or OTLP traces instead"
)
USAGE_TOTALS = (
    "the usage API's buckets are totals, not requests; ingest the gateway's log or logged responses (format openai)"
)
AIPERF_TOTALS = "AIPerf's summary has totals, not requests; ingest profile_export.jsonl of the same run (format aiperf)"
INFERENCE_PERF_TOTALS = (
    "inference-perf's summary has totals, not requests; ingest per_request_lifecycle_metrics.json "
    "(report.request_lifecycle.per_request: true, format inference-perf)"
)
UNFIT_TEXTS = (
    (
        (
            "Avg prompt throughput:",
            "Avg generation throughput:",
            "params: SamplingParams(",
            "reqs, Waiting: ",
            "vLLM API server version",
            "(APIServer pid=",
            "(EngineCore",
        ),
        VLLM_TEXT,
    ),
    (("obj=GenerateReqInput(", "Prefill batch", "Decode batch", "server_args=ServerArgs("), SGLANG_TEXT),
)
"""Logs that cannot serve: words that give a line of text away, and what would serve."""
UNFIT_RECORDS = (
    (frozenset({"trajectory", "info"}), SWE_AGENT),
    (frozenset({"trajectory", "environment"}), SWE_AGENT),
    (frozenset({"trajectory", "history"}), SWE_AGENT),
    (frozenset({"instance_id", "history", "metrics"}), OPENHANDS),
    (frozenset({"instance_id", "test_result", "metrics"}), OPENHANDS),
    (frozenset({"start_time", "end_time", "results", "object"}), USAGE_TOTALS),
    (frozenset({"data", "has_more", "next_page"}), USAGE_TOTALS),
    (frozenset({"request_throughput", "request_latency", "input_config"}), AIPERF_TOTALS),
    (frozenset({"load_summary", "successes", "failures"}), INFERENCE_PERF_TOTALS),
)
"""The same for JSON: keys that stand in one record."""
