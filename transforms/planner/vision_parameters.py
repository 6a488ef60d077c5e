"""Parameters of a vision tower and its projector, where the config describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.planner.parts import EVERY_RANK, Part


def vision_parts(document: Mapping[str, Any], text_hidden: int) -> tuple[Part, ...]:
    """One part for the vision tower and its projector to `text_hidden`; none where the config describes no tower.

    Quantised checkpoints leave the tower at 16 bits. Kimi's MoonViT is whole on every rank, the others are divided
    (vLLM moonvit.py, qwen2_5_vl.py).
    """
    tower = document.get("vision_config")
    if not isinstance(tower, Mapping):
        return ()
    hidden = _first(tower, "hidden_size", "embed_dim", "vt_hidden_size")
    layers = _first(tower, "depth", "num_hidden_layers", "vt_num_hidden_layers")
    inner = _first(tower, "intermediate_size", "vt_intermediate_size") or 4 * hidden
    if not hidden or not layers:
        return ()
    matrices = 3 if tower.get("model_type") in ("pixtral", "qwen2_5_vl") else 2
    patch = _first(tower, "patch_size", "vt_patch_size") ** 2 * 3 * (_first(tower, "temporal_patch_size") or 1)
    blocks = layers * (4 * hidden * hidden + matrices * hidden * inner + 8 * hidden)
    total = blocks + patch * hidden + _projector(document, tower, hidden, text_hidden)
    return (Part("vision", total, split=1 if "vt_hidden_size" in tower else EVERY_RANK, is_linear=False),)


def _projector(document: Mapping[str, Any], tower: Mapping[str, Any], hidden: int, text_hidden: int) -> int:
    """Patches merged `merge` × `merge`, then one hidden layer to the text's hidden size."""
    merge = _first(tower, "spatial_merge_size") or _first(document, "spatial_merge_size") or 1
    wide = hidden * merge * merge
    out = _first(tower, "out_hidden_size") or text_hidden
    return wide * wide + wide * out if merge > 1 else hidden * out + out * out


def _first(table: Mapping[str, Any], *names: str) -> int:
    return next((table[name] for name in names if isinstance(table.get(name), int)), 0)
