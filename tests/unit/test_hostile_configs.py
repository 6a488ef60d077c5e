"""Configs that lack, bend or overdo their fields: one line that names file and field, never a traceback."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.catalog import load_catalog
from transforms.errors import CatalogError, ConfigError, KvledgerError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import kv_account
from transforms.planner.memory.kv_on_gpu import kv_on_gpu
from transforms.planner.model.model_shape import model_shape

GIB = 1 << 30
CATALOG = load_catalog(None)
B200 = CATALOG.gpu("B200-SXM-180GB")
LLAMA = dict(CATALOG.model("meta-llama/Llama-3.1-8B-Instruct").config)
GEMMA = dict(CATALOG.model("google/gemma-3-27b-it").config)
DOCUMENTS = [dict(CATALOG.model(name).config) for name in CATALOG.model_ids()]
FP8 = {"quant_method": "fp8"}
GROUPS = {"a": {"weights": {"num_bits": 4, "type": "int"}}, "b": {"weights": {"num_bits": 8, "type": "float"}}}
HOSTILE: list[Any] = [
    *(None, "8", "", -1, 0, 1, 1.5, True, False, [], {}, [None], [0], ["x"], {"a": 1}),
    *(10**15, 10**30, float("nan"), float("inf"), "x" * 300),
]
ENGINES = (
    Engine(version="0.9", tensor_parallel_size=2),
    Engine(speculative_tokens=2, tensor_parallel_size=8),
    Engine(name="sglang", speculative_tokens=1),
    Engine(name="tensorrt-llm"),
)


def refusal(config: dict[str, Any]) -> str:
    """The line that refuses `config` on a B200."""
    with pytest.raises((ConfigError, CatalogError)) as caught:
        kv_on_gpu(config, "config.json", B200, Engine())
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("config.json: ")
    return line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": "32"}, "'num_hidden_layers' must be a whole number from 0 to .*, not '32'"),
        ({"num_hidden_layers": -1}, "'num_hidden_layers' must be a whole number .*, not -1"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' must be above zero"),
        ({"num_hidden_layers": 10**9}, "1,000,000,000 layers are more than any model has"),
        ({"num_hidden_layers": 10**40}, "'num_hidden_layers' must be a whole number .*, not 1000"),
        ({"num_attention_heads": 0}, "'num_attention_heads' must be above zero"),
        ({"num_key_value_heads": 0}, "'num_key_value_heads' must be above zero"),
        ({"head_dim": 0}, "'head_dim' must be above zero"),
        ({"num_key_value_heads": [8]}, r"'num_key_value_heads' must be a whole number .*, not \[8\]"),
        ({"num_key_value_heads": True}, "must be a whole number .*, not True"),
        ({"head_dim": None, "hidden_size": 7}, "a hidden size of 7 does not make 32 attention heads"),
        ({"vocab_size": 1.5}, "'vocab_size' must be a whole number"),
        ({"intermediate_size": None}, "lacks 'intermediate_size'"),
        ({"layer_types": "full"}, "'layer_types' must be a list, not 'full'"),
        ({"layer_types": ["full_attention"]}, "the layer pattern names 1 layers, the model has 32"),
        ({"layer_types": ["odd"] * 32}, "unknown kind of attention 'odd'; known are"),
        ({"hybrid_override_pattern": 7}, "'hybrid_override_pattern' must be text, not 7"),
        ({"hybrid_override_pattern": "MXM"}, "unknown layer 'X' in hybrid_override_pattern"),
        ({"sliding_window": 8, "sliding_window_pattern": -3}, "'sliding_window_pattern' must be a whole number"),
        ({"partial_rotary_factor": "half"}, "'partial_rotary_factor' must be a number above zero, not 'half'"),
        ({"model_type": "lama", "architectures": None}, "did you mean 'llama'"),
        ({"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, "DeepSeek-V4"),
        ({"model_type": None, "architectures": None}, "lacks 'model_type' and 'architectures'"),
        ({"quantization_config": "fp8"}, "'quantization_config' must be an object, not 'fp8'"),
        ({"quantization_config": {"quant_method": "fp9"}}, "unknown quantisation 'fp9'; did you mean 'fp8'"),
        ({"quantization_config": {"quant_method": None, "x": 1}}, "unknown quantisation ''"),
        ({"quantization_config": {"quant_method": "awq", "bits": "four"}}, "bits must be a whole number, not 'four'"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 5}}, "gptq with 5 bits .* unknown; known are 2, 3"),
        ({"quantization_config": {**FP8, "weight_block_size": [0, 128]}}, "'weight_block_size' must be two whole"),
        ({"quantization_config": {**FP8, "ignored_layers": "lm_head"}}, "ignored_layers must be a list"),
        ({"quantization_config": {**FP8, "ignored_layers": ["re:("]}}, r"'re:\(' in quantization_config is no pattern"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "with None bits"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": GROUPS}}, "groups differ"),
    ],
)  # fmt: skip
def test_a_bent_field_is_named(changes: dict[str, Any], words: str) -> None:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    with pytest.raises((ConfigError, CatalogError), match=words):
        kv_on_gpu(config, "config.json", B200, Engine())
    assert len(refusal(config)) < 2600


@pytest.mark.parametrize("tower", [[], "text", 7, True])
def test_a_tower_of_another_type_is_named(tower: Any) -> None:
    assert "'text_config' must be an object" in refusal({**GEMMA, "text_config": tower})
    assert "'vision_config' must be an object" in refusal({**GEMMA, "vision_config": tower})


def test_a_long_value_is_cut_short_in_the_line() -> None:
    assert refusal({**LLAMA, "num_attention_heads": "x" * 5000}).endswith("x…")


def test_files_that_are_no_config_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "words.json").write_text("a config")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with (tmp_path / "weights.json").open("wb") as file:
        file.truncate(200 << 20)
    for name, words in (
        ("folder.json", "has no config.json"),
        ("deep.json", "nested too deeply"),
        ("words.json", "cannot be read as JSON"),
        ("bytes.json", "cannot be read as JSON"),
        ("weights.json", "209,715,200 bytes.*name the config, not the weights"),
        ("x" * 5000, "is not in the catalog"),
        ("absent.json", "does not exist"),
    ):
        with pytest.raises(CatalogError, match=words) as caught:
            CATALOG.model(name, base=tmp_path)
        assert "\n" not in str(caught.value)


@st.composite
def bent(draw: st.DrawFn) -> dict[str, Any]:
    """A config of the catalog with one or two fields of it, however deep, gone or replaced."""
    config = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _ in range(draw(st.integers(1, 2))):
        nested = [value for value in config.values() if isinstance(value, dict) and value]
        table = draw(st.sampled_from([config, *nested]))
        key = draw(st.sampled_from(sorted(table)))
        if draw(st.booleans()):
            table[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
        else:
            del table[key]
    return config


@given(bent(), st.sampled_from(ENGINES))
@settings(max_examples=60, deadline=None)
def test_no_config_ends_in_a_traceback(config: dict[str, Any], engine: Engine) -> None:
    for ask in (
        lambda: kv_on_gpu(config, "config.json", B200, engine),
        lambda: kv_account(model_shape(config, "config.json"), engine, 20 * GIB),
    ):
        try:
            ask()
        except KvledgerError as error:
            line = str(error)
        else:
            line = ""
        assert "\n" not in line, json.dumps(config, default=str)[:500]
