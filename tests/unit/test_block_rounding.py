"""Whole blocks: closed forms of their means against counting them token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.planner.memory.kv_result import KvGroup
from transforms.planner.residency.block_rounding import (
    block_bytes,
    decode_end_bytes,
    decode_mean_bytes,
    ramp_mean_bytes,
)

groups = st.lists(
    st.builds(
        KvGroup,
        st.just("g"),
        st.sampled_from([1, 16, 64, 128, 784]),
        st.one_of(st.none(), st.integers(1, 40)),
        st.integers(1, 4096),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=3,
)


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


def held(account: list[KvGroup], tokens: int) -> int:
    return sum(group.held_bytes(tokens) for group in account)


@given(account=groups, tokens=st.integers(0, 50_000))
def test_block_bytes_are_those_of_the_account(account: list[KvGroup], tokens: int) -> None:
    assert block_bytes(account, one(tokens))[0] == held(account, tokens)


@given(account=groups, prompt=st.integers(1, 3000), output=st.integers(0, 600))
def test_decode_mean_is_the_mean_over_tokens(account: list[KvGroup], prompt: int, output: int) -> None:
    counted = [held(account, prompt + out - 1) for out in range(1, output)] or [held(account, prompt)]
    assert decode_mean_bytes(account, one(prompt), one(output))[0] == pytest.approx(np.mean(counted), rel=1e-12)
    assert decode_end_bytes(account, one(prompt), one(output))[0] == held(account, prompt + max(output - 1, 0))


@given(account=groups, cached=st.integers(0, 2000), new=st.integers(0, 2000))
def test_prefill_mean_is_the_mean_over_tokens(account: list[KvGroup], cached: int, new: int) -> None:
    counted = [held(account, tokens) for tokens in range(cached + 1, cached + new + 1)] or [held(account, cached)]
    assert ramp_mean_bytes(account, one(cached), one(cached + new))[0] == pytest.approx(np.mean(counted), rel=1e-12)


@given(tokens=st.integers(0, 100_000), block=st.sampled_from([1, 16, 64, 784]))
def test_waste_is_less_than_one_block(tokens: int, block: int) -> None:
    waste = block_bytes([KvGroup("g", block, None, block)], one(tokens))[0] - tokens
    assert 0 <= waste < block
