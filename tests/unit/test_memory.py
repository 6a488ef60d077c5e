"""The memory budget against start-up logs of engines, its rules by release, and its refusals."""

from __future__ import annotations

import dataclasses

import pytest

from flows.catalog import load_catalog
from transforms.catalog import Gpu
from transforms.errors import CapacityError, CatalogError
from transforms.fleet import Engine
from transforms.planner.memory.budget import (
    MemoryBudget,
    engine_defaults,
    is_divisible,
    memory_budget,
    smallest_tensor_parallel_size,
)
from transforms.planner.memory.engine_settings import with_defaults
from transforms.planner.memory.kv_on_gpu import kv_on_gpu
from transforms.planner.memory.sglang_share import default_share
from transforms.planner.memory.start_up import activation_bytes, release, vllm_start_up
from transforms.planner.model.model_shape import model_shape

GIB = 2**30
CATALOG = load_catalog(None)
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def budget(name: str, gpu: str, **settings: object) -> MemoryBudget:
    """Budget with the engine's own defaults where `settings` say nothing."""
    card = CATALOG.gpu(gpu)
    engine = str(settings.get("name", "vllm")), settings.get("version")
    defaults = dataclasses.asdict(engine_defaults(card, *engine))
    return memory_budget(CATALOG.model(name).config, card, Engine(**defaults | settings), name)


def gibs(found: MemoryBudget) -> tuple[float, ...]:
    parts = (found.weights_bytes, found.activation_bytes, found.non_torch_bytes, found.kv_bytes)
    return tuple(round(part / GIB, 2) for part in parts)


# --- what must come out -------------------------------------------------------------------------------------------


def test_llama_8b_on_h100_as_vllm_0_19_logs_it():
    found = budget(LLAMA, "H100-SXM-80GB", version="0.19", gpu_memory_utilization=0.95)
    assert gibs(found) == pytest.approx((14.99, 1.89, 0.25, 58.11), rel=0.02)
    assert found.kv_bytes // (16 * 131_072) * 16 == pytest.approx(476_016, rel=0.001)
    assert found.kv_bytes // (16 * 65_536) * 16 == pytest.approx(2 * 476_016, rel=0.001), "fp8 KV holds twice that"


def test_qwen_7b_on_h100_as_vllm_0_19_logs_it():
    found = budget("Qwen/Qwen2.5-7B-Instruct", "H100-SXM-80GB", version="0.19.0", gpu_memory_utilization=0.95)
    assert found.kv_bytes // (16 * 57_344) * 16 == pytest.approx(1_096_000, rel=0.002)


@pytest.mark.parametrize("version", ["0.19.0", None])
def test_llama_8b_on_a_4090_as_the_measured_run_saw_it(version: str | None):
    settings = {"version": version, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "gpu_memory_utilization": 0.9}
    found = budget(LLAMA, "RTX-4090-24GB", **settings)
    assert found.kv_bytes // (16 * 131_072) == pytest.approx(2588, rel=0.005)


# (model, GPU, engine settings, GiB for KV in the log)
KV_LOGS = [
    (LLAMA, "RTX-3090-24GB", {"version": "0.6.4", "max_model_len": 20_000}, 3.81),
    (LLAMA, "RTX-3090-24GB", {"version": "0.6.4", "max_model_len": 29_000}, 2.89),
    (LLAMA, "H100-SXM-80GB", {"version": "0.11.0"}, 51.38),
    ("Qwen/Qwen3-0.6B", "H100-SXM-80GB", {"version": "0.11.0"}, 64.45),
    ("Qwen/Qwen3-0.6B", "L40S-48GB", {"version": "0.11.2"}, 37.42),
    ("Qwen/Qwen3-32B", "H100-SXM-80GB", {"version": "0.11.0"}, 4.45),
    ("Qwen/Qwen3-32B", "H100-SXM-80GB", {"version": "0.11.0", "tensor_parallel_size": 2}, 34.49),
    (
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
        "H100-SXM-80GB",
        {"version": "0.11.0", "tensor_parallel_size": 2},
        32.0,
    ),
    ("openai/gpt-oss-20b", "H100-SXM-80GB", {"version": "0.11.0"}, 50.28),
    ("Qwen/Qwen3-14B", "H100-SXM-80GB", {"version": "0.16.0", "gpu_memory_utilization": 0.95}, 41.94),
    ("Qwen/Qwen3-14B", "H100-SXM-80GB", {"version": "0.17.0", "gpu_memory_utilization": 0.95}, 45.34),
    ("Qwen/Qwen3-14B", "H100-SXM-80GB", {"version": "0.18.0", "gpu_memory_utilization": 0.95}, 45.23),
]


