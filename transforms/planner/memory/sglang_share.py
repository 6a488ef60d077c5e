"""What SGLang takes where nobody sets it: tokens of a prefill chunk, and the share of memory for weights and KV."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transforms.catalog import Gpu
    from transforms.fleet import Engine

_MIB = 1 << 20
_FIXED_MIB = 512  # what attention backends and the like hold
_CHUNK_MIB = 1.5  # activations of one prefill token of a chunk
_SMALLEST_CHUNK_TOKENS = 2048
_RANK_MIB = 1024 / 8  # for each GPU of a replica
_DECODE_GRAPH_MIB = 2  # for each request of the largest decode graph
_RANK_GRAPH_MIB = 3  # for each of them and each rank of data-parallel attention
_PREFILL_GRAPH_MIB, _LATENT_PREFILL_GRAPH_MIB = 8, 1536  # a bucket of prefill graphs; all of them under MLA
_LARGE_GPU_MIB, _LARGE_GPU_LEAST_MIB = 60 * 1024, 10 * 1024

# Tokens of a prefill chunk by GPU memory in MiB below the bound.
_CHUNKS = ((35 * 1024, 2048), (60 * 1024, 4096), (160 * 1024, 8192))
_LARGEST_CHUNK_TOKENS = 16384
# Requests of the largest decode graph by GPU memory in MiB below the bound: on one to three ranks, on four and more.
_GRAPH_REQUESTS = ((20 * 1024, 8, 8), (35 * 1024, 24, 80), (60 * 1024, 32, 160), (160 * 1024, 256, 512))
_MOST_GRAPH_REQUESTS = 512
_MANY_RANKS = 4
# Tokens of the prefill graphs' buckets: from, to, step.
_BUCKETS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 1 << 20, 512))


def default_chunk_tokens(gpu: Gpu) -> int:
    """chunked_prefill_size that SGLang takes on `gpu`, in tokens (server_args.py, 0.5)."""
    memory_mib = gpu.memory_bytes / _MIB
    return next((tokens for bound, tokens in _CHUNKS if memory_mib < bound), _LARGEST_CHUNK_TOKENS)


def default_share(gpu: Gpu, engine: Engine, *, has_latent: bool) -> float:
    """mem_fraction_static that SGLang derives on `gpu` for one text model: 0..1, three digits as it rounds.

    1 − reserved / memory, with `max_num_batched_tokens` as its chunk (kv_memory.md §3.1; server_args.py
    _handle_gpu_memory_settings, 0.5). It takes less for models with a vision tower, by a rule we do not know.
    """
    memory_mib = gpu.memory_bytes / _MIB
    tensor, chunk = engine.tensor_parallel_size, engine.max_num_batched_tokens
    graphs = _graph_mib(memory_mib, engine, has_latent=has_latent)
    reserved = _FIXED_MIB + _CHUNK_MIB * max(chunk, _SMALLEST_CHUNK_TOKENS)
    reserved += _RANK_MIB * tensor * engine.pipeline_parallel_size + graphs
    if memory_mib > _LARGE_GPU_MIB:
        reserved = max(reserved, _LARGE_GPU_LEAST_MIB + graphs)
    return max(round(1 - reserved / memory_mib, 3), 0.001)


def _graph_mib(memory_mib: float, engine: Engine, *, has_latent: bool) -> float:
    """MiB set aside for CUDA graphs of decode and prefill."""
    many = engine.tensor_parallel_size >= _MANY_RANKS
    sizes = [(large if many else small) for bound, small, large in _GRAPH_REQUESTS if memory_mib < bound]
    requests = sizes[0] if sizes else _MOST_GRAPH_REQUESTS
    ranks = engine.data_parallel_size if engine.data_parallel_size > 1 else 0
    if has_latent:
        prefill = _LATENT_PREFILL_GRAPH_MIB
    else:
        chunk = engine.max_num_batched_tokens
        prefill = _PREFILL_GRAPH_MIB * sum(len(range(low, min(high, chunk) + 1, step)) for low, high, step in _BUCKETS)
    return _DECODE_GRAPH_MIB * requests + _RANK_GRAPH_MIB * requests * ranks + prefill
