"""Settings as people write them: suffixes of vLLM's flags, quotes, and what is no value of its kind."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.errors import ConfigError
from transforms.setting_values import as_kind, read_setting, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16384", 16384), ("16_384", 16384), ("16K", 16384), ("16k", 16000), ("25.6k", 25600), ("1.5m", 1_500_000),
        ("1M", 1 << 20), ("2G", 2 << 30), ("1t", 10**12), ("-3", -3),
    ],
)  # fmt: skip
def test_whole_numbers_may_carry_the_suffixes_of_vllms_flags(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["1.5K", "1.2345k", "K", "16KB", "1 K", "1.5", "many", ""])
def test_what_spells_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        whole_number(text)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("0.20", str, "0.20"), ("'lru'", str, "lru"), ("1e3", float, 1000.0), ("2", float, 2.0), ("false", bool, False)],
)
def test_a_setting_is_read_as_the_kind_it_is(text: str, kind: type, value: Any) -> None:
    read = read_setting(text, kind, "x")
    assert (read, type(read)) == (value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [("yes", bool, "true or false, not 'yes'"), (1, bool, "true or false"), (True, int, "a whole number"),
     (1.5, int, "a whole number, not 1.5"), ("1.5K", int, "not '1.5K'"), (["a"], str, "text")],
)  # fmt: skip
def test_another_kind_is_refused(value: Any, kind: type, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^here must be .*{said}"):
        as_kind(value, kind, "here")
