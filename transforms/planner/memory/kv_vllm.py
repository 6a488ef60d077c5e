"""The KV account of vLLM, version by version: blocks, printed size, concurrency and the start-up check."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from transforms.errors import ConfigError
from transforms.planner.memory.kv_groups import CHUNK, FULL, STATE, WINDOW, Group, Page, groups_of
from transforms.planner.memory.kv_layers import layers_with_drafter, pipeline_stages, token_bytes
from transforms.planner.memory.kv_page import ALIGN, ALL, block_tokens, state_mode, state_page
from transforms.planner.memory.kv_result import KvAccount, KvGroup, KvWorking, largest_length
from transforms.planner.memory.kv_versions import VLLM_ASCEND, vllm_rule_span
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.memory.kv_versions import VllmRules
    from transforms.planner.model.model_shape import Layer, ModelShape


@dataclass(frozen=True)
class Plan:
    """Groups of one model under one engine and what decides the blocks of a request."""

    groups: tuple[Group, ...]
    rules: VllmRules
    cp: int
    """Decode-context parallelism: ranks that share the tokens of a block."""
    in_flight_tokens: int
    state_mode: str
    draft_tokens: int

    @property
    def stage_block_bytes(self) -> tuple[int, ...]:
        """Bytes of one block on a GPU of each pipeline stage: the widest group decides."""
        return tuple(max(stage) for stage in zip(*(group.stage_bytes for group in self.groups), strict=True))

    def blocks_needed(self, tokens: int) -> int:
        """Blocks the start-up check wants for one request of `tokens` tokens, over all groups."""
        return sum(self.group_blocks(group.page, tokens) for group in self.groups)

    def group_blocks(self, page: Page, tokens: int) -> int:
        """Blocks of one group with pages like `page` that the start-up check wants for `tokens` tokens."""
        if page.kind == STATE:
            return self.state_blocks(page, tokens)
        if page.kind == WINDOW:
            return _blocks(min(page.span_tokens - 1 + self.in_flight_tokens, tokens), page.block_tokens) + 1
        if page.kind == CHUNK:
            return _blocks(min(page.span_tokens + self.in_flight_tokens, tokens), page.block_tokens)
        return _blocks(_blocks(tokens, self.cp), page.block_tokens)

    def state_blocks(self, page: Page, tokens: int) -> int:
        """Blocks of states that a request of `tokens` tokens holds in one group."""
        drafts = self.draft_tokens if self.rules.counts_draft_states else 0
        if self.state_mode == ALL:
            return _blocks(tokens, page.block_tokens) + drafts
        return (2 if self.state_mode == ALIGN else 1) + drafts


def vllm_account(shape: ModelShape, engine: Engine, rules: VllmRules, kv: KvFormat, available_bytes: int) -> KvAccount:
    """KV account of vLLM with `available_bytes` for KV on every GPU."""
    if shape.has_state and not rules.has_state_pages:
        rules = replace(rules, is_v0=True, is_token_concurrency=True)  # such models fell back to V0 until 0.10
    hybrid = uses_hybrid_manager(shape, engine, rules)
    plan = _plan(shape, engine, rules, kv, hybrid=hybrid)
    per_block = plan.stage_block_bytes
    num_blocks = min(available_bytes // size for size in per_block if size)
    length = engine.max_model_len or shape.max_position_embeddings
    usable = num_blocks - 1 if rules.reserves_null_block else num_blocks
    bound = max(length or 0, shape.max_position_embeddings or 0)
    largest = largest_length(plan.blocks_needed, usable, bound)
    block_size = min(group.page.block_tokens for group in plan.groups)
    concurrency = _concurrency(plan, num_blocks, block_size, length)
    tp, stages = engine.tensor_parallel_size, len(per_block)
    token_sums = [sum(token_bytes(c, kv) for c in stage) for stage in _stages(shape, engine)]
    return KvAccount(
        engine=engine.name,
        engine_version=vllm_rule_span(rules),
        rule=_rule(plan, shape),
        gpus=tp * stages,
        available_bytes_per_gpu=available_bytes,
        bytes_per_token_per_gpu=max(token_sums),
        bytes_per_token=sum(token_sums) * tp // plan.cp,
        block_size_tokens=block_size,
        num_blocks=num_blocks,
        bytes_per_block_per_gpu=max(per_block),
        bytes_per_block=sum(per_block) * tp,
        reported_tokens=_reported(plan, num_blocks, block_size, concurrency, length),
        capacity_tokens=_capacity(plan, num_blocks),
        max_model_len=length,
        blocks_per_request=plan.blocks_needed(length) if length else None,
        max_concurrency=concurrency,
        starts=largest >= (length or 1),
        largest_max_model_len=largest,
        state_pool_bytes=0,
        groups=_kv_groups(plan, sum(per_block) * tp),
        working=_working(plan, num_blocks, max(token_sums), block_size, length),
    )


def _plan(shape: ModelShape, engine: Engine, rules: VllmRules, kv: KvFormat, *, hybrid: bool) -> Plan:
    stages = _stages(shape, engine)
    if not hybrid and len({_span(cache) for stage in stages for cache in stage}) > 1:
        stages = [tuple(_whole(cache) for cache in stage) for stage in stages]
    page_of = {cache: _page(cache, shape, engine, rules, kv) for stage in stages for cache in dict.fromkeys(stage)}
    pages = [[page for cache in stage if (page := page_of[cache]) is not None] for stage in stages]
    if not any(pages):
        raise ConfigError(f"{shape.where}: no layer keeps KV; there is nothing to account for")
    batches = engine.pipeline_parallel_size
    if batches == 1 and engine.async_scheduling is not False:
        batches = 2
    return Plan(
        groups=groups_of(pages, rules, shape.where),
        rules=rules,
        cp=engine.decode_context_parallel_size,
        in_flight_tokens=engine.max_num_batched_tokens * (batches if rules.concurrent_batches else 1),
        state_mode=state_mode(shape, engine, rules) if shape.has_state else "none",
        draft_tokens=engine.speculative_tokens,
    )


def _stages(shape: ModelShape, engine: Engine) -> list[tuple[Layer, ...]]:
    return pipeline_stages(layers_with_drafter(shape, engine), len(shape.layers), engine.pipeline_parallel_size)


def _page(cache: Layer, shape: ModelShape, engine: Engine, rules: VllmRules, kv: KvFormat) -> Page | None:
    if shape.has_state and not rules.is_v0:
        shared = state_page(shape, engine, rules, kv)
        tokens = shared.block_tokens
        if isinstance(cache, StateLayer):
            return Page(STATE, tokens, shared.page_bytes)
    else:
        tokens = block_tokens(shape, engine, rules, kv)
        if isinstance(cache, StateLayer):
            return None
    size = tokens * token_bytes(cache, kv)
    if not isinstance(cache, AttentionLayer):
        return Page(FULL, tokens, size, layout=(token_bytes(cache, kv),))
    layout = (cache.kv_heads, cache.key_head_dim, cache.value_head_dim)
    if not (cache.window_tokens or cache.chunk_tokens):
        return Page(FULL, tokens, size, layout=layout)
    kind = WINDOW if cache.window_tokens else CHUNK
    return Page(kind, tokens, size, cache.window_tokens or cache.chunk_tokens or 0, layout)


def _span(cache: Layer) -> tuple[int, int]:
    """Window and chunk of a layer, 0 where it has none."""
    return (cache.window_tokens or 0, cache.chunk_tokens or 0) if isinstance(cache, AttentionLayer) else (0, 0)


def _whole(cache: Layer) -> Layer:
    """Count a windowed or chunked layer as full attention."""
    return replace(cache, window_tokens=None, chunk_tokens=None) if isinstance(cache, AttentionLayer) else cache


def uses_hybrid_manager(shape: ModelShape, engine: Engine, rules: VllmRules) -> bool:
    """Whether layers of several kinds keep their own block tables; ConfigError where states need it and it is off."""
    has_chunks = any(isinstance(c, AttentionLayer) and c.chunk_tokens for layer in shape.layers for c in layer)
    chosen = None if engine.disable_hybrid_kv_cache_manager is None else not engine.disable_hybrid_kv_cache_manager
    if rules.is_v0:
        return False
    if shape.has_state and chosen is False:
        raise ConfigError(f"{shape.where}: vLLM does not start a model with states without the hybrid KV cache manager")
    if chosen is not None:
        return chosen and rules.has_hybrid_manager
    if engine.name == VLLM_ASCEND and not shape.has_state:
        return False
    return rules.has_hybrid_manager and (rules.chunk_groups or not has_chunks)


def _concurrency(plan: Plan, num_blocks: int, block_size: int, length: int | None) -> float | None:
    if length is None:
        return None
    if plan.rules.is_token_concurrency:
        return num_blocks * block_size * plan.cp / length
    return num_blocks / plan.blocks_needed(length)


def _reported(plan: Plan, num_blocks: int, block_size: int, concurrency: float | None, length: int | None) -> int:
    if plan.rules.prints_concurrency and concurrency is not None and length is not None:
        return int(concurrency * length)
    return num_blocks // len(plan.groups) * block_size * plan.cp


def _capacity(plan: Plan, num_blocks: int) -> int:
    """Tokens that fit while every attention layer keeps them, beside the states of one request."""
    states = sum(plan.state_blocks(group.page, 1) for group in plan.groups if group.page.kind == STATE)
    blocks_of = [group.page.block_tokens * plan.cp for group in plan.groups if group.page.kind != STATE]

    def needed(tokens: int) -> int:
        return states + sum(_blocks(tokens, block) for block in blocks_of)

    return largest_length(needed, num_blocks, 0)


def _working(plan: Plan, num_blocks: int, token_bytes_sum: int, block_size: int, length: int | None) -> KvWorking:
    groups = plan.groups
    widest = max(groups, key=lambda group: max(group.stage_bytes))
    layers = max(widest.stage_bytes) // widest.page.page_bytes
    block = f"{layers} layers of a group × {widest.page.page_bytes:,} bytes"
    if len(groups) == 1:
        stage = f" of the fullest of {len(widest.stage_bytes)} stages" if len(widest.stage_bytes) > 1 else ""
        block = f"{block_size:,} tokens × {token_bytes_sum:,} bytes{stage}"
    ranks = f" × DCP {plan.cp}" if plan.cp > 1 else ""
    shared = f" ÷ {len(groups)} groups" if len(groups) > 1 else ""
    printed = f"{num_blocks:,} blocks{shared} × {block_size:,} tokens{ranks}"
    if plan.rules.prints_concurrency and length is not None:
        printed = "concurrency × max_model_len"
    if length is None or plan.rules.is_token_concurrency:
        return KvWorking(block=block, printed=printed, concurrency="tokens ÷ max_model_len" if length else "")
    kinds = Counter((group.page.kind, plan.group_blocks(group.page, length)) for group in groups)
    taken = " + ".join(
        f"{blocks:,} {kind}" if count == 1 else f"{count} × {blocks:,} {kind}"
        for (kind, blocks), count in kinds.items()
    )
    concurrency = f"{num_blocks:,} blocks ÷ ({taken}) of a request"
    return KvWorking(block=block, printed=printed, concurrency=concurrency)


def _held_blocks(plan: Plan, page: Page) -> int | None:
    """Blocks that a running request holds at most in one group: None where they grow with its length."""
    if page.kind == WINDOW:
        return _blocks(page.span_tokens - 1, page.block_tokens) + 1
    if page.kind == CHUNK:
        return _blocks(page.span_tokens, page.block_tokens)
    if page.kind == STATE and plan.state_mode != ALL:
        return plan.state_blocks(page, 1)
    return None


def _kv_groups(plan: Plan, bytes_per_block: int) -> tuple[KvGroup, ...]:
    """Groups of equal pages taken together: every one of them takes a block of its own from the same pool."""
    rows = []
    for page, count in Counter(group.page for group in plan.groups).items():
        held, size = _held_blocks(plan, page), bytes_per_block * count
        tokens = page.block_tokens * (plan.cp if page.kind == FULL else 1)
        name = f"{page.kind} {page.span_tokens}" if page.span_tokens else page.kind
        if page.kind == STATE and held is not None:
            rows.append(KvGroup(name, tokens, 0, 0, held * size))
        else:
            rows.append(KvGroup(name, tokens, held, size))
    return tuple(rows)


def _rule(plan: Plan, shape: ModelShape) -> str:
    kinds = Counter(group.page.kind for group in plan.groups)
    engine = "V0" if plan.rules.is_v0 else "V1"
    printed = "concurrency × length" if plan.rules.prints_concurrency else "blocks ÷ groups × block"
    groups = " + ".join(f"{count} {kind}" for kind, count in kinds.items())
    states = f", states {plan.state_mode}" if shape.has_state and not plan.rules.is_v0 else ""
    spans = {_span(cache) for layer in shape.layers for cache in layer}
    if len(spans) > 1 and not kinds.keys() & {WINDOW, CHUNK}:
        states += ", windows counted in full"
    return f"vLLM {engine} {vllm_rule_span(plan.rules)}: groups {groups}{states}; prints {printed}"


def _blocks(tokens: int, block: int) -> int:
    return -(-tokens // block)
