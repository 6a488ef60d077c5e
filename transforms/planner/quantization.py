"""What a checkpoint's quantisation makes of its matrices: bytes per parameter, and which matrices it leaves alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import CatalogError, nearest

PLAIN_BYTES = 2.0
"""Engines load bf16, fp16 and fp32 checkpoints alike into 16 bits (vLLM dtype "auto")."""

_FP8_BLOCK_SCALE_BYTES = 4.0  # one float32 scale a block
_GROUP_SCALE_BYTES = 2.0  # one 16-bit scale a group
_COMMON_GROUP = 128
# 4 bits with a 16-bit scale per 64: between plain and doubly quantised scales; phi-4's start-up log fits it (8.63 GiB).
_BITSANDBYTES_4BIT_BYTES = 0.5 + 2.0 / 64
_MXFP4_BYTES = 0.5 + 1.0 / 32  # OCP Microscaling v1.0: 4 bits and an 8-bit scale per 32
_NVFP4_BYTES = 0.5 + 1.0 / 16  # NVFP4: 4 bits and an fp8 scale per 16


@dataclass(frozen=True)
class Quantization:
    """`name` of the scheme, bytes per parameter of the matrices it covers, and the modules it leaves at 16 bits."""

    name: str
    bytes_per_parameter: float = PLAIN_BYTES
    ignored: tuple[str, ...] = ()
    only_experts: bool = False
    is_padded: bool = False
    """Whether the engine lays the quantised experts out padded (see Part.padded)."""

    def covers(self, name: str, modules: tuple[str, ...]) -> bool:
        """Whether the part `name`, whose matrices the checkpoint calls `modules`, is stored quantised."""
        if self.bytes_per_parameter == PLAIN_BYTES or (self.only_experts and name != "routed_experts"):
            return False
        names = [f"model.layers.0.{module}" for module in modules]
        return not (names and all(any(_matches(pattern, n) for pattern in self.ignored) for n in names))


def quantization(declared: Mapping[str, Any], where: str) -> Quantization:
    """Scheme that a config's `quantization_config` declares; CatalogError on one whose bytes we do not know."""
    if not declared:
        return Quantization("none")
    method = str(declared.get("quant_method") or ("modelopt" if "quant_algo" in declared else ""))
    reader = _READERS.get(method)
    if reader is None:
        known = ", ".join(_READERS)
        raise CatalogError(
            f"{where}: unknown quantisation '{method}'{nearest(method, _READERS)}; known are {known}; "
            "or give weights_bytes in the fleet file"
        )
    return reader(declared, where)


def _fp8(declared: Mapping[str, Any], _where: str) -> Quantization:
    return Quantization("fp8", _fp8_bytes(declared.get("weight_block_size")), _ignored(declared))


def _fp8_bytes(block: Any) -> float:
    if isinstance(block, list) and len(block) == 2:  # noqa: PLR2004 - rows × columns
        return 1.0 + _FP8_BLOCK_SCALE_BYTES / (int(block[0]) * int(block[1]))
    return 1.0


def _grouped(declared: Mapping[str, Any], _where: str) -> Quantization:
    method, bits = str(declared["quant_method"]), int(declared.get("bits") or 4)
    group = int(declared.get("group_size") or _COMMON_GROUP)
    return Quantization(f"{method}-int{bits}", _grouped_bytes(bits, group, zeros=method == "awq"), _ignored(declared))


def _bitsandbytes(declared: Mapping[str, Any], _where: str) -> Quantization:
    return Quantization(
        "bitsandbytes", _BITSANDBYTES_4BIT_BYTES if declared.get("load_in_4bit") else 1.0, _ignored(declared)
    )


def _mxfp4(_declared: Mapping[str, Any], _where: str) -> Quantization:
    return Quantization("mxfp4", _MXFP4_BYTES, only_experts=True, is_padded=True)


def _grouped_bytes(bits: int, group: int, *, zeros: bool) -> float:
    scale = _GROUP_SCALE_BYTES + (bits / 8 if zeros else 0.0)
    return bits / 8 + (scale / group if group > 0 else 0.0)


def _compressed_tensors(declared: Mapping[str, Any], where: str) -> Quantization:
    ignored = _ignored(declared)
    groups = declared.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") or {}
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if bits not in (4, 8):
        raise CatalogError(
            f"{where}: compressed-tensors with {bits!r} bits a weight is unknown; known are 4 and 8 bits"
        )
    if bits == 4 and kind == "float":  # noqa: PLR2004 - NVFP4 (nvfp4-pack-quantized)
        return Quantization("nvfp4", _NVFP4_BYTES, ignored)
    group = weights.get("group_size") or 0
    return Quantization(f"compressed-tensors-{kind}{bits}", _grouped_bytes(bits, int(group), zeros=False), ignored)


def _modelopt(declared: Mapping[str, Any], where: str) -> Quantization:
    ignored = _ignored(declared)
    inner = declared.get("quantization")
    algo = str(declared.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, Mapping) else "") or "")
    if algo.startswith("FP8"):
        return Quantization("fp8", 1.0, ignored)
    if algo in ("NVFP4", "NVFP4_AWQ", "W4A16_NVFP4") or (declared.get("quant_method") == "modelopt_fp4" and not algo):
        return Quantization("nvfp4", _NVFP4_BYTES, ignored)
    raise CatalogError(
        f"{where}: modelopt algorithm '{algo}' is unknown; known are FP8, NVFP4; or give weights_bytes in the fleet"
    )


def _ignored(declared: Mapping[str, Any]) -> tuple[str, ...]:
    """Patterns of modules left alone, under any of the names that quantisers give the list."""
    keys = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules")
    lists = (declared.get(key) for key in keys)
    return tuple(str(pattern) for found in lists if isinstance(found, list) for pattern in found)


def _matches(pattern: str, name: str) -> bool:
    """Whether `pattern` (re:…, a wildcard, a part of a name) means the module `name` of any layer."""
    if pattern.startswith("re:"):
        return re.search(pattern.removeprefix("re:"), name) is not None
    plain = re.sub(r"layers\.\d+", "layers.0", pattern)
    if "*" in plain:
        return fnmatch.fnmatchcase(name, plain) or fnmatch.fnmatchcase(name, f"*{plain}")
    return name == plain or name.endswith(f".{plain}") or f".{plain}." in f".{name}."


_READERS: dict[str, Callable[[Mapping[str, Any], str], Quantization]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "awq": _grouped,
    "gptq": _grouped,
    "auto-round": _grouped,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}
