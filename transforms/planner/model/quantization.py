"""What a checkpoint's quantisation makes of its matrices: bytes per parameter, and which matrices it leaves alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import CatalogError, ConfigError, nearest
from transforms.planner.model.config_reading import shown

PLAIN_BYTES = 2.0
"""Engines load bf16, fp16 and fp32 checkpoints alike into 16 bits (vLLM dtype "auto")."""

_FP8_BLOCK_SCALE_BYTES = 4.0  # one float32 scale a block
_GROUP_SCALE_BYTES = 2.0  # one 16-bit scale a group
_COMMON_GROUP = 128
_PACKED_BITS = (2, 3, 4, 8)  # AWQ, GPTQ and auto-round checkpoints
# 4 bits with a 16-bit scale per 64: between plain and doubly quantised scales; phi-4's start-up log fits it (8.63 GiB).
_BITSANDBYTES_4BIT_BYTES = 0.5 + 2.0 / 64
_MXFP4_BYTES = 0.5 + 1.0 / 32  # OCP Microscaling v1.0: 4 bits and an 8-bit scale per 32
_NVFP4_BYTES = 0.5 + 1.0 / 16  # NVFP4: 4 bits and an fp8 scale per 16
MXFP4 = "mxfp4"


@dataclass(frozen=True)
class Quantization:
    """`name` of the scheme, bytes per parameter of the matrices it covers, and the modules it leaves at 16 bits."""

    name: str
    bytes_per_parameter: float = PLAIN_BYTES
    ignored: tuple[str, ...] = ()
    only_experts: bool = False
    is_grouped_int: bool = False
    """Whether it packs whole numbers with a scale a group, as compressed-tensors does for experts."""

    def covers(self, name: str, modules: tuple[str, ...], layers: tuple[str, ...]) -> bool:
        """Whether the part `name`, whose matrices are `modules` of a layer with these `layers` names, is quantised."""
        if self.bytes_per_parameter == PLAIN_BYTES or (self.only_experts and name != "routed_experts"):
            return False
        return not modules or not all(self._is_ignored(module, layers) for module in modules)

    def _is_ignored(self, module: str, layers: tuple[str, ...]) -> bool:
        return any(_matches(pattern, f"{layer}.{module}") for layer in layers for pattern in self.ignored)


def quantization(declared: Mapping[str, Any], where: str) -> Quantization:
    """Scheme that a config's `quantization_config` declares; CatalogError on one whose bytes we do not know."""
    if not declared:
        return Quantization("none")
    method = str(declared.get("quant_method") or ("modelopt" if "quant_algo" in declared else ""))
    reader = _READERS.get(method)
    if reader is None:
        known = ", ".join(_READERS)
        raise CatalogError(
            f"{where}: unknown quantisation {shown(method)}{nearest(method, _READERS)}; known are {known}; "
            "or give weights_bytes in the fleet file"
        )
    return reader(declared, where)


def _fp8(declared: Mapping[str, Any], where: str) -> Quantization:
    block = declared.get("weight_block_size")
    if block is None:
        return Quantization("fp8", 1.0, _ignored(declared, where))
    if not (isinstance(block, list) and len(block) == 2 and all(_is_whole(size) and size > 0 for size in block)):  # noqa: PLR2004 - rows × columns
        raise ConfigError(f"{where}: 'weight_block_size' must be two whole numbers above zero, not {shown(block)}")
    return Quantization("fp8", 1.0 + _FP8_BLOCK_SCALE_BYTES / (block[0] * block[1]), _ignored(declared, where))


def _grouped(declared: Mapping[str, Any], where: str) -> Quantization:
    method, bits = str(declared["quant_method"]), _whole(declared, "bits", where) or 4
    if bits not in _PACKED_BITS:
        known = ", ".join(map(str, _PACKED_BITS))
        raise CatalogError(f"{where}: {method} with {bits} bits a weight is unknown; known are {known} bits")
    group = _whole(declared, "group_size", where) or _COMMON_GROUP
    size = _grouped_bytes(bits, group, zeros=method == "awq")
    return Quantization(f"{method}-int{bits}", size, _ignored(declared, where))


