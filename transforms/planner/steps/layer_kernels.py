"""How many kernels a step launches: what its overhead grows with, whatever the batch.

Estimates from what the models' code in vLLM and SGLang calls, nothing was profiled: a layer's norms, projections,
rotary embedding, cache write, attention, gate and activation are nine, and some mixers need more. Where counts differ
by version, that was taken which predicts (model, GPU) groups left out of the catalog's fit better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.planner.model.config_reading import value_of

if TYPE_CHECKING:
    from transforms.planner.model.config_reading import Config
    from transforms.planner.model.parameters import Parameters
    from transforms.planner.steps.step_context import ContextWork

LAYER_KERNELS = 9
LATENT_KERNELS = 3
"""More for latent attention: two projections down, the values' projection up."""
INDEXER_KERNELS = 12
"""More for an indexer: its projections, norm, rotation and quantisation of queries and keys, scores, the choice."""
STATE_KERNELS = 6
"""More for a delta net or Mamba: split projections, convolution, gates, update of the state, gated norm."""
HEAD_NORM_KERNELS = 2
"""More where queries and keys are normalised head by head."""

_HEAD_NORMED = ("qwen3", "gemma3", "gemma4", "olmo2", "minimax_m2")
"""Model types that begin so normalise queries and keys."""


def launched_kernels(config: Config, counted: Parameters, context: ContextWork) -> int:
    """Kernels of one step of all layers, routed experts apart."""
    return (
        LAYER_KERNELS * len(counted.layers)
        + LATENT_KERNELS * context.latent_layers
        + INDEXER_KERNELS * context.indexer_layers
        + STATE_KERNELS * context.state_layers
        + HEAD_NORM_KERNELS * _head_normed_layers(config, counted)
    )


def sparse_layers(counted: Parameters) -> int:
    """Layers with routed experts."""
    return sum(any(part.name == "routed_experts" for part in layer) for layer in counted.layers)


def _head_normed_layers(config: Config, counted: Parameters) -> int:
    is_normed = value_of(config, "use_qk_norm") or counted.family.startswith(_HEAD_NORMED)
    return sum(any(part.name == "attention" for part in layer) for layer in counted.layers) if is_normed else 0
