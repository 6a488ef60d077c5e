"""Parameters of a vision tower and its projector, where the config describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.errors import ConfigError
from transforms.planner.model.config_reading import Config, shown, value_of, whole
from transforms.planner.model.parts import EVERY_RANK, Part

_GATED = ("pixtral", "qwen2_5_vl", "gemma4_vision")  # three matrices a feed-forward instead of two


def vision_parts(document: Mapping[str, Any], where: str, text_hidden: int) -> tuple[Part, ...]:
    """One part for the vision tower and its projector to `text_hidden`; none where the config describes no tower.

    Quantised checkpoints leave the tower at 16 bits. Kimi's MoonViT is whole on every rank, the others are divided
    (vLLM moonvit.py, qwen2_5_vl.py).
    """
    values = document.get("vision_config")
    if values is None:
        return ()
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: 'vision_config' must be an object, not {shown(values)}")
    tower = Config(values, f"{where}, vision_config", str(values.get("model_type")), "", {})
    hidden = whole(tower, "hidden_size", "embed_dim", "vt_hidden_size") or 0
    layers = whole(tower, "depth", "num_hidden_layers", "vt_num_hidden_layers") or 0
    inner = whole(tower, "intermediate_size", "vt_intermediate_size") or 4 * hidden
    if not hidden or not layers:
        return ()
    matrices = 3 if tower.model_type in _GATED else 2
    patch = (whole(tower, "patch_size", "vt_patch_size") or 0) ** 2 * 3 * (whole(tower, "temporal_patch_size") or 1)
    blocks = layers * (4 * hidden * hidden + matrices * hidden * inner + 8 * hidden)
    positions = 2 * (whole(tower, "position_embedding_size") or 0) * hidden  # Gemma 4: a table for each axis
    total = blocks + patch * hidden + positions + _projector(document, tower, hidden, text_hidden)
    is_whole = value_of(tower, "vt_hidden_size") is not None
    return (Part("vision", total, split=1 if is_whole else EVERY_RANK, is_linear=False),)


def _projector(document: Mapping[str, Any], tower: Config, hidden: int, text_hidden: int) -> int:
    """Patches merged `merge` × `merge`, then one hidden layer to the text's hidden size; Gemma 4 has one matrix."""
    if tower.model_type == "gemma4_vision":
        return hidden * text_hidden
    outer = Config(document, tower.where, "", "", {})
    merge = whole(tower, "spatial_merge_size") or whole(outer, "spatial_merge_size") or 1
    wide = hidden * merge * merge
    out = whole(tower, "out_hidden_size") or text_hidden
    return wide * wide + wide * out if merge > 1 else hidden * out + out * out