@pytest.mark.parametrize(("name", "gpu", "settings", "kv_gib"), KV_LOGS)
def test_memory_for_kv_is_within_two_percent_of_the_log(name: str, gpu: str, settings: dict, kv_gib: float):
    assert budget(name, gpu, **settings).kv_bytes / GIB == pytest.approx(kv_gib, rel=0.02)


# Peak activation in GiB under vLLM 0.19.0 on H100, 8,192 tokens and 1,024 sequences (llm-d-planner accuracy report).
ACTIVATION_0_19 = [
    (LLAMA, 1, 1.89),
    (LLAMA, 4, 1.89),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 2.21),
    ("Qwen/Qwen2.5-72B-Instruct", 2, 2.29),
    ("Qwen/Qwen3-8B", 1, 2.21),
    ("Qwen/Qwen3-30B-A3B", 1, 2.68),
    ("Qwen/Qwen1.5-MoE-A2.7B", 1, 2.47),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 1.93),
    ("google/gemma-2-2b-it", 1, 3.62),
    ("google/gemma-2-27b-it", 1, 3.66),
    ("google/gemma-3-4b-it", 1, 3.89),
    ("google/gemma-3-27b-it", 1, 3.99),
    ("ibm-granite/granite-3.1-2b-instruct", 1, 0.75),
    ("ibm-granite/granite-3.1-8b-instruct", 1, 0.85),
    ("microsoft/phi-4", 1, 1.52),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 1.21),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 3.19),
    ("openai/gpt-oss-20b", 2, 2.87),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 1.96),
]


@pytest.mark.parametrize(("name", "tensor", "gib"), ACTIVATION_0_19)
def test_activations_follow_the_measured_ones(name: str, tensor: int, gib: float):
    engine = Engine(tensor_parallel_size=tensor, max_num_seqs=1024, max_num_batched_tokens=8192)
    found = activation_bytes(CATALOG.model(name).config, name, engine, vllm_start_up("0.19.0"))
    assert found / GIB == pytest.approx(gib, abs=0.16)


@pytest.mark.parametrize(
    ("name", "settings", "gib"),
    [
        ("Qwen/Qwen3-8B", {"max_num_seqs": 256, "max_num_batched_tokens": 2048}, 1.40),
        (LLAMA, {"max_num_seqs": 256, "max_num_batched_tokens": 2048}, 1.19),
        (LLAMA, {"max_num_seqs": 1024}, 4.76),
        ("Qwen/Qwen3-32B", {"max_num_seqs": 1024}, 5.64),
        ("openai/gpt-oss-120b", {"max_num_seqs": 1024}, 7.38),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"max_num_seqs": 1024, "tensor_parallel_size": 2}, 5.6),
    ],
)
def test_activations_before_0_17_are_those_of_the_sorting_sampler(name: str, settings: dict, gib: float):
    engine = Engine(**settings)
    found = activation_bytes(CATALOG.model(name).config, name, engine, vllm_start_up("0.11.0"))
    assert found / GIB == pytest.approx(gib, abs=0.06)


