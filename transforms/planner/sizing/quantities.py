"""Quantities with their units, as a person writes them: `2s`, `990TFLOP/s`, `4x32K+8x8K`; other units are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from transforms.errors import ConfigError, nearest_few

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}

UNITS: dict[str, dict[str, float]] = {
    "rate": {"/s": 1.0, "requests/s": 1.0, "/min": 1 / 60, "requests/min": 1 / 60, "/h": 1 / 3600},
    "time": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0},
    "tokens": {"tokens": 1.0, "K": 1024.0, "Ktokens": 1024.0},
    "token rate": {"tokens/s": 1.0},
    "memory": _BYTES,
    "memory per token": {f"{unit}/token": size for unit, size in _BYTES.items()},
    "compute": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "ratio": {"": 1.0, "%": 0.01},
    "count": {"": 1.0, "requests": 1.0},
    "parameters": {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12},
}
"""Kind → unit → how many of the base unit it is. In prose and settings 32K = 32,768."""

KINDS = {
    "rate": "rate",
    "response": "time",
    "safety": "count",
    "per_gpu": "count",
    "parameters": "parameters",
    "peak": "compute",
    "mfu": "ratio",
    "measured": "token rate",
    "prompt": "tokens",
    "output": "tokens",
    "tokens_per_gpu": "token rate",
    "budget": "tokens",
    "decoding": "count",
    "batch": "count",
    "decode": "token rate",
    "kv": "memory per token",
    "memory": "memory",
    "held": "tokens",
    "block": "tokens",
    "requests": "count",
    "layers": "count",
    "kv_heads": "count",
    "head_dim": "count",
    "dtype": "memory",
    "e2e": "time",
    "ttft": "time",
}
"""What kind each quantity is of."""

ABOUT = {
    "rate": "requests that arrive",
    "response": "time a request is in the system",
    "safety": "factor on the concurrency, 1 where left out",
    "per_gpu": "requests at once on a GPU",
    "parameters": "active parameters of the model",
    "peak": "peak of a GPU by its data sheet",
    "mfu": "share of the peak that is reached",
    "measured": "tokens a second that were measured on a GPU",
    "prompt": "tokens of a request's prompt",
    "output": "tokens of a request's answer",
    "tokens_per_gpu": "tokens a second that a GPU computes",
    "budget": "max_num_batched_tokens of a step",
    "decoding": "requests that decode in that step",
    "batch": "requests of a decode step",
    "decode": "tokens a second of one request's answer",
    "kv": "KV cache of a token",
    "memory": "memory for the KV cache",
    "held": "tokens that a request holds (sums too: 4x32K+8x8K)",
    "block": "tokens of a KV block",
    "requests": "requests that each hold so much, 1 where left out",
    "layers": "layers of the model",
    "kv_heads": "its KV heads",
    "head_dim": "dimension of a head",
    "dtype": "bytes of one value",
    "e2e": "time to the end of the answer",
    "ttft": "time to the first token",
}
"""What each quantity says, for who does not know their names."""

LISTED = f"(kvledger envelope alone lists all {len(KINDS)})"

_TIMES = re.compile(r"\s*([0-9]+)\s*[x×]\s*(.*)$")
_VALUE = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*$")


def quantity_lines() -> list[str]:
    """A line for each quantity: its name, what it says, its units."""
    name_wide, about_wide = (max(map(len, words)) for words in (ABOUT, ABOUT.values()))
    return [f"{name:{name_wide}}  {ABOUT[name]:{about_wide}}  {_listed(UNITS[kind])}" for name, kind in KINDS.items()]


def quantities(texts: Iterable[str]) -> dict[str, float]:
    """Values in base units of `name=value[unit]`, sums and multiples too; ConfigError names a wrong unit or name."""
    found: dict[str, float] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not separator or name not in KINDS:
            what = f"unknown quantity '{name}'" if separator else "must be name=value with its unit"
            raise ConfigError(f"{text}: {what}{nearest_few(name, KINDS)} {LISTED}")
        found[name] = sum(_product(text, KINDS[name], part) for part in value.split("+"))
    return found


def _product(text: str, kind: str, value: str) -> float:
    times = _TIMES.match(value)
    return int(times[1]) * _in_base_unit(text, kind, times[2]) if times else _in_base_unit(text, kind, value)


def _in_base_unit(text: str, kind: str, value: str) -> float:
    parts, units = _VALUE.match(value), UNITS[kind]
    if parts is None:
        raise ConfigError(f"{text}: must be a number of zero or more with its unit ({_listed(units)})")
    unit = parts[2]
    if unit not in units:
        other = next((known for known, table in UNITS.items() if unit and unit in table), None)
        told = f"'{unit}' is a unit of {other}, not of {kind}" if other else f"a {kind} has a unit of its own"
        raise ConfigError(f"{text}: {told}; write one of {_listed(units)}")
    return float(parts[1].replace("_", "")) * units[unit]


def _listed(units: Iterable[str]) -> str:
    return ", ".join(unit or "none" for unit in units)
