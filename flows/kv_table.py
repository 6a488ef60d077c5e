"""The KV account as people read it, line by line, and as the one JSON object of `kvledger kv --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flows.kv import KvAnswer
    from transforms.planner.memory.budget import MemoryBudget
    from transforms.planner.memory.kv_account import KvAccount, KvGroup

SETTINGS = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")
_GIB_BYTES, _MIB_BYTES = 1 << 30, 1 << 20
_ORIGIN_LETTERS = 100


def kv_lines(answer: KvAnswer) -> list[str]:
    """Lines of the table: the sum from layers to tokens, then what the engine says at start-up."""
    account, engine = answer.account, answer.engine
    parallel = f"TP {engine.tensor_parallel_size}, PP {engine.pipeline_parallel_size}"
    if account.data_parallel_size > 1:
        parallel += f", DP {account.data_parallel_size}"
    if engine.decode_context_parallel_size > 1:
        parallel += f", DCP {engine.decode_context_parallel_size}"
    dtype = "auto (16 bits)" if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype
    return [
        f"{answer.title} on {account.engine} {account.engine_version}, {parallel}, KV {dtype}",
        *([_settings_line(answer)] if answer.budget else ()),
        "",
        *_columns(list(_sum_rows(account))),
        "",
        *(_columns(list(_memory_rows(answer.gpu.name, answer.budget))) if answer.gpu and answer.budget else ()),
        *([""] if answer.budget else ()),
        *_columns(list(_result_rows(account))),
        *(f"note: {note}" for note in account.notes),
    ]


def _settings_line(answer: KvAnswer) -> str:
    """Settings that the memory for KV goes by, the engine's own defaults marked."""
    words = (
        f"{name} {getattr(answer.engine, name):,g}{' (default)' if name in answer.assumed else ''}" for name in SETTINGS
    )
    return ", ".join(words)


def kv_json(answer: KvAnswer) -> dict[str, Any]:
    """Fields of the machine contract; bytes are per GPU unless the name says replica, blocks and tokens of a rank."""
    account, budget = answer.account, answer.budget
    document: dict[str, Any] = {
        "title": answer.title,
        "model": answer.model_id,
        "engine": account.engine,
        "engine_version": answer.engine.version or account.engine_version,
        "rule": account.rule,
        "data_parallel_size": account.data_parallel_size,
        "gpus_per_replica": account.replica_gpus,
        "available_kv_bytes": account.available_bytes_per_gpu,
        "bytes_per_token_per_gpu": account.bytes_per_token_per_gpu,
        "bytes_per_token_per_replica": account.bytes_per_token,
        "block_size_tokens": account.block_size_tokens,
        "bytes_per_block_per_gpu": account.bytes_per_block_per_gpu,
        "num_blocks": account.num_blocks,
        "reported_tokens": account.reported_tokens,
        "capacity_tokens": account.capacity_tokens,
        "capacity_tokens_per_replica": account.replica_capacity_tokens,
        "capacity_bytes_per_replica": account.replica_capacity_bytes,
        "max_model_len": account.max_model_len,
        "blocks_per_request": account.blocks_per_request,
        "max_concurrency": account.max_concurrency,
        "starts": account.starts,
        "largest_max_model_len": account.largest_max_model_len,
        "layers": [vars(line) for line in account.lines],
        "groups": [vars(group) for group in account.groups],
        "notes": list(account.notes),
    }
    if budget is not None and answer.gpu is not None:
        parts = ("total", "requested", "weights", "activation", "non_torch", "graph", "kv")
        document["gpu"] = answer.gpu.name
        document |= {name: getattr(answer.engine, name) for name in SETTINGS}
        document["assumed_settings"] = list(answer.assumed)
        document |= {f"{part}_bytes": getattr(budget, f"{part}_bytes") for part in parts}
        document["provenance"] = dict(budget.provenance)
    return document


def _sum_rows(account: KvAccount) -> Iterator[tuple[str, ...]]:
    yield "layers", "keep", "each on one GPU", "bytes", "in all"
    for line in account.lines:
        unit = "a request" if line.is_per_request else "a token"
        whole = f"{line.layers * line.bytes_each:,} {unit}"
        yield f"{line.layers:,} ×", line.what, f"{line.formula} =", f"{line.bytes_each:,}", f"→ {whole}"