def test_activations_never_fall_with_more_tokens_sequences_or_vocabulary():
    config, start_up = CATALOG.model(LLAMA).config, vllm_start_up("0.19.0")

    def peak(vocabulary: int = 128_256, **settings: int) -> int:
        return activation_bytes({**config, "vocab_size": vocabulary}, "x", Engine(**settings), start_up)

    for name, values in (("max_num_batched_tokens", (512, 2048, 8192, 32_768)), ("max_num_seqs", (1, 64, 256, 1024))):
        peaks = [peak(**{name: value}) for value in values]
        assert peaks == sorted(peaks)
    assert peak(256_000, max_num_seqs=1024) > peak(32_000, max_num_seqs=1024)


def test_sorted_sampling_holds_twelve_bytes_more_a_sequence_and_vocabulary_row():
    config = CATALOG.model(LLAMA).config
    engine = Engine(max_num_seqs=256, max_num_batched_tokens=2048)
    peaks = {
        (release, is_sorted): activation_bytes(
            config, "x", engine, vllm_start_up(release), is_sampling_sorted=is_sorted
        )
        for release in ("0.11.0", "0.19.0")
        for is_sorted in (False, True)
    }
    assert peaks["0.19.0", True] - peaks["0.19.0", False] == 12 * 256 * 128_256
    assert peaks["0.11.0", True] == peaks["0.11.0", False], "that release sorts anyway"


# --- rules by engine and release ----------------------------------------------------------------------------------


def test_graphs_are_deducted_from_0_21_on_and_only_as_given():
    graphs = {"cuda_graph_bytes": GIB, "gpu_memory_utilization": 0.9}
    old, new = (budget(LLAMA, "H100-SXM-80GB", version=version, **graphs) for version in ("0.20.1", "0.21.0"))
    assert (old.graph_bytes, new.graph_bytes) == (0, GIB)
    assert old.kv_bytes - new.kv_bytes == GIB
    assert new.provenance["graph_bytes"] == "measured"
    assert budget(LLAMA, "H100-SXM-80GB", version="0.21.0").graph_bytes == 0


def test_sglang_takes_its_share_of_free_memory():
    """Kimi-K2.5 on MI355X: 209.98 − 283.56 × (1 − 0.82604) = 160.65 GiB (log 160.63)."""
    card = Gpu("X", round(283.56 * GIB) + 1000, 1.0, {"bf16": 1.0}, {"memory": "log"})
    engine = Engine(
        name="sglang", gpu_memory_utilization=0.82604, weights_bytes=round(73.58 * GIB), non_torch_bytes=1000
    )
    found = memory_budget(CATALOG.model("moonshotai/Kimi-K2.5").config, card, engine)
    assert found.kv_bytes / GIB == pytest.approx(160.65, abs=0.01)


def test_sglangs_own_share_by_gpu_ranks_and_chunk():
    """By hand: 512 + 1.5 × 2,048 + 128 + 2 × 24 + 8 × 42 = 4,096 MiB of 24,564 (RTX 4090); 13,904 of 81,080 (H100)."""
    cards = {name: Gpu(name, mib << 20, 1.0, {"bf16": 1.0}, {}) for name, mib in (("4090", 24564), ("H100", 81080))}
    shares = [
        default_share(cards[name], Engine(name="sglang", max_num_batched_tokens=chunk, **ranks), has_latent=latent)
        for name, chunk, ranks, latent in (
            ("4090", 2048, {}, False),
            ("H100", 8192, {}, False),
            ("H100", 8192, {"tensor_parallel_size": 8}, True),
            ("H100", 2048, {}, False),
            ("H100", 8192, {"data_parallel_size": 8}, True),
        )
    ]
    reserved = (4096, 13904, 12800 + 1024 + 1024 + 1536, 10240 + 512 + 336, 12800 + 128 + 512 + 6144 + 1536)
    totals = (24564, 81080, 81080, 81080, 81080)
    assert shares == [round(1 - mib / total, 3) for mib, total in zip(reserved, totals, strict=True)]
    shape = model_shape(CATALOG.model(LLAMA).config, LLAMA)
    for told, share in (((), shares[1]), (("gpu_memory_utilization",), 0.9)):
        engine, assumed = with_defaults(Engine(name="sglang"), told, shape, cards["H100"])
        assert (engine.gpu_memory_utilization, "gpu_memory_utilization" in assumed) == (share, not told)


