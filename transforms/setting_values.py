"""Values of settings as people write them on a command line or in TOML.

Whole numbers may carry a suffix, as the integers of vLLM's flags do (its CLI guide): `k m g t` are powers of 1,000 and
take a fraction (25.6k is 25,600), `K M G T` powers of 1,024 and take none (16K is 16,384).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
"""How a kind of value is called in a message."""
_SUFFIXED = re.compile(r"(\d+)(\.\d+)?([kmgtKMGT])")


def hinted_kind(hint: Any) -> Any:
    """The kind of value that a field's type `hint` asks for, None left out of it."""
    return next(kind for kind in (get_args(hint) or (hint,)) if kind is not type(None))


def value_words(hint: Any, choices: Iterable[str] = ()) -> str:
    """What a value of type `hint` is, in words: one of `choices` where there are any, else its kind."""
    return " | ".join(choices) or KINDS[hinted_kind(hint)]


def whole_number(text: str) -> int:
    """The whole number that `text` spells; ValueError where it spells none."""
    found = _SUFFIXED.fullmatch(text.strip())
    if found is None:
        return int(text)
    digits, fraction, suffix = found.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.isupper():
        if fraction:
            raise ValueError(text)
        return int(digits) << 10 * power
    exact = Decimal(digits + (fraction or "")).scaleb(3 * power)
    if exact % 1:
        raise ValueError(text)
    return int(exact)


def read_setting(text: str, kind: type, where: str) -> Any:
    """Value of `kind` that `text` spells, quoted or not; ConfigError begins with `where`."""
    plain = text.strip().strip("\"'")
    if kind is str:
        return plain
    if kind is bool:
        return as_kind({"true": True, "false": False}.get(plain, plain), bool, where)
    try:
        return whole_number(plain) if kind is int else float(plain)
    except (ValueError, OverflowError):
        raise ConfigError(f"{where} must be {KINDS[kind]}, not {plain!r}") from None


def as_kind(value: Any, kind: type, where: str) -> Any:
    """`value` from a TOML file as `kind`: integers are floats where one is asked; ConfigError begins with `where`."""
    if kind is int and isinstance(value, str):
        return read_setting(value, int, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where} must be {KINDS.get(kind, kind)}, not {value!r}")
    return value
