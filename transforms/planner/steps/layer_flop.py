"""Work of attention in one layer: FLOPs per pair of a new token and a token it attends to, or per token in a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.planner.model.config_reading import HEADS, needed, whole
from transforms.planner.model.model_shape import AttentionLayer, IndexerLayer, LatentLayer

if TYPE_CHECKING:
    from transforms.planner.model.config_reading import Config
    from transforms.planner.model.model_shape import Layer


@dataclass(frozen=True)
class AttentionWork:
    """FLOPs of one layer, over all heads; `window_tokens` is what its context is limited to, where it is."""

    pair_flop: float = 0.0
    """Decode."""
    prefill_pair_flop: float = 0.0
    window_tokens: int | None = None


def attention_work(cache: Layer, config: Config, tensor: int) -> AttentionWork:
    """Work of the attention that keeps `cache`, a product with keys and one with values; an indexer's on each rank.

    MLA decodes on its latents and prefills on whole heads; where an indexer chooses, it attends to that many tokens.
    """
    if isinstance(cache, AttentionLayer):
        flop = 2.0 * needed(config, *HEADS) * (cache.key_head_dim + cache.value_head_dim)
        return AttentionWork(flop, flop, cache.window_tokens or cache.chunk_tokens)
    if isinstance(cache, LatentLayer):
        heads = needed(config, *HEADS)
        absorbed = 2.0 * heads * (2 * cache.kv_lora_rank + cache.rope_head_dim)
        chosen = whole(config, "index_topk")
        if chosen:
            return AttentionWork(absorbed, absorbed, chosen)
        key_dim = needed(config, "qk_nope_head_dim") + cache.rope_head_dim
        return AttentionWork(absorbed, 2.0 * heads * (key_dim + needed(config, "v_head_dim")))
    if isinstance(cache, IndexerLayer):
        flop = 2.0 * needed(config, "index_n_heads") * cache.index_head_dim * tensor
        return AttentionWork(flop, flop)
    return AttentionWork()
