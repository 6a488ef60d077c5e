"""What must hold of every KV account, whatever the model, engine, version and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transforms.errors import KvledgerError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import KvAccount, kv_account
from transforms.planner.memory.kv_layers import all_caches, kv_format, state_bytes, token_bytes
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer, ModelShape, model_shape

GIB = 1 << 30
VERSIONS = {
    "vllm": [f"0.{minor}" for minor in range(6, 34)],
    "vllm-ascend": ["0.11", "0.19"],
    "sglang": ["0.4", "0.5"],
    "tensorrt-llm": ["0.17", "1.1"],
}
GATED = {
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    """Shapes of every kind of attention we know."""
    kind = draw(
        st.sampled_from(["llama", "gemma3_text", "llama4_text", "mistral", "deepseek_v3", "glm_moe_dsa", "qwen3_next"])
    )
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    more: dict[str, Any] = {
        "gemma3_text": {"sliding_window": draw(st.sampled_from([128, 1000, 4096]))},
        "llama4_text": {"attention_chunk_size": 8192},
        "mistral": {"sliding_window": 4096},
        "deepseek_v3": {**LATENT, "num_nextn_predict_layers": 1},
        "glm_moe_dsa": {
            **LATENT,
            "index_head_dim": 128,
            "index_topk": 2048,
            "index_topk_freq": draw(st.integers(1, 4)),
        },
        "qwen3_next": GATED,
    }.get(kind, {})
    config = {
        "model_type": kind,
        "num_hidden_layers": draw(st.integers(6, 48)),
        "num_attention_heads": 32,
        "num_key_value_heads": heads,
        "head_dim": draw(st.sampled_from([64, 128])),
        "max_position_embeddings": 131072,
    }
    return model_shape(config | more, "config.json")


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    name = draw(st.sampled_from(sorted(VERSIONS)))
    return Engine(
        name=name,
        version=draw(st.sampled_from(VERSIONS[name])),
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4, 8, 16])),
        pipeline_parallel_size=draw(st.sampled_from([1, 2, 3])),
        kv_cache_dtype=draw(st.sampled_from(["auto", "fp8"])),
        max_model_len=draw(st.integers(1, 300_000)),
        max_num_batched_tokens=draw(st.sampled_from([2048, 8192])),
        enable_prefix_caching=draw(st.booleans()),
        speculative_tokens=draw(st.integers(0, 3)),
    )


rooms = st.integers(GIB, 80 * GIB)


def account(shape: ModelShape, engine: Engine, room: int) -> KvAccount:
    """Account of a combination that exists: others are refused with a typed error and passed over."""
    try:
        return kv_account(shape, engine, room)
    except KvledgerError:
        assume(False)
        raise


@given(shapes(), engines(), rooms)
@settings(max_examples=80, deadline=None)
def test_nothing_holds_more_than_the_memory(shape: ModelShape, engine: Engine, room: int) -> None:
    found = account(shape, engine, room)
    assert found.num_blocks * found.bytes_per_block_per_gpu <= room
    assert found.capacity_bytes <= room * found.gpus
    stages = engine.pipeline_parallel_size
    per_gpu = found.bytes_per_token_per_gpu
    assert found.capacity_tokens * per_gpu <= room * (1 + 1e-9)
    assert found.bytes_per_token <= per_gpu * found.gpus <= found.bytes_per_token * stages * len(shape.layers)


@given(shapes(), engines(), rooms)
@settings(max_examples=80, deadline=None)
def test_bytes_are_never_below_what_the_layers_need(shape: ModelShape, engine: Engine, room: int) -> None:
    found = account(shape, engine, room)
    value_bytes = 1 if engine.kv_cache_dtype == "fp8" else 2
    caches = all_caches(shape, engine)
    heads = sum(c.kv_heads * (c.key_head_dim + c.value_head_dim) for c in caches if isinstance(c, AttentionLayer))
    assert found.bytes_per_token >= heads * value_bytes
    assert sum(line.layers for line in found.lines) == len(caches)
    kv = kv_format(shape, engine, known_version(engine.name, engine.version))
    states = sum(state_bytes(c, kv) for c in caches if isinstance(c, StateLayer)) * engine.tensor_parallel_size
    if engine.name != "vllm" or engine.version not in {f"0.{n}" for n in range(6, 10)}:
        assert found.held_bytes(0) >= states
    tokens = engine.max_model_len or 1
    grown = sum(
        token_bytes(c, kv)
        for c in caches
        if not (isinstance(c, AttentionLayer) and (c.window_tokens or c.chunk_tokens))
    )
    assert found.held_bytes(tokens) >= grown * tokens * engine.tensor_parallel_size


@given(shapes(), engines(), rooms, st.integers(1, 200_000), st.integers(0, 50_000))
@settings(max_examples=80, deadline=None)
def test_longer_requests_hold_no_less(shape: ModelShape, engine: Engine, room: int, tokens: int, more: int) -> None:
    found = account(shape, engine, room)
    assert found.held_bytes(tokens) <= found.held_bytes(tokens + more)
    longer = account(shape, replace(engine, max_model_len=(engine.max_model_len or 0) + more), room)
    if found.max_concurrency is not None and longer.max_concurrency is not None:
        assert longer.max_concurrency <= found.max_concurrency * (1 + 1e-12)
    assert longer.largest_max_model_len >= found.largest_max_model_len or not more
    assert found.starts or not longer.starts


@given(shapes(), engines(), rooms, st.integers(1, 200_000))
@settings(max_examples=80, deadline=None)
def test_a_request_wastes_less_than_a_block_a_group(shape: ModelShape, engine: Engine, room: int, tokens: int) -> None:
    found = account(shape, engine, room)
    for group in found.groups:
        if group.max_blocks is None:
            exact = tokens * group.bytes_per_block / group.block_tokens
            assert 0 <= group.held_bytes(tokens) - group.fixed_bytes - exact < group.bytes_per_block


@given(shapes(), engines(), rooms)
@settings(max_examples=80, deadline=None)
def test_fewer_bytes_a_value_and_more_ranks_never_cost_more(shape: ModelShape, engine: Engine, room: int) -> None:
    wide = account(shape, replace(engine, kv_cache_dtype="auto"), room)
    narrow = account(shape, replace(engine, kv_cache_dtype="fp8"), room)
    assert narrow.bytes_per_token_per_gpu < wide.bytes_per_token_per_gpu
    halved = account(shape, replace(engine, tensor_parallel_size=engine.tensor_parallel_size * 2), room)
    assert halved.bytes_per_token_per_gpu <= account(shape, engine, room).bytes_per_token_per_gpu
    assert halved.bytes_per_token >= account(shape, engine, room).bytes_per_token


@given(shapes(), engines(), rooms, st.integers(0, 10 * GIB))
@settings(max_examples=80, deadline=None)
def test_more_memory_never_holds_less(shape: ModelShape, engine: Engine, room: int, more: int) -> None:
    less, found = account(shape, engine, room), account(shape, engine, room + more)
    for name in ("num_blocks", "reported_tokens", "capacity_tokens", "max_concurrency", "largest_max_model_len"):
        assert getattr(less, name) <= getattr(found, name)


@given(shapes(), engines(), rooms)
@settings(max_examples=80, deadline=None)
def test_the_largest_length_starts_and_the_next_does_not(shape: ModelShape, engine: Engine, room: int) -> None:
    largest = account(shape, engine, room).largest_max_model_len
    if largest:
        assert account(shape, replace(engine, max_model_len=largest), room).starts
    grows = any(group.max_blocks is None for group in account(shape, engine, room).groups)
    if grows:
        assert not account(shape, replace(engine, max_model_len=largest + 1), room).starts
