"""How many parameters a model has, part by part, from its config.json: what it stores and what a token passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError
from transforms.planner.model.attention_parameters import attention_parts, state_parts
from transforms.planner.model.config_reading import HIDDEN, layer_count, needed, read_config, value_of, whole
from transforms.planner.model.feed_forward_parameters import feed_forward_parts
from transforms.planner.model.layer_pattern import BOTH, FULL, NONE, STATE, layer_kinds
from transforms.planner.model.model_families import family_of
from transforms.planner.model.parts import Part, norm
from transforms.planner.model.vision_parameters import vision_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transforms.planner.model.config_reading import Config

VOCABULARY_STEP = 64
"""vLLM pads the vocabulary to a multiple of 64 rows (vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE)."""

# Families with parts beside attention and feed-forward that no start-up log has confirmed our count of.
_UNCOUNTED = frozenset({"gemma3n", "gemma3n_text", "longcat_flash", "whisper", "deepseek_ocr"})

_TIED_GEMMA = ("gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text")
_TIED_GPT = ("bloom", "falcon", "gpt2", "gpt_bigcode", "mpt", "opt")
_TIED_BY_DEFAULT = frozenset((*_TIED_GEMMA, *_TIED_GPT, "lfm2", "lfm2_moe"))


@dataclass(frozen=True)
class Parameters:
    """Parts of a model: `layers[i]` those of layer i, `embedding`, `lm_head`, and `outside` the rest (norm, vision)."""

    family: str
    where: str
    layers: tuple[tuple[Part, ...], ...]
    embedding: Part
    lm_head: Part
    is_tied: bool
    """Whether the output head is the input embedding: then it is stored once and `lm_head` counts nothing stored."""
    outside: tuple[Part, ...]
    drafter_layer: tuple[Part, ...]
    """One layer of a drafter: as the model's last layer, with a projection of two hidden states to one."""

    @property
    def total(self) -> int:
        """All parameters that are stored, without drafters."""
        stored = () if self.is_tied else (self.lm_head,)
        return _sum((*self._in_layers(), self.embedding, *stored, *self.outside))

    @property
    def active(self) -> int:
        """Parameters that one token passes through: routed experts by their share, the embedding once."""
        stored = () if self.is_tied else (self.lm_head,)
        return sum(part.active for part in (*self._in_layers(), self.embedding, *stored, *self._text_outside()))

    @property
    def routed_experts(self) -> int:
        """Parameters of all routed experts of all layers."""
        return _sum(part for part in self._in_layers() if part.name == "routed_experts")

    @property
    def computed(self) -> int:
        """Parameters behind a token's matrix products: the active ones without input embedding and output head."""
        return sum(part.active for part in (*self._in_layers(), *self._text_outside()))

    def _in_layers(self) -> tuple[Part, ...]:
        return tuple(part for layer in self.layers for part in layer)

    def _text_outside(self) -> tuple[Part, ...]:
        return tuple(part for part in self.outside if part.name != "vision")


def parameters(config: Mapping[str, Any], where: str) -> Parameters:
    """Parameter counts of the model in a decoded config.json, per part; CatalogError, ConfigError say what lacks."""
    read = read_config(config, where)
    family = family_of(read.model_type, read.architecture, where)
    if family in _UNCOUNTED:
        raise CatalogError(f"{where}: the parts of '{family}' are not counted; give weights_bytes in the fleet file")
    hidden, layers = needed(read, *HIDDEN), layer_count(read)
    kinds = layer_kinds(read, family, layers)
    rows = -(-needed(read, "vocab_size") // VOCABULARY_STEP) * VOCABULARY_STEP
    return Parameters(
        family=family,
        where=where,
        layers=tuple(_layer(read, family, kind, index) for index, kind in enumerate(kinds)),
        embedding=Part("embedding", rows * hidden, is_linear=False),
        lm_head=Part("lm_head", rows * hidden, is_linear=False),
        is_tied=_is_tied(read, config, family),
        outside=(norm(hidden), *vision_parts(config, where, hidden)),
        drafter_layer=(
            *_layer(read, family, FULL, layers - 1),
            Part("drafter", 2 * hidden * hidden, split=1, modules=("eh_proj",)),
        ),
    )


def _layer(config: Config, family: str, kind: str, index: int) -> tuple[Part, ...]:
    parts: tuple[Part, ...] = (norm(2 * needed(config, *HIDDEN)),)
    if kind in (STATE, BOTH):
        parts += state_parts(config)
    if kind not in (STATE, NONE):
        parts += attention_parts(config, family, kind)
    return parts + feed_forward_parts(config, family, kind, index)


def _is_tied(config: Config, document: Mapping[str, Any], family: str) -> bool:
    for value in (value_of(config, "tie_word_embeddings"), document.get("tie_word_embeddings")):
        if isinstance(value, bool):
            return value
    return family in _TIED_BY_DEFAULT or bool(whole(config, "tie_embedding"))


def _sum(parts: Iterable[Part]) -> int:
    return sum(part.parameters for part in parts)
