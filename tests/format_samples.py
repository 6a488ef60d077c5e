"""One tiny log of every format, as its tool writes it: (file name, text, settings it needs)."""

from __future__ import annotations

import json
from typing import Any

from spans import chat, line

MS = 1_772_359_200_000
"""2026-03-01T10:00:00Z."""
S = MS / 1000
ISO = "2026-03-01T10:00:{:06.3f}Z"


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def measured(number: int) -> dict[str, Any]:
    stamps = {"queued_ts": 5.0, "scheduled_ts": 5.25, "first_token_ts": 5.5, "last_token_ts": 6.5}
    return {
        "request_id": f"bench-{number}", "input_toks": 9, "output_toks": 4, "arrival_time": S + number,
        **{name: value + number for name, value in stamps.items()},
    }  # fmt: skip


ANTHROPIC = {
    "id": "msg_1", "type": "message", "model": "c", "role": "assistant", "stop_reason": "end_turn", "content": [],
    "created_at": ISO.format(0), "usage": {"input_tokens": 5, "output_tokens": 9},
}  # fmt: skip
OPENAI = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": int(S), "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
}  # fmt: skip
LITELLM = {
    "request_id": "a", "call_type": "acompletion", "startTime": ISO.format(0), "endTime": ISO.format(2),
    "model": "gpt", "model_group": "chat", "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30,
    "spend": 0.1, "api_key": "k", "cache_hit": "False", "session_id": "s", "status": "success", "metadata": {},
}  # fmt: skip
PAYLOAD = {
    "id": "a", "trace_id": "t", "call_type": "acompletion", "status": "success", "startTime": S, "endTime": S + 8,
    "completionStartTime": S + 0.4, "response_time": 0.4, "model": "gpt", "model_group": "chat",
    "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "metadata": {}, "hidden_params": {},
    "model_parameters": {}, "response": {},
}  # fmt: skip
OBSERVATION = {
    "id": "o1", "type": "GENERATION", "traceId": "t", "startTime": ISO.format(0), "endTime": ISO.format(2),
    "model": "m", "level": "DEFAULT", "usageDetails": {"input": 100, "output": 10, "total": 110},
}  # fmt: skip
CLAUDE = [
    {"type": "user", "uuid": "u1", "parentUuid": None, "timestamp": ISO.format(0), "sessionId": "s",
     "message": {"role": "user", "content": "hi"}},
    {"type": "assistant", "uuid": "a1", "parentUuid": "u1", "timestamp": ISO.format(2), "sessionId": "s",
     "requestId": "req_1", "message": {"id": "msg_1", "model": "m", "content": [], "stop_reason": "end_turn",
                                       "usage": {"input_tokens": 10, "output_tokens": 5}}},
]  # fmt: skip
TOTAL = {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 10, "reasoning_output_tokens": 0}
CODEX = [
    {"timestamp": ISO.format(0), "type": "session_meta", "payload": {"id": "s"}},
    {"timestamp": ISO.format(1), "type": "response_item", "payload": {"type": "message", "role": "user"}},
    {"timestamp": ISO.format(2), "type": "event_msg",
     "payload": {"type": "token_count", "info": {"total_token_usage": TOTAL}}},
]  # fmt: skip
META = {"prompt_tokens": 100, "completion_tokens": 20, "finish_reason": {"type": "stop"}}
SGLANG = [
    {"timestamp": "2026-03-01T10:00:00", "event": "request.received", "rid": "r", "obj": {}},
    {"timestamp": "2026-03-01T10:00:03", "event": "request.finished", "rid": "r", "obj": {},
     "out": {"meta_info": {"id": "r", **META}}},
]  # fmt: skip
TGI = {
    "timestamp": ISO.format(5), "level": "INFO", "message": "Success", "target": "text_generation_router::server",
    "span": {"name": "generate", "total_time": "1.5s", "validation_time": "213µs", "queue_time": "51.2ms",
             "inference_time": "1.44s", "time_per_token": "72ms"}, "spans": [{"name": "generate"}],
}  # fmt: skip
MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
BAILIAN = {
    "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 5, "type": "text",
    "turn": 1, "hash_ids": [1, 2, 3],
}  # fmt: skip
WEKA = {
    "id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 130, "out": 5, "stop": "end_turn", "api_time": 1.0,
                  "hash_ids": [1, 2]}],
}  # fmt: skip
BENCH = {
    "date": "20260301-120010", "backend": "openai", "model_id": "m", "num_prompts": 1, "request_rate": 2.0,
    "burstiness": 1.0, "duration": 10.0, "completed": 1, "total_input_tokens": 10, "total_output_tokens": 4,
    "request_throughput": 0.2, "input_lens": [10], "output_lens": [4], "ttfts": [0.2], "itls": [[0.1, 0.1, 0.1]],
    "start_times": [500.0], "errors": [""],
}  # fmt: skip
AIPERF = {
    "metadata": {"x_request_id": "r", "request_start_ns": MS * 10**6, "request_end_ns": MS * 10**6 + 10**9,
                 "benchmark_phase": "profiling", "was_cancelled": False},
    "metrics": {"input_sequence_length": {"value": 550, "unit": "tokens"},
                "output_sequence_length": {"value": 9, "unit": "tokens"}},
    "error": None,
}  # fmt: skip
GUIDED = {
    "request_id": "r", "info": {"request_id": "r", "status": "completed",
                                "timings": {"request_start": S, "request_end": S + 2.5, "resolve_end": S + 2.6}},
    "request_args": "{}", "input_metrics": {"text_tokens": 100}, "output_metrics": {"text_tokens": 8},
}  # fmt: skip
GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.8.1"},
    "benchmarks": [{"requests": {"successful": [GUIDED], "incomplete": [], "errored": []}, "metrics": {}}],
}  # fmt: skip
LIFECYCLE = {
    "start_time": S, "end_time": S + 2.5, "request": '{"model": "m"}', "response": "",
    "info": {"input_tokens": 100, "output_tokens": 8, "output_token_times": [S + 0.5]}, "error": None,
}  # fmt: skip
DYNAMO = {
    "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": MS + 1000,
    "request": {"request_id": "r", "model": "m", "input_tokens": 128, "output_tokens": 16, "request_received_ms": MS,
                "total_time_ms": 1000},
}  # fmt: skip
ENVOY = {
    "start_time": ISO.format(0), "duration": 2500, "response_code": 200, "response_flags": "-", "x-request-id": "e1",
    "gen_ai.request.model": "chat", "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 40,
}  # fmt: skip
KONG = {
    "started_at": MS, "latencies": {"request": 2600}, "request": {"id": "k1"}, "response": {"status": 200},
    "ai": {"proxy": {"meta": {"llm_latency": 2500}, "usage": {"prompt_tokens": 120, "completion_tokens": 40}}},
}  # fmt: skip
HELICONE = {
    "request_id": "h1", "request_created_at": "2026-03-01T10:00:00.250", "response_status": 200,
    "response_model": "chat-8b", "delay_ms": 2500, "prompt_tokens": 120, "completion_tokens": 40,
}  # fmt: skip
OPENROUTER = {
    "id": "gen-1", "created_at": ISO.format(0), "model": "org/chat-8b", "latency": 300, "generation_time": 2500,
    "native_tokens_prompt": 120, "native_tokens_completion": 40, "finish_reason": "length", "cancelled": False,
}  # fmt: skip
AGENT = {
    "span_id": "a", "session_id": "s", "start_time_s": S, "end_time_s": S + 2, "finish_reasons": ["stop"],
    "status_code": "OK", "operation_name": "chat", "request_model": "m", "input_tokens": 9, "output_tokens": 2,
}  # fmt: skip
TAIR = {
    "rid": "r", "pod": "p", "arrive": MS, "input_length": 2713, "output_length": 1, "total_hit_len": 2074,
    "first_latency_ms": 553,
}  # fmt: skip
OWN = {
    "arrived_at": ISO.format(0), "operation": "chat", "served_by": "backend", "prompt_tokens": 9, "output_tokens": 2,
}  # fmt: skip
TIMED = {"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
AIPERF_TRACE = {"session_id": "s", "timestamp": 0, "input_length": 40, "output_length": 5}
UTC = {"timezone": "UTC"}

SAMPLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "agent-otel": ("a.jsonl", lines(AGENT), {}),
    "aiperf": ("a.jsonl", lines(AIPERF), {}),
    "aiperf-trace": ("a.jsonl", lines(AIPERF_TRACE), {}),
    "anthropic": ("a.jsonl", lines(ANTHROPIC), {}),
    "azure": ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00,10,1\n", UTC),
    "bailian": ("a.jsonl", lines(BAILIAN), {}),
    "burstgpt": ("a.csv", "Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n", {}),
    "claude-code": ("a.jsonl", lines(*CLAUDE), {}),
    "codex": ("a.jsonl", lines(*CODEX), {}),
    "dynamo": ("a.jsonl", lines(DYNAMO), {}),
    "envoy-ai-gateway": ("a.jsonl", lines(ENVOY), {}),
    "guidellm": ("a.json", json.dumps(GUIDELLM), {}),
    "helicone": ("a.jsonl", lines(HELICONE), {}),
    "inference-perf": ("a.json", json.dumps([LIFECYCLE]), {}),
    "kong": ("a.jsonl", lines(KONG), {}),
    "kvledger": ("a.jsonl", lines(OWN), {}),
    "langfuse": ("a.jsonl", lines(OBSERVATION), {}),
    "litellm": ("a.jsonl", lines(LITELLM), {}),
    "litellm-payload": ("a.jsonl", lines(PAYLOAD), {}),
    "mooncake": ("a.jsonl", lines(MOONCAKE), {}),
    "openai": ("a.jsonl", lines(OPENAI), {}),
    "openrouter": ("a.jsonl", lines(OPENROUTER), {}),
    "otel": ("a.jsonl", line(chat("1")).decode() + "\n", {}),
    "sglang": ("a.jsonl", lines(*SGLANG), UTC),
    "tair-prefill": ("a.jsonl", lines(TAIR), {}),
    "tgi": ("a.jsonl", lines(TGI), {}),
    "vidur": ("a.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,10\n", {}),
    "vllm-bench": ("a.json", json.dumps(BENCH), {}),
    "vllm-measured": ("a.jsonl", lines(measured(0), measured(1)), {}),
    "vllm-timed-trace": ("a.jsonl", lines(TIMED), {}),
    "weka": ("a.json", json.dumps(WEKA), {}),
}
