"""Which kind of cache each layer of a config keeps: full, windowed, chunked, a state, both, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.errors import CatalogError, ConfigError
from transforms.planner.model.config_reading import Config, text, value_of, whole, words
from transforms.planner.model.model_families import FULL_EVERY_LAYERS

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL, WINDOW, CHUNK, STATE, BOTH, NONE = "full", "window", "chunk", "state", "both", "none"

# The words configs use, in layer_types, layers_block_type, hybrid_override_pattern and attn_type_list.
_KIND_OF_WORD = {
    "full_attention": FULL,
    "attention": FULL,
    "global": FULL,
    "full": FULL,
    "sliding_attention": WINDOW,
    "sliding_window": WINDOW,
    "local": WINDOW,
    "chunked_attention": CHUNK,
    "linear_attention": STATE,
    "mamba": STATE,
    "mamba2": STATE,
    "conv": STATE,
    "hybrid": BOTH,
    "parallel_hybrid": BOTH,
    "mlp": NONE,
    "moe": NONE,
    "dense": NONE,
}
_KIND_OF_LETTER = {"M": STATE, "*": FULL, "-": NONE, "E": NONE}


def layer_kinds(config: Config, family: str, layers: int) -> tuple[str, ...]:
    """Kind of cache of each of `layers` layers, in order; CatalogError on a kind of attention we do not know."""
    for reader in (_named, _lettered, _numbered, _indexed, _periodic, _counted):
        kinds = reader(config, family, layers)
        if kinds is not None:
            return _checked(config, kinds, layers)
    return _windowed(config, family, layers)


def _checked(config: Config, kinds: Sequence[str], layers: int) -> tuple[str, ...]:
    if len(kinds) < layers:
        raise ConfigError(f"{config.where}: the layer pattern names {len(kinds)} layers, the model has {layers}")
    return tuple(kinds[:layers])  # a longer list also names the drafter's layers


def _named(config: Config, _family: str, _layers: int) -> list[str] | None:
    names = words(config, "layer_types") or words(config, "layers_block_type")
    if names is None:
        return None
    unknown = sorted({str(name) for name in names} - set(_KIND_OF_WORD))
    if unknown:
        known = ", ".join(sorted(_KIND_OF_WORD))
        raise CatalogError(f"{config.where}: unknown kind of attention '{unknown[0]}'; known are {known}")
    return [_KIND_OF_WORD[str(name)] for name in names]


def _lettered(config: Config, _family: str, _layers: int) -> list[str] | None:
    letters = text(config, "hybrid_override_pattern")
    if letters is None:
        return None
    unknown = sorted(set(letters) - set(_KIND_OF_LETTER))
    if unknown:
        raise CatalogError(
            f"{config.where}: unknown layer '{unknown[0]}' in hybrid_override_pattern; known are M * - E"
        )
    return [_KIND_OF_LETTER[letter] for letter in letters]


def _numbered(config: Config, _family: str, _layers: int) -> list[str] | None:
    """Read lists of 0 and 1: MiniMax marks softmax attention, MiMo a window, Llama 4 rotary (hence chunked) layers."""
    for name, one, zero in (
        ("attn_type_list", FULL, STATE),
        ("hybrid_layer_pattern", WINDOW, FULL),
        ("no_rope_layers", CHUNK, FULL),
    ):
        marks = words(config, name)
        if marks is not None and (one != CHUNK or whole(config, "attention_chunk_size")):
            return [one if mark else zero for mark in marks]
    return None


def _indexed(config: Config, _family: str, layers: int) -> list[str] | None:
    """Read lists of the layers with attention among layers with a state (Kimi-Linear counts from 1)."""
    for name, first in (("full_attn_idxs", 0), ("attn_layer_indices", 0), ("linear_attn_config.full_attn_layers", 1)):
        marks = words(config, name)
        if marks is not None:
            return [FULL if index + first in marks else STATE for index in range(layers)]
    return None


def _periodic(config: Config, family: str, layers: int) -> list[str] | None:
    if whole(config, "mamba_d_ssm"):  # Falcon-H1: attention and Mamba side by side in every layer
        return [BOTH] * layers
    if period := whole(config, "attn_layer_period"):
        offset = whole(config, "attn_layer_offset") or 0
        return [FULL if index % period == offset else STATE for index in range(layers)]
    if value_of(config, "linear_num_value_heads") is None:
        return None
    interval = whole(config, "full_attention_interval") or FULL_EVERY_LAYERS.get(family, layers)
    return [FULL if (index + 1) % interval == 0 else STATE for index in range(layers)]


def _counted(config: Config, _family: str, layers: int) -> list[str] | None:
    """Reduced configs that only count their layers: spread evenly, attention last in each stretch."""
    full = whole(config, "n_attention_layers")
    state = whole(config, "n_mamba_layers", "n_conv_layers", "n_linear_layers")
    if not full or state is None:
        return None
    if full + state > layers:
        raise ConfigError(f"{config.where}: {full} attention and {state} state layers are more than {layers} layers")
    kept = [
        FULL if (n + 1) * full // (full + state) > n * full // (full + state) else STATE for n in range(full + state)
    ]
    return kept + [NONE] * (layers - full - state)


def _windowed(config: Config, family: str, layers: int) -> tuple[str, ...]:
    if whole(config, "attention_chunk_size"):
        return _every(FULL_EVERY_LAYERS.get(family, layers + 1), CHUNK, layers)
    is_off = value_of(config, "use_sliding_window") is False
    if not whole(config, "sliding_window", "sliding_window_size") or is_off:
        return (FULL,) * layers
    if value_of(config, "use_sliding_window") and (first := whole(config, "max_window_layers")) is not None:
        return tuple(WINDOW if index >= first else FULL for index in range(layers))
    pattern = value_of(config, "sliding_window_pattern") or value_of(config, "_sliding_window_pattern")
    if isinstance(pattern, str):
        return tuple(WINDOW if pattern[index % len(pattern)] == "L" else FULL for index in range(layers))
    if every := whole(config, "sliding_window_pattern", "_sliding_window_pattern"):
        return _every(every, WINDOW, layers)
    return _every(FULL_EVERY_LAYERS.get(family, layers + 1), WINDOW, layers)


def _every(full_every: int, others: str, layers: int) -> tuple[str, ...]:
    return tuple(FULL if (index + 1) % full_every == 0 else others for index in range(layers))
