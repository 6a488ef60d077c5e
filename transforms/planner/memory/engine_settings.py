"""The engine as it runs: what nobody set has the engine's own default on that GPU and in that release."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from transforms.fleet_limits import check_scheduling
from transforms.planner.memory.budget import engine_defaults
from transforms.planner.memory.kv_account import default_prefix_caching
from transforms.planner.memory.kv_versions import SGLANG
from transforms.planner.memory.sglang_share import default_share

if TYPE_CHECKING:
    from collections.abc import Collection

    from transforms.catalog import Gpu
    from transforms.fleet import Engine
    from transforms.planner.model.model_shape import ModelShape

DEFAULTED = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "enable_prefix_caching")
"""Settings whose default goes by GPU, model and release."""


def with_defaults(
    engine: Engine, given: Collection[str], shape: ModelShape, gpu: Gpu
) -> tuple[Engine, tuple[str, ...]]:
    """`engine` with the defaults of its release on `gpu` for each of DEFAULTED not in `given`, and the names of those.

    A setting that differs from the dataclass's own default counts as given. Sequences that nobody set are no more than
    the tokens of a step, as vLLM has it (arg_utils.py). ConfigError where the engine refuses the result.
    """
    plain = {field.name: field.default for field in fields(engine)}
    assumed = tuple(key for key in DEFAULTED if key not in given and getattr(engine, key) == plain[key])
    usual = engine_defaults(gpu, engine.name, engine.version)
    tokens = usual.max_num_batched_tokens if "max_num_batched_tokens" in assumed else engine.max_num_batched_tokens
    values: dict[str, Any] = {
        "max_num_seqs": min(usual.max_num_seqs, tokens),
        "max_num_batched_tokens": tokens,
        "gpu_memory_utilization": usual.gpu_memory_utilization,
        "enable_prefix_caching": default_prefix_caching(shape, engine.name, engine.version),
    }
    if engine.name == SGLANG:
        chunked = replace(engine, max_num_batched_tokens=tokens)
        values["gpu_memory_utilization"] = default_share(gpu, chunked, has_latent=shape.has_latent)
    settled = replace(engine, **{key: values[key] for key in assumed})
    check_scheduling(settled, "engine settings:")
    return settled, assumed