def _bitsandbytes(declared: Mapping[str, Any], where: str) -> Quantization:
    size = _BITSANDBYTES_4BIT_BYTES if declared.get("load_in_4bit") else 1.0
    return Quantization("bitsandbytes", size, _ignored(declared, where))


def _mxfp4(_declared: Mapping[str, Any], _where: str) -> Quantization:
    return Quantization(MXFP4, _MXFP4_BYTES, only_experts=True)


def _grouped_bytes(bits: int, group: int, *, zeros: bool) -> float:
    scale = _GROUP_SCALE_BYTES + (bits / 8 if zeros else 0.0)
    return bits / 8 + (scale / group if group > 0 else 0.0)


def _compressed_tensors(declared: Mapping[str, Any], where: str) -> Quantization:
    ignored, weights = _ignored(declared, where), _packed_weights(declared, where)
    bits, kind = _whole(weights, "num_bits", where), str(weights.get("type", "int"))
    if bits not in (4, 8) or kind not in ("int", "float"):
        raise CatalogError(
            f"{where}: compressed-tensors with {bits} bits a weight of type '{kind}' is unknown; "
            "known are 4 and 8 bits, int and float"
        )
    if bits == 4 and kind == "float":  # noqa: PLR2004 - NVFP4 (nvfp4-pack-quantized)
        return Quantization("nvfp4", _NVFP4_BYTES, ignored)
    size = _grouped_bytes(bits, _whole(weights, "group_size", where) or 0, zeros=False)
    return Quantization(f"compressed-tensors-{kind}{bits}", size, ignored, is_grouped_int=kind == "int")


def _packed_weights(declared: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The one description of weights in all `config_groups`; CatalogError where groups differ."""
    groups = declared.get("config_groups")
    entries = list(groups.values()) if isinstance(groups, Mapping) else []
    found = [entry.get("weights") for entry in entries if isinstance(entry, Mapping)]
    described = [weights for weights in found if isinstance(weights, Mapping)]
    if len({(str(w.get("num_bits")), str(w.get("type")), str(w.get("group_size"))) for w in described}) > 1:
        raise CatalogError(
            f"{where}: compressed-tensors whose groups differ in bits, type or group size is unknown; "
            "give weights_bytes in the fleet file"
        )
    return described[0] if described else {}


def _modelopt(declared: Mapping[str, Any], where: str) -> Quantization:
    ignored = _ignored(declared, where)
    algo = str(declared.get("quant_algo") or "")
    if algo.startswith("FP8"):
        return Quantization("fp8", 1.0, ignored)
    if algo in ("NVFP4", "NVFP4_AWQ", "W4A16_NVFP4") or (declared.get("quant_method") == "modelopt_fp4" and not algo):
        return Quantization("nvfp4", _NVFP4_BYTES, ignored)
    raise CatalogError(
        f"{where}: modelopt algorithm {shown(algo)} is unknown; known are FP8, NVFP4; "
        "or give weights_bytes in the fleet file"
    )


def _ignored(declared: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Patterns of modules left alone, under any of the names that quantisers give the list."""
    patterns: list[str] = []
    for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules"):
        found = declared.get(key)
        if not isinstance(found, list | None):
            raise ConfigError(f"{where}: quantization_config.{key} must be a list, not {shown(found)}")
        patterns += [str(pattern) for pattern in found or ()]
    for pattern in patterns:
        _check_pattern(pattern, where)
    return tuple(patterns)


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern.removeprefix("re:") if pattern.startswith("re:") else "")
    except re.error as error:
        raise ConfigError(f"{where}: {shown(pattern)} in quantization_config is no pattern: {error}") from error


def _whole(declared: Mapping[str, Any], key: str, where: str) -> int | None:
    value = declared.get(key)
    if value is not None and not _is_whole(value):
        raise ConfigError(f"{where}: quantization_config.{key} must be a whole number, not {shown(value)}")
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _matches(pattern: str, name: str) -> bool:
    """Whether `pattern` (re:…, a wildcard, a part of a name) means the module `name`."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), name) is not None
    plain = pattern.replace("language_model.", "")
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
