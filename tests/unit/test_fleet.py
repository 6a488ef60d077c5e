"""The fleet file, key by key: what each may be, and the one line that names file, table, key and value."""

from __future__ import annotations

import copy
import tomllib
from dataclasses import fields
from typing import Any

import pytest

from transforms.errors import ConfigError
from transforms.fleet import Engine, Planning, Slo, deployment_of, parse_fleet
from transforms.fleet_limits import DEPLOYMENT, ENGINE, PLANNING, SLO, SOURCE, WAREHOUSE

FLEET = tomllib.loads("""
[[sources]]
name = "gateway"
format = "litellm"
path = "logs/*.jsonl"
[[deployments]]
name = "chat"
serves = ["chat-8b"]
model = "m"
gpu = "g"
[deployments.engine]
[deployments.slo]
[planning]
[warehouse]
[privacy]
[prices]
""")
TABLES = {
    "engine": ENGINE,
    "slo": SLO,
    "deployment": DEPLOYMENT,
    "planning": PLANNING,
    "source": SOURCE,
    "warehouse": WAREHOUSE,
}


def table_of(document: dict[str, Any], table: str) -> dict[str, Any]:
    deployment = document["deployments"][0]
    tables = {"engine": deployment["engine"], "slo": deployment["slo"], "deployment": deployment}
    rest = {name: document[name] for name in ("planning", "warehouse")}
    return {**tables, **rest, "source": document["sources"][0]}[table]


def with_value(table: str, key: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(FLEET)
    table_of(document, table)[key] = value
    return document


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        parse_fleet(document, "fleet.toml")
    assert "\n" not in str(error.value)
    return str(error.value)


KEYS = [(table, key, limit) for table, limits in TABLES.items() for key, limit in limits.items()]


@pytest.mark.parametrize(("table", "key", "limit"), KEYS, ids=[f"{table}.{key}" for table, key, _ in KEYS])
def test_every_number_has_its_limit(table: str, key: str, limit: Any) -> None:
    """At both ends of the limit the key is taken, beyond them it is refused by name; so are nan and inf."""
    is_whole = not (key.endswith(("_ratio", "_s", "utilization")))
    step = 1 if is_whole else 1e-6
    kind = int if is_whole else float
    parse_fleet(with_value(table, key, kind(limit.low + (step if limit.is_above else 0))), "fleet.toml")
    parse_fleet(with_value(table, key, kind(limit.high)), "fleet.toml")
    odd = [kind(limit.low - (0 if limit.is_above else step)), kind(-7), kind(limit.high * 2 + 1)]
    for value in odd if is_whole else [*odd, float("nan"), float("inf"), float("-inf")]:
        said = refused(with_value(table, key, value))
        assert said.startswith("fleet.toml"), said
        assert key in said, said
        assert str(value) in said, said


def test_every_number_of_the_file_is_in_the_table() -> None:
    numbers = {
        table: {f.name for f in fields(kind) if f.type.split(" |")[0] in ("int", "float")}
        for table, kind in (("engine", Engine), ("slo", Slo), ("planning", Planning))
    }
    assert {table: set(TABLES[table]) for table in numbers} == numbers


def test_an_unknown_key_names_the_nearest_or_all_there_are() -> None:
    assert refused(with_value("engine", "max_num_seq", 1)).endswith("engine.max_num_seq'; did you mean 'max_num_seqs'?")
    said = refused(with_value("engine", "cpu_offload_gb", 10))
    assert "engine.cpu_offload_gb'; known are name, version, tensor_parallel_size" in said


@pytest.mark.parametrize("name", ["(all)", "(none)"])
def test_names_in_brackets_are_kept_for_sums(name: str) -> None:
    document = copy.deepcopy(FLEET)
    document["deployments"][0]["name"] = name
    assert f"a deployment is named '{name}'" in refused(document)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_is_a_number_from_nothing_up(price: float) -> None:
    document = copy.deepcopy(FLEET)
    document["prices"] = {"H100-SXM-80GB": price}
    assert "H100-SXM-80GB" in refused(document)
    document["prices"] = {"H100-SXM-80GB": 0.0}
    parse_fleet(document, "fleet.toml")


@pytest.mark.parametrize(
    ("window", "seconds"), [("1h", 3600), ("15min", 900), ("90s", 90), ("1.5 h", 5400), ("7d", 604_800)]
)
def test_windows_of_an_objective(window: str, seconds: float) -> None:
    assert parse_fleet(with_value("slo", "window", window), "fleet.toml").deployments[0].slo.window_s == seconds


@pytest.mark.parametrize("window", ["700h", "1s", "0h", "hour", "", "-1h", "1w"])
def test_windows_that_are_none(window: str) -> None:
    said = refused(with_value("slo", "window", window))
    assert f"window '{window}'" in said
    assert "deployment 'chat': [slo]" in said


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"max_num_batched_tokens": 128, "max_num_seqs": 256}, "is below max_num_seqs = 256"),
        (
            {"max_num_batched_tokens": 512, "max_num_seqs": 8, "max_model_len": 4096, "enable_chunked_prefill": False},
            "is below max_model_len = 4096 without chunked prefill",
        ),
    ],
)
def test_batch_limits_that_vllm_refuses(engine: dict[str, Any], said: str) -> None:
    document = copy.deepcopy(FLEET)
    document["deployments"][0]["engine"] = engine
    assert said in refused(document)
    document["deployments"][0]["engine"] = {**engine, "name": "sglang"}
    parse_fleet(document, "fleet.toml")


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("deployment", "serves", []),
        ("deployment", "serves", [" "]),
        ("deployment", "name", ""),
        ("deployment", "gpu", " "),
    ],
)
def test_empty_words(table: str, key: str, value: Any) -> None:
    assert key in refused(with_value(table, key, value))


def two(first: list[str], second: list[str]) -> dict[str, Any]:
    document = copy.deepcopy(FLEET)
    document["deployments"] = [
        {"name": name, "serves": serves, "model": "m", "gpu": "g"} for name, serves in (("a", first), ("b", second))
    ]
    return document


@pytest.mark.parametrize(
    ("first", "second"), [(["llama*"], ["llama-3*"]), (["x", "*-8b"], ["*-8b"]), (["gpt-?"], ["gpt-*"]), (["*"], ["*"])]
)
def test_patterns_that_one_of_them_covers_are_two_equal_matches(first: list[str], second: list[str]) -> None:
    said = refused(two(first, second))
    assert "'a'" in said
    assert "'b'" in said


def test_patterns_that_cross_are_refused_by_the_model_that_matches_both() -> None:
    fleet = parse_fleet(two(["llama-*"], ["*-8b", "llama-3-8b"]), "fleet.toml")
    assert deployment_of("llama-70b", fleet.deployments) == "a"
    assert deployment_of("qwen-8b", fleet.deployments) == "b"
    assert deployment_of("llama-3-8b", fleet.deployments) == "b"
    with pytest.raises(ConfigError, match="model 'llama-4-8b' is served by a pattern of 'a' and by one of 'b'"):
        deployment_of("llama-4-8b", fleet.deployments)


def test_what_the_file_names_is_known_from_what_is_assumed() -> None:
    document = with_value("slo", "ttft_p95_s", 1)
    assert parse_fleet(document, "fleet.toml").deployments[0].given >= {"name", "slo", "slo.ttft_p95_s"}
    assert "slo.tpot_p95_s" not in parse_fleet(document, "fleet.toml").deployments[0].given
    assert "given" in refused(with_value("deployment", "given", []))
