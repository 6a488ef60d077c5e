"""Options that describe an engine, spelled once for the commands that take one; vLLM's own names are taken too."""

from __future__ import annotations

from typing import Annotated

import typer

from transforms.setting_values import whole_number


def _tokens(text: str) -> int:
    """Tokens of a limit as vLLM's flags spell them: 16384, 16K (times 1,024) or 16k (times 1,000)."""
    if text.strip().lower() in ("auto", "-1"):  # vLLM's words for the longest context that fits
        raise typer.BadParameter(f"'{text}' is not worked out here; leave it out: kv then says the longest that fits")
    try:
        tokens = whole_number(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is no whole number; 16384, 16K (x 1,024) and 16k (x 1,000) are") from None
    if tokens < 1:
        raise typer.BadParameter(f"{text} must be 1 or more")
    return tokens


EngineOption = Annotated[str, typer.Option("--engine", help="vllm, vllm-ascend, sglang or tensorrt-llm.")]
EngineVersionOption = Annotated[
    str | None, typer.Option("--engine-version", help="Version such as 0.19.1; default: the newest rules known.")
]
TensorOption = Annotated[int, typer.Option("--tp", "--tensor-parallel-size", help="Tensor-parallel size.", min=1)]
PipelineOption = Annotated[int, typer.Option("--pp", "--pipeline-parallel-size", help="Pipeline-parallel size.", min=1)]
DataParallelOption = Annotated[
    int, typer.Option("--dp", "--data-parallel-size", help="Data-parallel size: ranks of a replica.", min=1)
]
DecodeContextOption = Annotated[
    int, typer.Option("--dcp", "--decode-context-parallel-size", help="Decode-context-parallel size.", min=1)
]
KvDtypeOption = Annotated[str, typer.Option("--kv-cache-dtype", help="auto, bf16, fp16, fp8, fp8_ds_mla, int8 …")]
BlockSizeOption = Annotated[
    int | None, typer.Option("--block-size", help="Tokens of a block; a lower bound for models with states.", min=1)
]
MaxModelLenOption = Annotated[
    int | None,
    typer.Option("--max-model-len", help="Longest request in tokens; 16K is 16,384.", parser=_tokens, metavar="TOKENS"),
]
MaxBatchedTokensOption = Annotated[
    int | None,
    typer.Option("--max-num-batched-tokens", help="Tokens of one engine step.", parser=_tokens, metavar="TOKENS"),
]
MaxSeqsOption = Annotated[int | None, typer.Option("--max-num-seqs", help="Requests in one engine step.", min=1)]
SpeculativeTokensOption = Annotated[
    int, typer.Option("--speculative-tokens", help="Tokens drafted ahead at each step.", min=0)
]
DrafterLayersOption = Annotated[
    int, typer.Option("--drafter-layers", help="Layers of the drafter; default: those the config describes.", min=0)
]
PrefixCachingOption = Annotated[
    bool | None,
    typer.Option(
        "--prefix-caching/--no-prefix-caching",
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Default: as the engine version does.",
    ),
]
HybridManagerOption = Annotated[
    bool | None,
    typer.Option(
        "--hybrid-kv-manager/--no-hybrid-kv-manager",
        "--no-disable-hybrid-kv-cache-manager/--disable-hybrid-kv-cache-manager",
        help="Default: as the engine version does.",
    ),
]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="GPU of the catalog; its memory gives the room for KV.")]
UtilizationOption = Annotated[
    float | None,
    typer.Option("--gpu-memory-utilization", help="Share of the GPU's memory the engine takes.", min=0.01, max=1.0),
]
