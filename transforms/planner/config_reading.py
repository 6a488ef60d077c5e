"""Reads a Hugging Face config.json: the text tower wherever it is nested, each fact under any of its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import ConfigError

# Names of the same fact in the public configs of the known families.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", "multi_query_group_num")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "head_size")
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
    tower = _text_tower(document)
    architectures = document.get("architectures") or tower.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    model_type = str(tower.get("model_type") or document.get("model_type") or "")
    if not (model_type or architecture):
        raise ConfigError(f"{where}: config lacks 'model_type' and 'architectures'; give the model's own config.json")
    quantization = document.get("quantization_config") or tower.get("quantization_config") or {}
    return Config(tower, where, model_type, architecture, quantization if isinstance(quantization, Mapping) else {})


def whole(config: Config, *names: str) -> int | None:
    """Whole number under the first of `names` the config has (dots nest), else None; ConfigError on another type."""
    for name in names:
        value = value_of(config, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{config.where}: '{name}' must be a whole number, not {value!r}")
        return value
    return None


def needed(config: Config, *names: str) -> int:
    """Whole number above zero under the first of `names`; ConfigError names what lacks."""
    value = whole(config, *names)
    if value is None:
        raise ConfigError(f"{config.where}: config lacks '{names[0]}'; give the model's own config.json")
    if value == 0:
        raise ConfigError(f"{config.where}: '{names[0]}' must be above zero")
    return value


def value_of(config: Config, name: str) -> Any:
    """Value under a dotted `name`, None where it is absent."""
    value: Any = config.values
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def words(config: Config, name: str) -> list[Any] | None:
    """List under `name`, None where it is absent or empty; ConfigError where it is no list."""
    value = value_of(config, name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ConfigError(f"{config.where}: '{name}' must be a list, not {value!r}")
    return value or None


def _text_tower(document: Mapping[str, Any]) -> Mapping[str, Any]:
    if any(name in document for name in LAYERS):
        return document
    for name in _TOWERS:
        tower = document.get(name)
        if isinstance(tower, Mapping):
            return _text_tower(tower)
    return document
