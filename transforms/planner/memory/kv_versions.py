"""Which KV rules an engine version follows, as a table of what changed when; an unknown version is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from transforms.errors import CatalogError, nearest

VLLM, VLLM_ASCEND, SGLANG, TENSORRT_LLM = "vllm", "vllm-ascend", "sglang", "tensorrt-llm"
ENGINES = (VLLM, VLLM_ASCEND, SGLANG, TENSORRT_LLM)

Version = tuple[int, int]


@dataclass(frozen=True)
class VllmRules:
    """How one range of vLLM versions counts KV memory."""

    since: Version
    is_v0: bool = True
    is_token_concurrency: bool = True
    """Concurrency is tokens over length; later it is blocks over the blocks of one request."""
    has_hybrid_manager: bool = False
    """Windowed layers keep their window only; without it they are counted as full attention."""
    has_state_pages: bool = False
    """States of fixed size share the block pool with attention; before, they lay outside the KV cache."""
    chunk_groups: bool = False
    """Chunked-local layers use the hybrid manager without an environment variable."""
    padding_factor: Fraction = Fraction(0)
    """Layers are grouped by the larger bucket where it is smaller than this many times the smaller one."""
    counts_draft_states: bool = False
    """A request holds one more state block per draft token."""
    has_aligned_states: bool = False
    """With prefix caching a request holds the state of two block boundaries."""
    has_cached_states: bool = True
    """With prefix caching Mamba layers keep a state at every block boundary."""
    caches_states_by_default: bool = False
    """Prefix caching is on for models with states unless it is switched off."""
    pads_pages: bool = False
    """A page that does not divide the largest one is padded to it; before, the engine refused to start."""
    concurrent_batches: bool = False
    """Windowed layers reserve the tokens of every batch in flight, not of one."""
    prints_concurrency: bool = False
    """The printed KV size is concurrency times max_model_len; before, blocks of one group times block size."""
    reserves_null_block: bool = False
    """The start-up check leaves out the block that is never given to a request."""
    latent_state_block_tokens: int = 64
    """Kernel alignment of the shared block of MLA layers and states."""
    blackwell_latent_block_tokens: int = 64
    """Block of MLA on data-centre Blackwell: CUTLASS MLA wants 128 tokens where it is the default."""
    blackwell_wide_head_tokens: int = 16
    """Kernel alignment of the block of models with states on data-centre Blackwell where heads have 256 values."""
    nemotron_state_bytes: int = 2
    """Bytes of a Nemotron-H state value where its config is silent."""


# What changed, by the first version that has it: read in vLLM 0.9.1 to 0.33.0, v1/core/kv_cache_utils.py and
# kv_cache_planning.py, v1/kv_cache_interface.py, platforms/interface.py, models/config.py, envs.py.
_VLLM_CHANGES: tuple[tuple[Version, dict[str, Any]], ...] = (
    ((0, 8), {"is_v0": False}),
    ((0, 9), {"is_token_concurrency": False, "has_hybrid_manager": True}),
    # CUTLASS MLA is the default on Blackwell from vllm-project/vllm#21626 to #32615, which made FlashInfer's it.
    ((0, 10), {"has_state_pages": True, "blackwell_latent_block_tokens": 128}),
    # FlashInfer runs no heads of 256 values in blocks of 16 on Blackwell (models/config.py, flashinfer#1993).
    ((0, 11), {"blackwell_wide_head_tokens": 32}),
    ((0, 12), {"padding_factor": Fraction(5, 4)}),
    ((0, 14), {"chunk_groups": True}),
    ((0, 15), {"counts_draft_states": True, "has_aligned_states": True, "blackwell_latent_block_tokens": 64}),
    ((0, 18), {"padding_factor": Fraction(3, 2)}),
    ((0, 20), {"nemotron_state_bytes": 4}),
    ((0, 21), {"prints_concurrency": True}),
    ((0, 24), {"pads_pages": True}),
    ((0, 26), {"concurrent_batches": True, "caches_states_by_default": True}),
    ((0, 29), {"reserves_null_block": True, "latent_state_block_tokens": 128}),
    ((0, 33), {"has_cached_states": False}),
)

# First and newest version whose rules we have read or checked against logs.
_KNOWN: dict[str, tuple[Version, Version]] = {
    VLLM: ((0, 5), (0, 33)),
    VLLM_ASCEND: ((0, 7), (0, 33)),
    SGLANG: ((0, 3), (0, 5)),
    TENSORRT_LLM: ((0, 9), (1, 2)),
}


def known_version(engine: str, version: str | None) -> Version:
    """(major, minor) of an engine's version, the newest known if None; CatalogError says what is known."""
    if engine not in _KNOWN:
        raise CatalogError(f"unknown engine '{engine}'{nearest(engine, ENGINES)}; known are {', '.join(ENGINES)}")
    first, newest = _KNOWN[engine]
    if version is None:
        return newest
    match = re.match(r"v?(\d+)\.(\d+)(?![\d])", version)
    found = (int(match[1]), int(match[2])) if match else None
    if found is None or not first <= found <= newest:
        span = f"{first[0]}.{first[1]} to {newest[0]}.{newest[1]}"
        raise CatalogError(f"the KV rules of {engine} '{version}' are not known; give an --engine-version from {span}")
    return found


def vllm_rules(version: Version) -> VllmRules:
    """Rules of vLLM at `version`: every change up to it, applied in order."""
    rules = VllmRules(since=_KNOWN[VLLM][0])
    for since, changes in _VLLM_CHANGES:
        if since <= version:
            rules = replace(rules, since=since, **changes)
    return rules


def vllm_rule_span(rules: VllmRules) -> str:
    """Text naming the versions that share these rules, as "0.21-0.23"."""
    later = [since for since, _ in _VLLM_CHANGES if since > rules.since]
    last = (later[0][0], later[0][1] - 1) if later else _KNOWN[VLLM][1]
    start, end = (f"{major}.{minor}" for major, minor in (rules.since, last))
    return start if start == end else f"{start}-{end}"
