"""The numbers a plan must come to: one test for each row of the planner's table of figures, refusals included."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.catalog import Gpu
from transforms.errors import CapacityError, ConfigError
from transforms.fleet import Engine
from transforms.planner.memory.budget import memory_budget
from transforms.planner.memory.kv_account import kv_account
from transforms.planner.model.model_shape import model_shape
from transforms.planner.sizing import arithmetic

GIB = 1 << 30
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14_336, "vocab_size": 128_256,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_70B = LLAMA_8B | {
    "num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192, "intermediate_size": 28_672,
}  # fmt: skip


def token_bytes(config: dict[str, Any], **engine: Any) -> int:
    return kv_account(model_shape(config, "config.json"), Engine(**engine), 24 * GIB).bytes_per_token


def h100() -> Gpu:
    return Gpu("H100-SXM-80GB", 85_018_877_624, 3.35e12, {"bf16": 989.4e12}, {"memory": "test"}, gpus_per_node=8)


def test_bytes_per_token_count_kv_heads_and_not_query_heads() -> None:
    assert token_bytes(LLAMA_8B) == 131_072
    assert token_bytes(LLAMA_8B | {"num_key_value_heads": 32}) == 4 * 131_072


def test_int4_weights_do_not_change_kv_bytes() -> None:
    int4 = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    assert token_bytes(LLAMA_8B | int4) == 131_072


@pytest.mark.parametrize(
    ("tokens", "held"), [(4096, GIB // 2), (8192, GIB), (32_768, 4 * GIB), (8192 + 2048, 5 * GIB // 4)]
)
def test_kv_of_whole_contexts(tokens: int, held: int) -> None:
    assert arithmetic.kv_bytes(tokens, 131_072) == held


def test_24_gib_hold_four_long_and_eight_short_requests_and_no_more() -> None:
    capacity = arithmetic.kv_tokens(24 * GIB, 131_072)
    assert capacity == 196_608
    mix = [32_768] * 4 + [8192] * 8
    assert arithmetic.free_tokens(capacity, mix) == 0
    with pytest.raises(CapacityError, match="196609 resident tokens do not fit into 196608"):
        arithmetic.free_tokens(capacity, [*mix, 1])


@pytest.mark.parametrize("max_num_seqs", [1, 64, 1024])
def test_max_num_seqs_changes_no_kv_capacity(max_num_seqs: int) -> None:
    account = kv_account(model_shape(LLAMA_8B, "config.json"), Engine(max_num_seqs=max_num_seqs), 24 * GIB)
    assert account.capacity_tokens == 196_608


def test_one_token_too_many_opens_a_block() -> None:
    assert arithmetic.blocks(8192, 16) == 512
    assert arithmetic.blocks(8193, 16) == 513
    assert arithmetic.empty_slots(8193, 16) == 15
    assert arithmetic.empty_slots(8193, 16) * 131_072 == 1.875 * (1 << 20)


def test_kv_time_of_one_request() -> None:
    held = arithmetic.request_kv_time(8192, 2048, 50.0, 131_072)
    assert held.duration_s == pytest.approx(40.96)
    assert held.residency_mean_bytes == 1.125 * GIB
    assert held.residency_end_bytes == 1.25 * GIB
    assert held.kv_time_byte_s == pytest.approx(46.08 * GIB)


def test_decoding_requests_eat_the_token_budget_first() -> None:
    assert arithmetic.prefill_budget_tokens(2048, 64) == 1984
    assert arithmetic.prefill_steps(8192, 2048, 64) == 5
    assert arithmetic.prefill_steps(4 * 1984, 2048, 64) == 4
    with pytest.raises(CapacityError, match="leaves nothing for prefill beside 64"):
        arithmetic.prefill_budget_tokens(64, 64)


def test_compute_bound_of_a_70b_model() -> None:
    assert arithmetic.compute_tokens_per_s(70e9, 990e12, 0.4) == pytest.approx(2828.6, abs=0.05)
    assert arithmetic.compute_efficiency(1800, 70e9, 990e12) == pytest.approx(0.255, abs=5e-4)


def test_query_heads_make_eight_times_too_much_and_the_note_says_so() -> None:
    assumed = 2048 * 32 * token_bytes(LLAMA_70B | {"num_key_value_heads": 64})
    real = 2048 * 32 * token_bytes(LLAMA_70B)
    assert assumed / 1e9 == pytest.approx(171.8, abs=0.05)
    assert real / 1e9 == pytest.approx(21.5, abs=0.05)
    note = arithmetic.kv_heads_note(assumed, 64, "Llama-3.1-70B", 8)
    assert note == "Llama-3.1-70B has 8 KV heads, not 64: 21.5 GB instead of 171.8 GB"
    assert arithmetic.kv_heads_note(real, 8, "Llama-3.1-70B", 8) is None


def test_concurrency_is_not_a_rate() -> None:
    assert arithmetic.concurrent_requests(50, 2.0) == 100
    assert arithmetic.instances(100, 1.5, 25) == 6
    assert arithmetic.concurrent_requests(200, 2.0) == 400


@pytest.mark.parametrize("per_instance", [0.0, -16.0])
def test_an_instance_that_serves_nobody_is_refused(per_instance: float) -> None:
    """A textbook script divides by a batch of −16 and recommends 77 instances."""
    with pytest.raises(ConfigError, match="must be above zero"):
        arithmetic.instances(1233, 1.0, per_instance)


def test_weights_that_do_not_fit_name_the_smallest_size_that_does() -> None:
    with pytest.raises(CapacityError) as refused:
        memory_budget(LLAMA_70B, h100(), Engine(tensor_parallel_size=1), "70b/config.json")
    assert "\n" not in str(refused.value)
    assert "do not fit H100-SXM-80GB" in str(refused.value)
    named = int(str(refused.value).rsplit(" ", 1)[1])
    assert named == 2
    assert memory_budget(LLAMA_70B, h100(), Engine(tensor_parallel_size=named), "70b/config.json").kv_bytes > 0


def test_compute_alone_takes_163_gpus_for_a_70b_service() -> None:
    assert arithmetic.compute_instances(200, 1500 + 800, 2828) == 163


def test_textbook_capacity_is_refused_with_both_sides_in_their_units() -> None:
    both = arithmetic.limits(2828, 2300, 24 * GIB, 131_072)
    assert both.requests_per_s == pytest.approx(1.2296, abs=1e-4)
    assert both.resident_tokens == 196_608
    with pytest.raises(ConfigError, match=r"1\.23 requests/s and 196,608 resident tokens"):
        arithmetic.textbook_capacity(2828, 2300, 24 * GIB, 131_072)


def test_rule_of_thumb_of_batching_never_reaches_two() -> None:
    assert arithmetic.batch_gain_factor(16) == pytest.approx(1.88, abs=0.005)
    assert arithmetic.batch_gain_factor(1) == 1
    assert arithmetic.batch_gain_factor(10**6) < 2


def test_tpot_is_per_request() -> None:
    assert arithmetic.tpot_s(10.0, 1.0, 91) == pytest.approx(0.1)
    assert arithmetic.tpot_s(1.0, 1.0, 1) is None
    # One slow short answer and one quick long one: half of the requests are slow, a tenth of the gaps is.
    slow, quick = [0.0, 1.0], [0.1 * n for n in range(10)]
    tpots = [arithmetic.tpot_s(times[-1] - times[0] + 1.0, 1.0, len(times)) or 0.0 for times in (slow, quick)]
    assert arithmetic.quantile(tpots, 0.5) == pytest.approx(0.55)
    # Speculation: three tokens come in one chunk, so a gap between chunks is not a token's time.
    assert arithmetic.tpot_s(0.3 + 1.0, 1.0, 4) == pytest.approx(0.1)


def test_quantile_is_linear_and_refuses_nothing() -> None:
    assert arithmetic.quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    with pytest.raises(ConfigError, match="needs values"):
        arithmetic.quantile([], 0.5)
