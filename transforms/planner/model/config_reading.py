"""Reads a Hugging Face config.json: the text tower wherever it is nested, each fact under any of its names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import ConfigError
from transforms.planner.model.model_families import CLASS_DEFAULTS, TOWER_DEFAULTS

# Names of the same fact in the public configs of the known families.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", "multi_query_group_num")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "head_size")
_LARGEST = 10**12  # above any count in a config; larger ones are slips of the pen
_MOST_LAYERS = 10_000
_SHOWN_LETTERS = 60
_TOWERS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model", "text_model")


@dataclass(frozen=True)
class Config:
    """The text tower of one config.json; `where` names the file in errors."""

    values: Mapping[str, Any]
    where: str
    model_type: str
    architecture: str
    quantization: Mapping[str, Any]


def read_config(document: Mapping[str, Any], where: str) -> Config:
    """Text tower of a decoded config.json; ConfigError where it names no architecture."""
    tower = _text_tower(document, where)
    architectures = document.get("architectures") or tower.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    model_type = str(tower.get("model_type") or document.get("model_type") or "")
    if not (model_type or architecture):
        raise ConfigError(f"{where}: config lacks 'model_type' and 'architectures'; give the model's own config.json")
    names = ("quantization_config", "compression_config")  # the latter in older compressed-tensors checkpoints
    quantization: Any = next((held[name] for name in names for held in (document, tower) if held.get(name)), {})
    if not isinstance(quantization, Mapping):
        raise ConfigError(f"{where}: 'quantization_config' must be an object, not {shown(quantization)}")
    inner = quantization.get("quantization")
    if isinstance(inner, Mapping):  # modelopt's own file, hf_quant_config.json, put into the config as it is
        quantization = {**inner, **quantization}
    assumed = CLASS_DEFAULTS if tower is document else CLASS_DEFAULTS | TOWER_DEFAULTS
    return Config(_with_defaults(tower, assumed.get(model_type, {})), where, model_type, architecture, quantization)


def whole(config: Config, *names: str) -> int | None:
    """Whole number under the first of `names` the config has (dots nest), else None; ConfigError on another type."""
    for name in names:
        value = value_of(config, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise ConfigError(
                f"{config.where}: '{name}' must be a whole number from 0 to {_LARGEST:,}, not {shown(value)}"
            )
        return value
    return None


def number(config: Config, name: str) -> float | None:
    """Number above zero under `name`, None where it is absent; ConfigError on anything else."""
    value = value_of(config, name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{config.where}: '{name}' must be a number above zero, not {shown(value)}")
    return float(value)


def layer_count(config: Config) -> int:
    """Transformer layers of the model; ConfigError where the config has none or more than any model."""
    layers = needed(config, *LAYERS)
    if layers > _MOST_LAYERS:
        raise ConfigError(f"{config.where}: {layers:,} layers are more than any model has ({_MOST_LAYERS:,} at most)")
    return layers


def above_zero(config: Config, *names: str) -> int | None:
    """Whole number above zero under the first of `names` the config has, else None; ConfigError where it is zero."""
    value = whole(config, *names)
    if value == 0:
        name = next(name for name in names if value_of(config, name) is not None)
        raise ConfigError(f"{config.where}: '{name}' must be above zero")
    return value


def needed(config: Config, *names: str) -> int:
    """Whole number above zero under the first of `names`; ConfigError names what lacks."""
    value = above_zero(config, *names)
    if value is None:
        raise ConfigError(f"{config.where}: config lacks '{names[0]}'; give the model's own config.json")
    return value


def head_dim(config: Config, *first: str) -> int:
    """Values of one attention head: under `first`, under any common name, else the hidden size over the heads."""
    dim = above_zero(config, *first, *HEAD_DIM)
    if dim is not None:
        return dim
    hidden, heads = needed(config, *HIDDEN), needed(config, *HEADS)
    if hidden < heads:
        raise ConfigError(f"{config.where}: a hidden size of {hidden:,} does not make {heads:,} attention heads")
    return hidden // heads


def kv_heads(config: Config, *first: str) -> int:
    """KV heads of a layer: under `first`, under any common name, else one a query head or one in all (MQA)."""
    if value_of(config, "multi_query") and not value_of(config, "new_decoder_architecture"):
        return 1  # whatever num_kv_heads says: Falcon configs that were saved again count every query head in it
    if value_of(config, "multi_query_attention") is False:  # ChatGLM: the number of groups is not used then
        return needed(config, *HEADS)
    return above_zero(config, *first, *KV_HEADS, "attn_config.kv_n_heads") or needed(config, *HEADS)


def shown(value: Any) -> str:
    """`value` as an error line shows it: one line, cut short."""
    written = repr(value)
    return written if len(written) <= _SHOWN_LETTERS else written[: _SHOWN_LETTERS - 1] + "…"


def value_of(config: Config, name: str) -> Any:
    """Value under a dotted `name`, None where it is absent."""
    value: Any = config.values
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def text(config: Config, name: str) -> str | None:
    """Text under `name`, None where it is absent or empty; ConfigError on another type."""
    value = value_of(config, name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{config.where}: '{name}' must be text, not {shown(value)}")
    return value or None


def words(config: Config, name: str) -> list[Any] | None:
    """List under `name`, None where it is absent or empty; ConfigError where it is no list."""
    value = value_of(config, name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ConfigError(f"{config.where}: '{name}' must be a list, not {shown(value)}")
    return value or None


def _with_defaults(tower: Mapping[str, Any], assumed: Mapping[str, int]) -> Mapping[str, Any]:
    """Give `tower` what its class assumes where the config is silent: a fact under another of its names is not."""
    names = {name: group for group in (LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM) for name in group}
    absent = {
        name: value
        for name, value in assumed.items()
        if all(tower.get(other) is None for other in names.get(name, (name,)))
    }
    return {**tower, **absent} if absent else tower


def _text_tower(document: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    if any(name in document for name in LAYERS):
        return document
    for name in _TOWERS:
        tower = document.get(name)
        if isinstance(tower, Mapping):
            return _text_tower(tower, where)
        if tower is not None:
            raise ConfigError(f"{where}: '{name}' must be an object, not {shown(tower)}")
    return document
