"""How engines lay routed experts out on a GPU: matrices padded to steps of their kernels, indices kept beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.planner.model.quantization import MXFP4

if TYPE_CHECKING:
    from transforms.catalog import Gpu
    from transforms.planner.model.parts import ExpertMatrices
    from transforms.planner.model.quantization import Quantization

_INDEX_BYTES = 4  # 32-bit


@dataclass(frozen=True)
class ExpertLayout:
    """Values that the sizes of MXFP4 experts are padded to, and whether int4 experts keep their activation order."""

    hidden_step: int
    inner_step: int
    keeps_order: bool = False

    def rank_bytes(self, experts: ExpertMatrices, scheme: Quantization, ranks: int) -> float:
        """Bytes of quantised `experts` on one of `ranks` ranks that share every expert."""
        hidden, inner = experts.hidden, experts.inner / ranks
        if scheme.name == MXFP4:
            hidden, inner = _up(hidden, self.hidden_step), _up(inner, self.inner_step)
        size = experts.count * experts.matrices * hidden * inner * scheme.bytes_per_parameter
        if self.keeps_order and scheme.is_grouped_int:
            size += experts.count * 2 * (experts.hidden + inner) * _INDEX_BYTES
        return size


# The kernels vLLM has for MXFP4 experts (mxfp4.py, create_weights): Marlin where no other is built in,
# TensorRT-LLM's on data-centre Blackwell.
MARLIN = ExpertLayout(256, 128)
TENSORRT_LLM = ExpertLayout(256, 256)
# SGLang on AMD keeps the order of int4 experts, one index a row and one sorted, although none is used
# (compressed_tensors_wNa16_moe.py: CompressedTensorsWNA16TritonMoE never drops w13_weight_g_idx and its like).
SGLANG_ON_AMD = ExpertLayout(256, 128, keeps_order=True)


def expert_layout(engine_name: str, gpu: Gpu) -> ExpertLayout:
    """Layout that the engine `engine_name` takes for routed experts on `gpu`."""
    if engine_name == "sglang" and gpu.vendor == "AMD":
        return SGLANG_ON_AMD
    return TENSORRT_LLM if gpu.is_data_centre_blackwell else MARLIN


def _up(size: float, step: int) -> int:
    return -(-round(size) // step) * step