def test_tensorrt_llm_takes_its_share_of_what_is_free_after_loading():
    """Llama-3.1-8B fp8 on RTX 5090: 0.9 of 17.83 GiB free is 16.05 GiB for KV."""
    card = dataclasses.replace(CATALOG.gpu("RTX-5090-32GB"), memory_bytes=round(31.84 * GIB))
    config = {**CATALOG.model(LLAMA).config, "quantization_config": {"quant_method": "fp8"}}
    found = memory_budget(config, card, Engine(name="tensorrt-llm", gpu_memory_utilization=0.9))
    assert found.kv_bytes / GIB == pytest.approx(16.05, rel=0.005)


def test_what_the_fleet_file_says_replaces_what_is_computed():
    told = {"weights_bytes": 10 * GIB, "activation_bytes": 2 * GIB, "non_torch_bytes": GIB}
    found = budget(LLAMA, "H100-SXM-80GB", version="0.19.0", gpu_memory_utilization=0.9, **told)
    assert gibs(found)[:3] == (10.0, 2.0, 1.0)
    assert found.kv_bytes == found.requested_bytes - 13 * GIB
    assert {found.provenance[name] for name in told} == {"measured"}
    assert found.sources["weights_bytes"] == "fleet file"


def test_kv_cache_memory_bytes_is_taken_as_it_is():
    found = budget("Qwen/Qwen3-8B", "H100-SXM-80GB", kv_cache_memory_bytes=5_713_920_000, gpu_memory_utilization=0.1)
    assert found.kv_bytes == 5_713_920_000
    assert found.provenance["kv_bytes"] == "measured"


def test_each_part_says_how_far_to_trust_it_and_why():
    found = budget(LLAMA, "H100-SXM-80GB", version="0.19.0")
    parts = {"total_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes", "graph_bytes", "kv_bytes"}
    assert set(found.provenance) == set(found.sources) == parts
    assert found.provenance["total_bytes"] == "measured"
    assert found.provenance["weights_bytes"] == "modelled"
    assert found.provenance["kv_bytes"] == "assumed", "the weakest of its parts"
    assert "8.030 billion parameters" in found.sources["weights_bytes"]
    assert "0.19.0 on H100" in found.sources["activation_bytes"]


def test_an_unknown_engine_or_version_is_refused():
    with pytest.raises(CatalogError, match="unknown engine 'vlm'; did you mean 'vllm'"):
        memory_budget(CATALOG.model(LLAMA).config, CATALOG.gpu("L40S-48GB"), Engine(name="vlm"))
    with pytest.raises(CatalogError, match="engine version 'latest' has no number"):
        budget(LLAMA, "H100-SXM-80GB", version="latest")


def test_versions_compare_by_their_numbers():
    assert release("0.11.2rc1") == (0, 11, 2)
    assert release("0.9") < release("0.11.2") < release(None)
    assert vllm_start_up("0.6.4").non_torch_bytes == {1: round(0.35 * GIB)}


def test_engine_defaults_go_by_the_memory_of_the_gpu():
    large, small = (engine_defaults(CATALOG.gpu(name), "vllm", "0.19") for name in ("H100-SXM-80GB", "L40S-48GB"))
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert engine_defaults(CATALOG.gpu("A100-SXM-80GB"), "vllm", "0.19").max_num_seqs == 256
    assert engine_defaults(CATALOG.gpu("L40S-48GB"), "vllm", "0.33.0").gpu_memory_utilization == 0.92
    assert large.gpu_memory_utilization == 0.9
    names = ("RTX-4090-24GB", "L40S-48GB", "A100-SXM-80GB", "B200-SXM-180GB")
    chunks = [engine_defaults(CATALOG.gpu(name), "sglang").max_num_batched_tokens for name in names]
    assert chunks == [2048, 4096, 8192, 16384]


# --- refusals -----------------------------------------------------------------------------------------------------


