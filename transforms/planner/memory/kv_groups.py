"""vLLM's groups of layers: pages brought to one size, layers of one kind bucketed and split into equal groups.

From 0.29 on VLLM_KV_CACHE_LAYOUT can name a layout with the block outermost (BLHNC), under which pages of several sizes
lie side by side in a block and are not padded. It is no default (only DeepSeek-V4 needs it, which is refused): counted
is the default layout. Whoever sets that variable takes kv_cache_memory_bytes and the size from the engine's own log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from transforms.planner.memory.kv_versions import VllmRules

FULL, WINDOW, CHUNK, STATE = "full", "window", "chunk", "state"


@dataclass(frozen=True)
class Page:
    """One layer's block on one GPU. `span_tokens` is the window or chunk, `layout` what must agree inside a group."""

    kind: str
    block_tokens: int
    page_bytes: int
    span_tokens: int = 0
    layout: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """Layers with one block table: its page's kind and block, and the bytes of its layers on each pipeline stage."""

    page: Page
    layers: int
    stage_bytes: tuple[int, ...]


def groups_of(stages: Sequence[Sequence[Page]], rules: VllmRules, where: str) -> tuple[Group, ...]:
    """Groups of all layers, given the pages on each pipeline stage; one group where all hold the same token slots."""
    placed = [(stage, page) for stage, pages in enumerate(stages) for page in pages]
    if len({(page.kind, page.span_tokens) for _, page in placed}) == 1:
        return (_group(placed, len(stages)),)
    buckets: dict[Page, list[tuple[int, Page]]] = {}
    for stage, page in _one_size(placed, rules, where):
        buckets.setdefault(page, []).append((stage, page))
    size = _group_size([len(bucket) for bucket in buckets.values()], rules.padding_factor)
    groups = []
    for bucket in buckets.values():
        count = -(-len(bucket) // size)
        groups += [_group(bucket[n::count], len(stages)) for n in range(count)]
    return tuple(groups)


def _group_size(counts: list[int], padding_factor: Fraction) -> int:
    """Layers of one group: the smallest bucket, or the largest where padding to it costs little."""
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * padding_factor else smallest


def _one_size(placed: list[tuple[int, Page]], rules: VllmRules, where: str) -> list[tuple[int, Page]]:
    """Give smaller pages more tokens until all pages have the bytes of the largest one; pad what does not divide it."""
    largest = max(page.page_bytes for _, page in placed)
    sized = []
    for stage, page in placed:
        if page.kind == STATE or (largest % page.page_bytes and rules.pads_pages):
            sized.append((stage, replace(page, page_bytes=largest)))
        elif largest % page.page_bytes:
            raise ConfigError(
                f"{where}: pages of {page.page_bytes:,} and {largest:,} bytes do not share a block in vLLM "
                f"{rules.since[0]}.{rules.since[1]}; use 0.24 or newer, or --no-hybrid-kv-manager"
            )
        else:
            times = largest // page.page_bytes
            sized.append((stage, replace(page, page_bytes=largest, block_tokens=page.block_tokens * times)))
    return sized


def _group(placed: Sequence[tuple[int, Page]], stages: int) -> Group:
    per_stage = [0] * stages
    for stage, page in placed:
        per_stage[stage] += page.page_bytes
    return Group(placed[0][1], len(placed), tuple(per_stage))
