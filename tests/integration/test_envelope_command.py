"""`kvledger envelope`: the numbers that must come out of a planner, through the command line; wrong units refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import app
from transforms.errors import ConfigError
from transforms.planner.sizing.envelope_answers import envelope_answers, refuse_minimum
from transforms.planner.sizing.quantities import ABOUT, KINDS, quantities

KVLEDGER = Path(sys.executable).parent / "kvledger"


def asked(*words: str) -> dict[str, Any]:
    ran = CliRunner().invoke(app, ["envelope", *words, "--json"])
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def figures(*words: str) -> dict[str, float]:
    return {name: one["value"] for name, one in asked(*words)["answers"].items()}


KV = "kv=131072B/token"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("layers=32 kv_heads=8 head_dim=128 dtype=2B", "kv", 131_072),
        (f"held=4K {KV}", "held_bytes", 512 * 2**20),
        (f"held=8K {KV}", "held_bytes", 2**30),
        (f"held=32K {KV}", "held_bytes", 4 * 2**30),
        (f"held=8K+2K {KV}", "held_bytes", 1.25 * 2**30),
        (f"memory=24GiB {KV}", "kv_tokens", 196_608),
        (f"memory=24GiB {KV} held=4x32K+8x8K", "free_tokens", 0),
        ("held=8193tokens block=16tokens", "blocks", 513),
        ("held=8193tokens block=16tokens", "empty_slots", 15),
        (f"held=8193tokens block=16tokens {KV}", "empty_bytes", 1.875 * 2**20),
        (f"prompt=8192tokens output=2048tokens decode=50tokens/s {KV}", "decode_s", 40.96),
        (f"prompt=8192tokens output=2048tokens decode=50tokens/s {KV}", "residency_mean_bytes", 1.125 * 2**30),
        (f"prompt=8192tokens output=2048tokens decode=50tokens/s {KV}", "kv_time_byte_s", 46.08 * 2**30),
        ("budget=2048tokens decoding=64", "prefill_budget_tokens", 1_984),
        ("budget=2048tokens decoding=64 prompt=8192tokens", "prefill_steps", 5),
        ("parameters=70B peak=990TFLOP/s mfu=40%", "tokens_per_gpu", 2_828.5714),
        ("parameters=70B peak=990TFLOP/s measured=1800tokens/s", "mfu", 0.2545454545),
        ("rate=50/s response=2s safety=1.5 per_gpu=25", "gpus", 6),
        ("rate=200/s response=2000ms", "concurrency", 400),
        ("rate=200/s prompt=1500tokens output=800tokens tokens_per_gpu=2828tokens/s", "gpus_by_compute", 163),
        ("batch=16", "batch_gain_factor", 32 / 17),
        ("e2e=10s ttft=1s output=10tokens", "tpot_s", 1.0),
    ],
)
def test_numbers_that_must_come_out(words: str, name: str, value: float) -> None:
    assert figures(*words.split())[name] == pytest.approx(value, rel=1e-6)


def test_query_heads_are_eight_times_too_many_and_a_catalog_model_says_so() -> None:
    words = ["layers=80", "kv_heads=64", "head_dim=128", "dtype=2B", "held=2048tokens", "requests=32"]
    found = asked(*words, "--model", "meta-llama/Llama-3.1-70B-Instruct")
    assert found["answers"]["held_bytes"]["value"] / 1e9 == pytest.approx(171.8, abs=0.05)
    assert found["note"].endswith("has 8 KV heads, not 64: 21.5 GB instead of 171.8 GB")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["response=2tokens"], "'tokens' is a unit of tokens, not of time; write one of s, ms, min, h"),
        (["response=2"], "a time has a unit of its own"),
        (["rate=50"], "a rate has a unit of its own"),
        (["respnse=2s"], r"unknown quantity 'respnse'; did you mean 'response'\?"),
        (["rate=many/s"], "must be a number of zero or more with its unit"),
        (["rate"], "must be name=value with its unit"),
        (["rate=50/s"], "lead to no figure; concurrency also needs response"),
        (["memory=1GiB", KV, "held=32K"], "do not fit"),
    ],
)
def test_what_does_not_match_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        envelope_answers(quantities(words))


def test_without_quantities_all_are_listed_with_their_units() -> None:
    known = asked()["quantities"]
    assert set(known) == set(KINDS) == set(ABOUT)
    assert known["response"]["units"] == ["s", "ms", "min", "h"]
    lines = CliRunner().invoke(app, ["envelope"]).stdout.splitlines()
    assert len(lines) == len(KINDS) + 1
    assert all(line.startswith(name) for name, line in zip(KINDS, lines[:-1], strict=True))
    with pytest.raises(ConfigError, match=r"alone lists all 26\)"):
        quantities(["speed=3"])


def test_the_textbook_minimum_is_refused_with_both_sides() -> None:
    words = ["tokens_per_gpu=2828tokens/s", "prompt=1500tokens", "output=800tokens", "memory=24GiB", KV]
    with pytest.raises(ConfigError, match=r"the minimum of 1\.23 requests/s and 196,608 resident tokens means nothing"):
        refuse_minimum(quantities(words))
    ran = subprocess.run([KVLEDGER, "envelope", *words, "--textbook"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "one is a rate, the other a stock" in ran.stderr