def test_140_gb_of_weights_on_one_80_gb_gpu_are_refused_with_the_size_that_fits():
    with pytest.raises(CapacityError) as caught:
        budget(LLAMA_70B, "H100-SXM-80GB", version="0.19.0")
    line = str(caught.value)
    assert "\n" not in line
    assert "131.4 GiB of weights" in line
    assert line.endswith("the smallest tensor_parallel_size that fits with KV left is 2")
    assert budget(LLAMA_70B, "H100-SXM-80GB", version="0.19.0", tensor_parallel_size=2).kv_bytes > 0


def test_the_smallest_size_may_be_asked_to_leave_room_for_a_request():
    config, card = CATALOG.model(LLAMA_70B).config, CATALOG.gpu("H100-SXM-80GB")
    engine = Engine(version="0.19.0")

    def one_long_request(tensor: int) -> int:
        return 131_072 * 327_680 // tensor

    assert smallest_tensor_parallel_size(config, card, engine) == 2
    assert smallest_tensor_parallel_size(config, card, engine, "x", one_long_request) == 4
    assert smallest_tensor_parallel_size(config, CATALOG.gpu("L40S-48GB"), engine) == 4


def test_told_weights_are_scaled_to_the_size_that_is_tried():
    engine = Engine(version="0.19.0", weights_bytes=200_000_000_000)
    assert smallest_tensor_parallel_size(CATALOG.model(LLAMA_70B).config, CATALOG.gpu("H100-SXM-80GB"), engine) == 4


def test_when_nothing_fits_the_line_says_so():
    with pytest.raises(CapacityError, match="no tensor_parallel_size fits: take a larger GPU"):
        budget("moonshotai/Kimi-K2-Instruct", "T4-16GB", version="0.19.0")


def test_told_kv_that_does_not_fit_beside_the_weights_is_refused():
    with pytest.raises(CapacityError, match=r"10\.0 GiB of kv_cache_memory_bytes do not fit L40S-48GB.*is 2"):
        budget("Qwen/Qwen3-32B", "L40S-48GB", kv_cache_memory_bytes=10 * GIB)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        (LLAMA, [1, 2, 4, 8, 16, 32]),
        ("Qwen/Qwen2.5-14B-Instruct", [1, 2, 4, 8]),
        ("Qwen/Qwen2.5-7B-Instruct", [1, 2, 4]),
    ],
)
def test_sizes_that_divide_the_heads(name: str, sizes: list[int]):
    config = CATALOG.model(name).config
    assert [size for size in range(1, 65) if is_divisible(config, name, size)] == sizes


def test_every_model_of_the_catalog_has_a_size_that_fits_some_gpu():
    card = CATALOG.gpu("B300-SXM-270GB")
    for name in CATALOG.model_ids():
        size = smallest_tensor_parallel_size(CATALOG.model(name).config, card, Engine(version="0.19.0"), name)
        assert size is not None, name
        assert size <= 8, name


# --- kernels of the GPU -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "version", "block"),
    [
        ("B200-SXM-180GB", "0.14.0", 128),
        ("B200-SXM-180GB", "0.19.0", 64),
        ("GB300-NVL72-278GB", "0.11.0", 128),
        ("H200-SXM-141GB", "0.14.0", 64),
    ],
)
def test_the_block_of_latents_goes_by_the_gpu(gpu: str, version: str, block: int):
    name = "deepseek-ai/DeepSeek-V3"
    engine = Engine(version=version, tensor_parallel_size=8, max_model_len=8192)
    found = kv_on_gpu(CATALOG.model(name).config, name, CATALOG.gpu(gpu), engine)
    assert found.account.block_size_tokens == block


def test_experts_in_mxfp4_are_padded_further_on_data_centre_blackwell():
    hopper, blackwell = (
        budget("openai/gpt-oss-120b", gpu, version="0.19.0").weights_bytes
        for gpu in ("H200-SXM-141GB", "B200-SXM-180GB")
    )
    experts = 36 * 128 * 3 * 3072 * 0.53125
    assert blackwell - hopper == pytest.approx(experts * (3072 - 2944), rel=1e-6)
