"""Every model of the catalog under every engine, its versions and the usual parallelism: an answer or one line."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.catalog import load_catalog
from transforms.errors import KvledgerError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import KvAccount, kv_account
from transforms.planner.memory.kv_layers import all_caches, kv_format, token_bytes
from transforms.planner.memory.kv_on_gpu import kv_on_gpu
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.model_shape import AttentionLayer, ModelShape, model_shape

GIB = 1 << 30
ROOM = 40 * GIB
CATALOG = load_catalog(None)
NAMES = CATALOG.model_ids()
RANKS = (1, 2, 4, 8)
ENGINES = (
    *(Engine(version=f"0.{minor}") for minor in (6, 9, 11, 19, 21, 33)),
    Engine(name="vllm-ascend", version="0.11"),
    Engine(name="sglang", version="0.4"),
    Engine(name="sglang"),
    Engine(name="tensorrt-llm", version="0.17"),
    Engine(name="tensorrt-llm"),
)


@cache
def shape(name: str) -> ModelShape:
    return model_shape(CATALOG.model(name).config, name)


def account(name: str, engine: Engine, room: int = ROOM) -> KvAccount | None:
    """The account, None where it is refused in one line; any other error is a bug and fails the test."""
    try:
        return kv_account(shape(name), replace(engine, max_model_len=32_768), room, holds_states=True)
    except KvledgerError as error:
        line = str(error)
    assert "\n" not in line
    assert name in line
    return None


@pytest.mark.parametrize("name", NAMES)
def test_an_account_or_one_line(name: str) -> None:
    answered = 0
    for engine in ENGINES:
        found = [account(name, replace(engine, tensor_parallel_size=ranks)) for ranks in RANKS]
        by_rank = [one for one in found if one is not None]
        answered += len(by_rank)
        for one in by_rank:
            assert 0 < one.num_blocks * one.bytes_per_block_per_gpu <= ROOM
            assert one.capacity_tokens * one.bytes_per_token_per_gpu <= ROOM
            assert one.capacity_bytes <= ROOM * one.gpus
            assert one.starts == (one.largest_max_model_len >= 32_768)
            assert one.held_bytes(1) <= one.held_bytes(1000) <= one.held_bytes(32_768)
        sizes = [one.bytes_per_token_per_gpu for one in by_rank]
        assert sizes == sorted(sizes, reverse=True), "more ranks never hold more a token each"
        whole = [one.bytes_per_token for one in by_rank]
        assert whole == sorted(whole), "nor less together"
    assert answered >= 2 * len(ENGINES), "most engines and sizes have an answer"


@pytest.mark.parametrize("name", NAMES)
def test_a_token_costs_what_its_layers_need_and_half_of_it_in_fp8(name: str) -> None:
    engine = Engine()
    wide, narrow = account(name, engine), account(name, replace(engine, kv_cache_dtype="fp8"))
    assert wide is not None
    assert narrow is not None
    caches = all_caches(shape(name), engine)
    floor = sum(c.kv_heads * (c.key_head_dim + c.value_head_dim) for c in caches if isinstance(c, AttentionLayer))
    kv = kv_format(shape(name), engine, known_version("vllm", None))
    assert wide.bytes_per_token == sum(token_bytes(cache, kv) for cache in caches) >= 2 * floor
    assert narrow.bytes_per_token >= floor
    assert narrow.bytes_per_token <= wide.bytes_per_token
    if floor == wide.bytes_per_token // 2:
        assert narrow.bytes_per_token == floor


@given(st.sampled_from(NAMES), st.sampled_from(ENGINES), st.sampled_from(RANKS), st.integers(8, 160), st.data())
@settings(max_examples=50, deadline=None)
def test_more_room_longer_requests_and_blocks(
    name: str, engine: Engine, ranks: int, gib: int, data: st.DataObject
) -> None:
    sized = replace(
        engine,
        tensor_parallel_size=ranks,
        max_num_batched_tokens=data.draw(st.sampled_from([2048, 8192])),
        enable_prefix_caching=data.draw(st.booleans()),
        speculative_tokens=data.draw(st.integers(0, 2)),
        pipeline_parallel_size=data.draw(st.sampled_from([1, 2])),
    )
    less, more = (account(name, sized, size * GIB) for size in (gib, gib + data.draw(st.integers(0, 40))))
    if less is None or more is None:
        return
    for figure in ("num_blocks", "reported_tokens", "capacity_tokens", "max_concurrency", "largest_max_model_len"):
        assert getattr(less, figure) <= getattr(more, figure), figure
    tokens = data.draw(st.integers(1, 200_000))
    for group in less.groups:
        if group.max_blocks is None:
            exact = tokens * group.bytes_per_block / group.block_tokens
            assert 0 <= group.held_bytes(tokens) - group.fixed_bytes - exact < group.bytes_per_block


@given(st.sampled_from(NAMES), st.sampled_from(CATALOG.gpu_names()), st.sampled_from(ENGINES), st.sampled_from(RANKS))
@settings(max_examples=50, deadline=None)
def test_on_a_gpu_the_parts_add_up_or_one_line_says_why_not(name: str, gpu: str, engine: Engine, ranks: int) -> None:
    card, config = CATALOG.gpu(gpu), CATALOG.model(name).config
    line, found = "", None
    try:
        found = kv_on_gpu(config, name, card, replace(engine, tensor_parallel_size=ranks))
    except KvledgerError as error:
        line = str(error)
    assert "\n" not in line
    if found is None:
        return
    memory, kept = found.memory, found.account
    parts = memory.weights_bytes + memory.activation_bytes + memory.non_torch_bytes + memory.graph_bytes
    assert memory.kv_bytes + parts <= memory.total_bytes
    assert kept.num_blocks * kept.bytes_per_block_per_gpu <= memory.kv_bytes
    assert kept.capacity_tokens * kept.bytes_per_token_per_gpu <= memory.kv_bytes


@pytest.mark.parametrize("name", NAMES)
def test_what_a_refusal_names_as_fitting_fits(name: str) -> None:
    """The smallest tensor-parallel size on a small GPU, and on eight large ones the longest request."""
    config = CATALOG.model(name).config
    small, large = CATALOG.gpu("RTX-4090-24GB"), CATALOG.gpu("B300-SXM-270GB")
    for card, engine, words in (
        (small, Engine(max_model_len=1), r"smallest tensor_parallel_size that fits with KV left is (\d+)"),
        (large, Engine(max_model_len=1 << 39, tensor_parallel_size=4), r"the largest that fits is (\d+)"),
    ):
        try:
            kv_on_gpu(config, name, card, engine)
        except KvledgerError as error:
            named = re.search(words, str(error))
        else:
            continue
        if named is not None:
            field = "tensor_parallel_size" if card is small else "max_model_len"
            assert kv_on_gpu(config, name, card, replace(engine, **{field: int(named[1])})).account.starts
