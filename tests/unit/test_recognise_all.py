"""No two formats claim one file: every shared trace and case is recognised as one format, or refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ingesting import counts, ingested

from flows.reading.look import look
from flows.reading.recognise import candidates, recognised
from transforms.batches import Head
from transforms.errors import InputError
from transforms.fleet import Source

EXPECTED = {
    # file below the traces' or cases' folder, or a folder of such -> format; None: it holds no requests
    "traces/agent-otel/exgentic_swebench.jsonl": "agent-otel",
    "traces/azure2023/AzureLLMInferenceTrace_conv.csv": "azure",
    "traces/mooncake/conversation_trace.jsonl": "mooncake",
    "traces/kv-cache-tester/trace_0001.json": "weka",
    "traces/glm5/glm5_ground_truth.jsonl": "tair-prefill",
    "traces/vllm-measured/RTX4090/Llama-3.1-8B/requests.jsonl": "vllm-measured",
    "traces/vllm-measured/RTXPRO6000/Llama-3.1-8B/requests.jsonl": "vllm-measured",
    "traces/vllm-measured/RTX4090/Llama-3.1-8B/timeseries.csv": None,
    "traces/vllm-measured/RTX4090/Llama-3.1-8B/meta.json": None,
    "traces/vllm-measured/RTX4090/Llama-3.1-8B/config.json": None,
    "traces/formats/codex/small.jsonl": "codex",
    "traces/formats/codex/large.jsonl": "codex",
    "traces/formats/aiperf/aiperf/config/templates/data/precise_schedule.jsonl": "mooncake",
    "traces/formats/aiperf/aiperf/config/templates/data/production_trace.jsonl": "mooncake",
    "traces/formats/aiperf/aiperf/dataset/agentic_code_gen/configs/spec.json": None,
    "traces/formats/aiperf/aiperf/dataset/agentic_code_gen/configs/default.json": None,
    "cases/logs/30-litellm-response-time-is-ttft.jsonl": "litellm-payload",
    "cases/logs/22-litellm-retries.jsonl": "litellm",
    "cases/logs/45-trace-time-units/bailian_s.jsonl": "bailian",
    "cases/logs/45-trace-time-units/mooncake_ms.jsonl": "mooncake",
    "cases/logs/46-hash-block-mismatch.jsonl": "mooncake",
    "cases/logs/65-schema-drift.jsonl": "aiperf",
    "cases/logs/74-vllm-bench-detailed.json": "vllm-bench",
    "cases/logs/76-aiperf-cancelled.jsonl": "aiperf",
    "cases/logs/38-vllm-log-no-year.log": None,
    "cases/logs/73-traj-without-timestamps.json": None,
}
DYNAMO = "traces/formats/ai-dynamo/dynamo/replay/tests/"
FIXTURES = DYNAMO + "e2e/configs/unified_cli/fixtures/traces/"
EXPECTED |= {
    DYNAMO + "data/mooncake_tiny.jsonl": "mooncake",
    FIXTURES + "mooncake.jsonl": "mooncake",
    FIXTURES + "mooncake-delta.jsonl": "aiperf-trace",
    FIXTURES + "dynamo-standard.jsonl": "dynamo",
    FIXTURES + "dynamo-agentic.jsonl": "dynamo",
    FIXTURES + "agentic-mooncake.jsonl": "dynamo",
    FIXTURES + "applied-compute-agentic.jsonl": "dynamo",
}


def claimed(path):
    """The formats that claim a file, each with why; none for a file that cannot be looked into."""
    try:
        seen = look(path)
    except InputError:
        return {}
    return {} if seen.layout == "empty" else candidates(seen.head)


@pytest.mark.shared
def test_every_file_is_claimed_by_one_format_at_most(shared_dir: Path):
    files = [path for part in ("traces", "cases/logs") for path in sorted((shared_dir / part).rglob("*"))]
    found = {path.relative_to(shared_dir).as_posix(): claimed(path) for path in files if path.is_file()}
    assert len(found) > 100
    assert {name: fits for name, fits in found.items() if len(fits) > 1} == {}
    assert {name: next(iter(found[name]), None) for name in EXPECTED} == EXPECTED
    assert all("\n" not in why for fits in found.values() for why in fits.values())


@pytest.mark.shared
def test_what_nobody_claims_is_refused_in_one_line(shared_dir: Path):
    for name in (name for name, form in EXPECTED.items() if form is None):
        path = shared_dir / name
        with pytest.raises(InputError) as refused:
            recognised(look(path), Source("auto", str(path)))
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)


FOLDERS = [("formats/aiperf", 18), ("formats/ai-dynamo", 16 + 2 + 2 + 2 + 4 + 3 + 3)]


@pytest.mark.shared
@pytest.mark.parametrize(("folder", "rows"), FOLDERS)
def test_a_folder_gives_what_is_in_it_and_names_the_rest(shared_dir, tmp_path, folder, rows):
    result = ingested(tmp_path, shared_dir / "traces" / folder, form="auto")
    assert counts(result) == (rows, rows, 0, 0)
    refused = [file for file in result.files if file.status == "refused"]
    assert refused
    assert all(file.reason and "\n" not in file.reason for file in refused)


LINE = {"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
TOTALS = {"duration": 1.0, "completed": 2, "total_input_tokens": 3, "request_throughput": 4.0, "num_prompts": 2}
HEADS = [
    ("vllm-timed-trace", Head("a", [LINE])),
    ("mooncake", Head("a", [{**LINE, "hash_ids": [1]}])),
    ("aiperf-trace", Head("a", [{**LINE, "session_id": "s", "delay": 1.5}])),
    ("bailian", Head("a", [{**LINE, "chat_id": 1, "parent_chat_id": -1, "turn": 1, "type": "text"}])),
    ("vidur", Head("a", columns=["arrived_at", "num_prefill_tokens", "num_decode_tokens"])),
    ("vllm-bench", Head("a", [TOTALS], is_document=True)),
    ("vllm-bench", Head("a", [{**TOTALS, "input_lens": [1], "output_lens": [1]}], is_document=True)),
    ("vllm-bench", Head("a", text=['{"num_prompts": 1, "request_rate": 2, "burstiness": 1', "}{"], is_document=True)),
    ("guidellm", Head("a", [{"metadata": {"guidellm_version": "0.8"}, "benchmarks": [{"requests": {}}]}])),
    ("inference-perf", Head("a", [{"start_time": 1.0, "end_time": 2.0, "request": "{}", "response": "", "info": {}}])),
    ("aiperf", Head("a", [{"metadata": {"request_start_ns": 1, "benchmark_phase": "warmup"}, "metrics": {}}])),
    ("litellm-payload", Head("a", [{"id": "a", "call_type": "c", "startTime": 1, "endTime": 2, "trace_id": "t"}])),
    ("litellm", Head("a", [{"request_id": "a", "call_type": "c", "startTime": "x", "endTime": "y"}])),
    ("dynamo", Head("a", [{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {}}])),
]


@pytest.mark.parametrize(("form", "head"), HEADS)
def test_a_head_is_claimed_by_its_own_format_alone(form, head):
    assert list(candidates(head)) == [form]


def places(value: Any, depth: int = 3) -> Iterator[tuple[Any, ...]]:
    """Keys that lead to each value of a record, its first two items of every list."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *deeper) for deeper in places(inner, depth - 1) if depth)


@pytest.mark.shared
@pytest.mark.parametrize("odd", [[], {}, True], ids=["list", "object", "flag"])
def test_whatever_stands_in_a_field_is_looked_at_without_an_error(shared_dir: Path, odd: Any) -> None:
    """One record of each recognised case, each of its values in turn a list, an object or a flag."""
    tried = 0
    for name, form in EXPECTED.items():
        head = look(shared_dir / name).head if form and (shared_dir / name).is_file() else Head("", ())
        for place in places(head.records[0]) if head.records and isinstance(head.records[0], dict) else ():
            record = deepcopy(head.records[0])
            inner: Any = record
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = odd
            candidates(replace(head, records=(record, *head.records[1:2])))
            tried += 1
    assert tried > 100
