"""Numbers of one field as logs write them: integers, floats, texts with separators, booleans that are none."""

from __future__ import annotations

import math
import re
from typing import Any

NEGATIVE = "negative_value"
CLOCK_SKEW = "clock_skew"
"""A duration below zero, or durations that contradict each other."""
NOT_A_NUMBER = "not a number"
NOT_INTEGRAL = "not a whole number"

_DIGITS = re.compile(r"\d{1,20}", re.ASCII)
UNKNOWN = frozenset(("", "-", "null", "none", "n/a"))
"""What loggers write for no number, lower case."""
_SEPARATED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
TOO_LARGE = "number too large"
_INT32 = 2**31
_INT64 = 2**63
_UINT64 = 2**64


def count(value: Any, flags: list[str]) -> int | None:
    """A whole number ≥ 0 (tokens, requests), or None for unknown: null, "" and negative (which adds a flag).

    ValueError with a fixed reason for a boolean, a word or a fraction: such a record is rejected, never rounded.
    """
    number = amount(value, flags)
    if number is None:
        return None
    if isinstance(number, float):
        if not number.is_integer():
            raise ValueError(NOT_INTEGRAL)
        number = int(number)
    if number >= _INT64:
        raise ValueError(TOO_LARGE)
    return number


def small_count(value: Any, flags: list[str]) -> int | None:
    """A whole number ≥ 0 of a column of 32 bits (turns, choices, tokens of a block), with the rules of `count`."""
    number = count(value, flags)
    if number is not None and number >= _INT32:
        raise ValueError(TOO_LARGE)
    return number


def amount(value: Any, flags: list[str]) -> int | float | None:
    """A number ≥ 0 in the field's own unit, or None for unknown: null, "", NaN, infinite, and negative (flagged).

    ValueError with a fixed reason for a boolean or a word.
    """
    number = _number(value)
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        return None
    if number < 0:
        flags.append(NEGATIVE)
        return None
    return number


def seconds(value: Any, unit: str, flags: list[str]) -> float | None:
    """A duration in seconds from one in `unit` ("s", "ms", "us", "ns"), as `amount` has it; below 0: `clock_skew`."""
    odd: list[str] = []
    number = amount(value, odd)
    flags += [CLOCK_SKEW] * bool(odd)
    return None if number is None else number / PER_SECOND[unit]


def block_ids(value: Any) -> list[int] | None:
    """Prefix-block ids as unsigned 64-bit integers; None for null. ValueError where it is no list of such integers.

    Ids as texts of digits are taken too: JavaScript has no integers beyond 2**53.
    """
    if value is None:
        return None
    if isinstance(value, list) and value and all(isinstance(item, str) and _DIGITS.fullmatch(item) for item in value):
        value = [int(item) for item in value]
    is_whole = isinstance(value, list) and set(map(type, value)) <= {int}
    if is_whole and (not value or (min(value) >= 0 and max(value) < _UINT64)):
        return value  # type: ignore[no-any-return]
    raise ValueError("block ids are no list of whole numbers")


PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _number(value: Any) -> int | float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(NOT_A_NUMBER)  # noqa: TRY004 - one class for every unusable field
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in UNKNOWN:
        return None
    if "_" in text:  # Python alone reads 1_000
        raise ValueError(NOT_A_NUMBER)
    if _SEPARATED.fullmatch(text):
        text = text.replace(",", "")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(NOT_A_NUMBER) from None
