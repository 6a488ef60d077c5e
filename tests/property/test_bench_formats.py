"""Whatever stands in a benchmark's results or a replay trace: no traceback, nothing lost or invented, no words kept."""

from __future__ import annotations

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches import Batch
from transforms.errors import InputError
from transforms.finish import finish
from transforms.fleet import Source
from transforms.sources import (
    aiperf,
    aiperf_trace,
    dynamo,
    guidellm,
    inference_perf,
    litellm_payload,
    vllm_bench,
    vllm_measured,
    vllm_timed_trace,
)

WORDS = "SECRET words of a prompt"
S = 1_772_359_200.0
TIMINGS = {"request_start": S, "request_end": S + 2, "first_token_iteration": S + 1, "resolve_start": S}
GOOD = {
    aiperf: {
        "metadata": {"x_request_id": "r", "x_correlation_id": "c", "turn_index": 0, "request_start_ns": 10**18,
                     "request_end_ns": 10**18 + 1, "benchmark_phase": "profiling", "was_cancelled": False,
                     "root_correlation_id": None},
        "metrics": {"input_sequence_length": {"value": 5, "unit": "tokens"}, "ttft": {"value": 1.5, "unit": "ms"}},
        "error": {"code": 500, "type": "X", "message": WORDS},
    },
    aiperf_trace: {"session_id": "s", "timestamp": 1.5, "delay": 2, "input_length": 9, "output_length": 3,
                   "hash_ids": [1], "context_mode": None, "extra": {"x": WORDS}, "tools": [WORDS]},
    vllm_timed_trace: {"timestamp": 0.5, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]},
    dynamo: {
        "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 2000,
        "agent_context": {"session_id": "s", "parent_session_id": "p"}, "tool": {"started_at_unix_ms": 1},
        "request": {"request_id": "r", "request_received_ms": 1000, "total_time_ms": 1000, "output_tokens": 1,
                    "replay": {"trace_block_size": 4, "input_length": 4, "input_sequence_hashes": [3]}},
        "dependencies": [{"request_id": "x", "delay_ms": 1, "relation": "sequence"}], "not_before_ms": 3,
    },
    guidellm: {
        "metadata": {"guidellm_version": "0.8"}, "config": {"backend": {"model": "m"}},
        "benchmarks": [{"start_time": S, "requests": {
            "successful": [{"request_id": "a", "output": WORDS, "info": {"timings": TIMINGS, "turn_index": 0},
                            "input_metrics": {"text_tokens": 4}, "output_metrics": {"text_tokens": 2}}],
            "errored": [{"request_id": "b", "info": {"timings": TIMINGS, "error": WORDS}, "tool_calls": [WORDS]}]}}],
    },
    inference_perf: {
        "start_time": S, "end_time": S + 2, "request": json.dumps({"model": "m", "prompt": WORDS}), "response": WORDS,
        "info": {"request_metrics": {"text": {"input_tokens": 3}},
                 "response_metrics": {"output_tokens": 2, "output_token_times": [S + 1], "server_usage": None}},
        "error": {"error_type": "E", "error_msg": WORDS},
    },
    litellm_payload: {
        "id": "a", "trace_id": "t", "call_type": "acompletion", "stream": True, "status": "failure", "startTime": S,
        "endTime": S + 2, "completionStartTime": S + 1, "prompt_tokens": 3, "completion_tokens": 4,
        "metadata": {"user_api_key_hash": "h", "usage_object": {"prompt_tokens_details": {"cached_tokens": 1}}},
        "messages": [{"role": "user", "content": WORDS}], "error_str": WORDS, "hidden_params": {"x": WORDS},
        "response": {"choices": [{"finish_reason": "stop", "message": {"content": WORDS}}]}, "model_parameters": {},
    },
    vllm_bench: {
        "date": "20260301-100000", "duration": 3.0, "completed": 1, "total_input_tokens": 5, "request_throughput": 1.0,
        "request_rate": "inf", "model_id": "m", "input_lens": [5, 6], "output_lens": [2, 0], "ttfts": [0.1, 0.0],
        "itls": [[0.1], []], "latencies": [0.2, 0.0], "start_times": [1.0, 2.0], "generated_texts": [WORDS, ""],
        "errors": ["", WORDS], "mean_ttft_ms": 100.0,
    },
    vllm_measured: {"request_id": "b", "input_toks": 3, "output_toks": 4, "arrival_time": S, "queued_ts": 5.0,
                    "scheduled_ts": 5.1, "first_token_ts": 5.2, "last_token_ts": 5.3},
}  # fmt: skip

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(),
    st.sampled_from(["", "soon", "-1", "1e400", "\ud800", 2**31, 2.0**40]),
    st.sampled_from([[], {}, [None], [[]], {"value": {}}, [{"request_id": []}], ["x", 1]]),
)  # fmt: skip


def places(value, path=()):
    """Every path inside a record."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


def put(record, path, odd):
    if not path:
        return odd
    made = copy.deepcopy(record)
    at = made
    for key in path[:-1]:
        at = at[key]
    if odd is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = odd
    return made


@st.composite
def batches(draw):
    module = draw(st.sampled_from(list(GOOD)))
    records = [GOOD[module]]
    for _ in range(draw(st.integers(1, 3))):
        record = draw(st.sampled_from(records))
        path = draw(st.sampled_from(list(places(record))))
        records.append(put(record, path, draw(st.one_of(ODD, st.just(...)) if path else ODD)))
    lines = [json.dumps(record).encode() for record in records]
    return module, [line[: draw(st.integers(1, len(line)))] if draw(st.integers(0, 9)) == 0 else line for line in lines]


@given(batches())
@settings(max_examples=400, deadline=None)
def test_odd_values_are_rejected_or_unknown_and_never_a_traceback(drawn):
    module, lines = drawn
    positions = [10 * n for n in range(len(lines))]
    source = Source(module.FORMAT, "x", **module.DEFAULTS)
    try:
        parsed = module.canonicalise(Batch("a", lines, positions), source)
    except InputError:
        return
    rows = finish(parsed.rows, module.FORMAT, "a")
    assert {reject.position for reject in parsed.rejects} | set(rows["source_position"]) <= set(positions)
    if module not in (vllm_bench, guidellm, dynamo):
        assert len(rows) + len(parsed.rejects) + parsed.ignored == len(lines)
    assert WORDS not in str(rows.to_dicts())
    assert all(WORDS not in reject.reason for reject in parsed.rejects)