def _memory_rows(gpu: str, budget: MemoryBudget) -> Iterator[tuple[str, ...]]:
    yield f"{gpu} reports", _size(budget.total_bytes), _origin(budget, "total_bytes")
    yield "the engine may take", _size(budget.requested_bytes), ""
    for part, name in (
        ("weights", "weights"),
        ("activation", "activations at their peak"),
        ("non_torch", "libraries (non-torch)"),
        ("graph", "CUDA graphs"),
    ):
        yield f"− {name}", _size(getattr(budget, f"{part}_bytes")), _origin(budget, f"{part}_bytes")
    yield "= KV on each GPU", _size(budget.kv_bytes), _origin(budget, "kv_bytes")


def _origin(budget: MemoryBudget, part: str) -> str:
    """How far to trust a part and where it comes from, cut to one line."""
    words = f"{budget.provenance.get(part, '')}: {budget.sources.get(part, '')}"
    return words if len(words) <= _ORIGIN_LETTERS else words[: _ORIGIN_LETTERS - 1] + "…"


def _result_rows(account: KvAccount) -> Iterator[tuple[str, ...]]:
    block, working = account.bytes_per_block_per_gpu, account.working
    tokens = "1 token" if account.block_size_tokens == 1 else f"{account.block_size_tokens:,} tokens"
    sum_of_it = f"{working.block} = " if working.block else ""
    yield "block", f"{tokens}: {sum_of_it}{block:,} bytes on each GPU"
    room = _size(account.available_bytes_per_gpu)
    if working.states:
        yield "states", f"{working.states} = {_size(account.state_bytes_per_gpu)} on each GPU"
        room = f"({room} − {_size(account.state_bytes_per_gpu)})"
    yield "blocks", f"{room} ÷ {_size(block)} = {account.num_blocks:,}"
    yield "engine prints", f"{account.reported_tokens:,} tokens = {working.printed}"
    yield "physically fit", f"{account.capacity_tokens:,} tokens while every attention layer keeps all of them"
    gpus = "1 GPU; a request holds" if account.gpus == 1 else f"{account.gpus} GPUs; a request holds on all of them"
    of_a_rank = f"{_size(account.capacity_bytes)} of KV on {gpus}:"
    if account.data_parallel_size > 1:
        whole = f"{_size(account.replica_capacity_bytes)} of KV, {account.replica_capacity_tokens:,} tokens"
        yield "replica", f"{account.data_parallel_size} ranks: {whole} on {account.replica_gpus} GPUs"
    yield "each rank" if account.data_parallel_size > 1 else "replica", of_a_rank
    for group in account.groups:
        yield f"  {group.name}", _held(group, account)
    if account.max_model_len is not None and account.max_concurrency is not None:
        wanted = f"{account.max_concurrency:,.2f} requests of {account.max_model_len:,} tokens"
        yield "concurrency", f"{wanted} = {working.concurrency}"
    yield "starts", f"{'yes' if account.starts else 'no'}; the longest request that fits has {_largest(account)} tokens"
    yield "rule", account.rule


def _held(group: KvGroup, account: KvAccount) -> str:
    if group.fixed_bytes:
        return f"{_size(group.fixed_bytes)}{_blocks(group.fixed_bytes, account)}, however long it is"
    step = "a token" if group.block_tokens == 1 else f"for each {group.block_tokens:,} tokens"
    bound = f", at most {group.max_blocks:,} times" if group.max_blocks else ""
    return f"{_size(group.bytes_per_block)}{_blocks(group.bytes_per_block, account)} {step}{bound}"


def _blocks(size: int, account: KvAccount) -> str:
    """How many blocks of the replica `size` is, where it is a whole number above one."""
    count, rest = divmod(size, account.bytes_per_block)
    return f" ({count} blocks)" if count > 1 and not rest else ""


def _largest(account: KvAccount) -> str:
    return f"{account.largest_max_model_len:,}"


def _size(size: int) -> str:
    """Bytes as people read them: GiB from a tenth of one on, MiB from a hundredth of one on, else bytes."""
    if size >= _GIB_BYTES / 10:
        return f"{size / _GIB_BYTES:,.2f} GiB"
    return f"{size / _MIB_BYTES:,.3f} MiB" if size >= _MIB_BYTES / 100 else f"{size:,} B"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns under each other."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
