"""The KV account as people read it, line by line, and as the one JSON object of `kvledger kv --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flows.kv import KvAnswer
    from transforms.planner.kv_account import KvAccount
    from transforms.planner.memory import MemoryBudget

_GIB_BYTES, _MIB_BYTES = 1 << 30, 1 << 20


def kv_lines(answer: KvAnswer) -> list[str]:
    """Lines of the table: the sum from layers to tokens, then what the engine says at start-up."""
    account, engine = answer.account, answer.engine
    parallel = f"TP {engine.tensor_parallel_size}, PP {engine.pipeline_parallel_size}"
    if engine.decode_context_parallel_size > 1:
        parallel += f", DCP {engine.decode_context_parallel_size}"
    return [
        f"{answer.title} on {account.engine} {account.engine_version}, {parallel}, KV {engine.kv_cache_dtype}",
        "",
        *_columns(list(_sum_rows(account))),
        "",
        *(_columns(list(_memory_rows(answer.gpu.name, answer.budget))) if answer.gpu and answer.budget else ()),
        *([""] if answer.budget else ()),
        *_columns(list(_result_rows(account))),
        *(f"note: {note}" for note in account.notes),
    ]


def kv_json(answer: KvAnswer) -> dict[str, Any]:
    """Fields of the machine contract; bytes are per GPU unless the name says replica."""
    account, budget = answer.account, answer.budget
    document: dict[str, Any] = {
        "title": answer.title,
        "model": answer.model_id,
        "engine": account.engine,
        "engine_version": answer.engine.version or account.engine_version,
        "rule": account.rule,
        "gpus_per_replica": account.gpus,
        "available_kv_bytes": account.available_bytes_per_gpu,
        "bytes_per_token_per_gpu": account.bytes_per_token_per_gpu,
        "bytes_per_token_per_replica": account.bytes_per_token,
        "block_size_tokens": account.block_size_tokens,
        "bytes_per_block_per_gpu": account.bytes_per_block_per_gpu,
        "num_blocks": account.num_blocks,
        "reported_tokens": account.reported_tokens,
        "capacity_tokens": account.capacity_tokens,
        "capacity_bytes_per_replica": account.capacity_bytes,
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
    words = budget.provenance
    yield f"{gpu} reports", _gib(budget.total_bytes), words.get("total_bytes", "")
    yield "the engine may take", _gib(budget.requested_bytes), ""
    for part, name in (
        ("weights", "weights"),
        ("activation", "activations at their peak"),
        ("non_torch", "libraries (non-torch)"),
        ("graph", "CUDA graphs"),
    ):
        size = getattr(budget, f"{part}_bytes")
        yield f"− {name}", _gib(size), words.get(f"{part}_bytes", "")
    yield "= KV on each GPU", _gib(budget.kv_bytes), words.get("kv_bytes", "")


def _result_rows(account: KvAccount) -> Iterator[tuple[str, ...]]:
    block = account.bytes_per_block_per_gpu
    yield "block", f"{account.block_size_tokens:,} tokens, {block:,} bytes on each GPU"
    yield "blocks", f"{_gib(account.available_bytes_per_gpu)} ÷ {_gib(block)} = {account.num_blocks:,}"
    yield "engine prints", f"{account.reported_tokens:,} tokens"
    yield "physically fit", f"{account.capacity_tokens:,} tokens that every attention layer keeps"
    yield "replica", f"{_gib(account.capacity_bytes)} of KV on {account.gpus} GPU(s)"
    for group in account.groups:
        held = f"{_gib(group.fixed_bytes)} a request" if group.fixed_bytes else f"{_gib(group.bytes_per_block)} a block"
        bound = f", at most {group.max_blocks:,} blocks" if group.max_blocks else ""
        yield f"  {group.name}", f"{held}{bound} on the replica"
    if account.max_model_len is not None and account.max_concurrency is not None:
        yield "concurrency", f"{account.max_concurrency:,.2f} requests of {account.max_model_len:,} tokens"
    yield "starts", f"{'yes' if account.starts else 'no'}; the longest request that fits has {_largest(account)} tokens"
    yield "rule", account.rule


def _largest(account: KvAccount) -> str:
    return f"{account.largest_max_model_len:,}"


def _gib(size: int) -> str:
    return f"{size / _GIB_BYTES:,.2f} GiB" if size >= _GIB_BYTES / 10 else f"{size / _MIB_BYTES:,.3f} MiB"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns under each other."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
