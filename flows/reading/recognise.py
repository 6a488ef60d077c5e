"""Which format a file is in: for `--format auto`, and to say what a file looks like when it is not what was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flows.reading.formats import AUTO, MAPPED, mapping_files, module_of, python_formats, read_mapping
from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flows.reading.look import Look
    from transforms.batches import Head
    from transforms.fleet import Source


UNKNOWN = "its format is not recognised; name it with --format, or map its fields with --format mapped --map FILE.toml"


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


def check_format(seen: Look, source: Source, catalog: Path | None = None) -> None:
    """InputError where the file is not in the format that `source` names, but in another that is known."""
    if claim(source.format, seen.head, catalog) is not None or not _is_recognisable(source.format, catalog):
        return
    takes = getattr(module_of(source.format, catalog), "takes", None)
    fits = candidates(seen.head, catalog)
    if fits and not (takes and takes(seen.head)):
        raise InputError(f"{seen.path}: is not in format {source.format}{likely(fits)}")


def likely(fits: Iterable[str]) -> str:
    """What a file looks like that is in one of the formats `fits`, as the end of a line; empty where there are none."""
    names = list(fits)
    return f"; it looks like {' or '.join(names)}; use --format {names[0]}" if names else ""


def candidates(head: Head, catalog: Path | None = None) -> dict[str, str]:
    """Formats that a file with this head may be in, each with the reason in a few words."""
    flat = mapping_files(catalog)
    claims = {name: module_of(name, catalog).recognise(head) for name in python_formats()}
    claims |= {name: _flat_claim(path, head) for name, path in flat.items()}
    return {name: why for name, why in claims.items() if why}


def claim(name: str, head: Head, catalog: Path | None = None) -> str | None:
    """Why a file with this head looks like format `name`, in a few words; None where it does not."""
    path = mapping_files(catalog).get(name)
    why: str | None = module_of(name, catalog).recognise(head) if path is None else _flat_claim(path, head)
    return why


def _flat_claim(path: Path, head: Head) -> str | None:
    wanted = read_mapping(path).get("recognise", {})
    return "columns " + ", ".join(wanted.get("columns", ()) or wanted.get("keys", ())) if _fits(head, wanted) else None


def _is_recognisable(name: str, catalog: Path | None) -> bool:
    """Whether files of the format can be told from others: not those of a mapping that does not say by what."""
    path = mapping_files(catalog).get(name)
    return name != MAPPED if path is None else bool(read_mapping(path).get("recognise"))


def _fits(head: Head, wanted: dict[str, list[str]]) -> bool:
    columns, keys = set(wanted.get("columns", ())), set(wanted.get("keys", ()))
    if columns and columns <= set(head.columns):
        return True
    return bool(keys) and bool(head.records) and all(keys <= record.keys() for record in head.records[:3])


def unfit(head: Head) -> str:
    """Why no format fits a file with this head, and what to do, in one line."""
    return advice(head) or UNKNOWN


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
TRAJECTORY = (
    "an agent's trajectory without the times of its model calls; ingest the gateway's log or the agent's OTLP traces "
    "instead"
)
CHATS = "chats without times and tokens are no traffic; ingest the log of the gateway or engine that answered them"
ACCESS_LOG = (
    "an access log has no tokens; ingest the gateway's log, the engine's OTLP traces (format otel), or map a log that "
    "has token counts (format mapped)"
)
USAGE_TOTALS = (
    "the usage API's buckets are totals, not requests; ingest the gateway's log or logged responses (format openai)"
)
AIPERF_TOTALS = "AIPerf's summary has totals, not requests; ingest profile_export.jsonl of the same run (format aiperf)"
INFERENCE_PERF_TOTALS = (
    "inference-perf's summary has totals, not requests; ingest per_request_lifecycle_metrics.json "
    "(report.request_lifecycle.per_request: true, format inference-perf)"
)
VLLM_BENCH_TOTALS = (
    "vllm bench serve's result has totals, not requests; run it with --save-result --save-detailed (format vllm-bench)"
)
CODEX_EXEC = (
    "the stream of codex exec has no times; ingest the rollout file of the same session, below ~/.codex/sessions "
    "(format codex)"
)
GUIDELLM_YAML = (
    "GuideLLM's report as YAML is not read; write it as JSON (guidellm benchmark --outputs json, format guidellm)"
)
UNFIT_TEXTS = (
    (("guidellm_version:",), GUIDELLM_YAML),
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
    (('HTTP/1.0"', 'HTTP/1.1"', 'HTTP/2"', 'HTTP/2.0"', 'HTTP/3.0"'), ACCESS_LOG),
)
"""Logs that cannot serve: words that give a line of text away, and what would serve."""
UNFIT_RECORDS = (
    (frozenset({"trajectory", "info"}), SWE_AGENT),
    (frozenset({"trajectory", "environment"}), SWE_AGENT),
    (frozenset({"trajectory", "history"}), SWE_AGENT),
    (frozenset({"instance_id", "history", "metrics"}), OPENHANDS),
    (frozenset({"instance_id", "test_result", "metrics"}), OPENHANDS),
    (frozenset({"messages", "info", "trajectory_format"}), TRAJECTORY),
    (frozenset({"steps", "agent", "schema_version"}), TRAJECTORY),
    (frozenset({"start_time", "end_time", "results", "object"}), USAGE_TOTALS),
    (frozenset({"data", "has_more", "next_page"}), USAGE_TOTALS),
    (frozenset({"request_throughput", "request_latency", "input_config"}), AIPERF_TOTALS),
    (frozenset({"load_summary", "successes", "failures"}), INFERENCE_PERF_TOTALS),
    (frozenset({"num_prompts", "completed", "mean_ttft_ms"}), VLLM_BENCH_TOTALS),
    (frozenset({"type", "thread_id"}), CODEX_EXEC),
    (frozenset({"messages"}), CHATS),
    (frozenset({"conversations"}), CHATS),
)
"""The same for JSON: keys that stand in one record."""
