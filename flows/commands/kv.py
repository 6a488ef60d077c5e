"""`kvledger kv`: the KV memory of a model under an engine, or of every deployment of a fleet file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.engine_options import (
    BlockSizeOption,
    DataParallelOption,
    DecodeContextOption,
    DrafterLayersOption,
    EngineOption,
    EngineVersionOption,
    GpuOption,
    HybridManagerOption,
    KvDtypeOption,
    MaxBatchedTokensOption,
    MaxModelLenOption,
    MaxSeqsOption,
    PipelineOption,
    PrefixCachingOption,
    SpeculativeTokensOption,
    TensorOption,
    UtilizationOption,
)
from flows.commands.options import DEFAULT_HOME, FleetOption, HomeOption, JsonOption
from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from pathlib import Path

    from flows.kv import KvQuestion

ModelOption = Annotated[str | None, typer.Option("--model", help="Path of a config.json, or a catalog id.")]
KvBytesOption = Annotated[
    int | None, typer.Option("--available-kv-bytes", help="Bytes for KV on each GPU, as the engine says.", min=1)
]
KvGibOption = Annotated[
    float | None, typer.Option("--available-kv-gib", help="The same in GiB (2^30 bytes).", min=0.001)
]


def kv(
    *,
    model: ModelOption = None,
    fleet: FleetOption = None,
    engine: EngineOption = "vllm",
    engine_version: EngineVersionOption = None,
    tp: TensorOption = 1,
    pp: PipelineOption = 1,
    dp: DataParallelOption = 1,
    dcp: DecodeContextOption = 1,
    kv_cache_dtype: KvDtypeOption = "auto",
    block_size: BlockSizeOption = None,
    max_model_len: MaxModelLenOption = None,
    max_num_batched_tokens: MaxBatchedTokensOption = None,
    max_num_seqs: MaxSeqsOption = None,
    speculative_tokens: SpeculativeTokensOption = 0,
    drafter_layers: DrafterLayersOption = 0,
    prefix_caching: PrefixCachingOption = None,
    hybrid_kv_manager: HybridManagerOption = None,
    available_kv_bytes: KvBytesOption = None,
    available_kv_gib: KvGibOption = None,
    gpu: GpuOption = None,
    gpu_memory_utilization: UtilizationOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Say how many tokens of KV fit, and how the number comes about."""
    from flows.kv import KvQuestion

    question = KvQuestion(
        model=model,
        engine=engine,
        engine_version=engine_version,
        tp=tp,
        pp=pp,
        dp=dp,
        dcp=dcp,
        kv_cache_dtype=kv_cache_dtype,
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        speculative_tokens=speculative_tokens,
        drafter_layers=drafter_layers,
        prefix_caching=prefix_caching,
        hybrid_kv_manager=hybrid_kv_manager,
        available_kv_bytes=available_kv_bytes,
        available_kv_gib=available_kv_gib,
        gpu=gpu,
        gpu_memory_utilization=gpu_memory_utilization,
    )
    _print_answers(question, fleet, home, json=json)


def _print_answers(question: KvQuestion, fleet: Path | None, home: Path, *, json: bool) -> None:
    from flows.kv import answer_fleet, answer_model
    from flows.kv_table import kv_json, kv_lines

    answers = [answer_model(question, home)] if fleet is None else answer_fleet(question, fleet, home)
    if not json:
        print_line("\n\n".join("\n".join(kv_lines(answer)) for answer in answers))
    elif fleet is None:
        print_json(kv_json(answers[0]))
    else:
        print_json({"deployments": [kv_json(answer) for answer in answers]})
