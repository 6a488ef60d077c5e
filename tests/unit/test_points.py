"""Points of a benchmark: what a row must say, how parallelism is read, what is refused and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flows.catalog import load_catalog
from flows.points import Placing
from transforms.errors import CapacityError, CatalogError, ConfigError
from transforms.planner.steps.points import parse_point, readings
from transforms.planner.steps.step_work import Layout

ROW = {
    "id": "a", "engine": "vllm", "config_file": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100-SXM-80GB",
    "weights": "bf16", "tp": "1", "concurrency": "8", "isl": "1024", "osl": "128",
}  # fmt: skip
DEEPSEEK = {"config_file": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "weights": "fp8"}


def row(**changes: Any) -> dict[str, str | None]:
    return {**ROW, **{name: str(value) for name, value in changes.items()}}


def place(**changes: Any):
    return Placing(load_catalog(None), None).placed(row(**changes))


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"engine": "vlm"}, ConfigError, "engine 'vlm' is unknown; did you mean 'vllm'"),
        ({"gpu": "H1000"}, CatalogError, "GPU 'H1000' is not in the catalog; did you mean"),
        ({"weights": "fp5"}, CatalogError, "weights 'fp5' are unknown; did you mean 'fp"),
        ({"tp": 3}, ConfigError, "tp 3 does not divide"),
        ({"pp": 33}, ConfigError, "pp 33 is more than the 32 layers"),
        ({"isl": 0}, ConfigError, "isl '0' must be a whole number from 1 to 1,000,000"),
        ({"concurrency": "9" * 400}, ConfigError, "concurrency '9{40}…' must be a whole number"),
        ({"concurrency": "many"}, ConfigError, "concurrency 'many' must be a whole number"),
        ({"config_file": "nobody/knows"}, CatalogError, "model 'nobody/knows' is not in the catalog"),
        (
            DEEPSEEK | {"tp": 1},
            CapacityError,
            "weights do not fit: .* smallest tensor-parallel size that fits is 8",
        ),
        (DEEPSEEK | {"tp": 8, "moe_tp": 3, "moe_ep": 2}, ConfigError, "moe_tp 3 × moe_ep 2 is not tp 8"),
        ({"isl": 2_000_000}, CapacityError, "one request of 2000000"),
    ],
)
def test_a_point_that_cannot_be_says_why(changes: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        place(**changes)


def read(**changes: Any) -> list[tuple[Layout, int]]:
    found = readings(parse_point(row(**changes)), has_experts=True)
    return [(reading.layout, reading.concurrency) for reading in found]


def test_ranks_that_a_record_counts_twice_are_read_once() -> None:
    """The same runs stand in the public sample under both spellings, to the same digits."""
    plain = Layout(8, 1, 1, 8)
    assert read(tp=8, moe_tp=1, moe_ep=8) == [(plain, 8)]
    assert read(tp=64, moe_tp=8, moe_ep=8) == [(plain, 8), (Layout(64, 1, 1, 8), 8)]
    ranks = Layout(1, 1, 4, 4)
    assert read(attention_dp=4, moe_ep=4, concurrency=16) == [(ranks, 16)]
    assert read(attention_dp=16, moe_tp=4, moe_ep=4, concurrency=4)[0] == (ranks, 16)
    assert read(tp=4, attention_dp=4, moe_ep=16, concurrency=4)[0] == (ranks, 16)


def test_a_reading_whose_weights_do_not_fit_gives_way_to_the_record() -> None:
    """Qwen3-235B in fp8 does not fit two H100: tp 4 = moe_tp 2 × moe_ep 2 is what it says."""
    wide = {"config_file": "Qwen/Qwen3-235B-A22B", "weights": "fp8", "moe_tp": 2, "moe_ep": 2, "tp": 4}
    assert place(**wide)[1].reading.layout == Layout(4, 1, 1, 2)
    roomy = place(**wide | {"gpu": "B200-SXM-180GB"})[1].reading
    assert roomy.layout == Layout(2, 1, 1, 2)
    assert roomy.note == "read as 2 GPUs"


def test_sizes_that_nobody_recorded_count_as_one() -> None:
    point = parse_point(row(tp="2.0", pp="", attention_dp=0, moe_tp=0, moe_ep=0))
    assert (point.tensor, point.pipeline, point.data, point.expert_tensor, point.expert) == (2, 1, 1, 1, 1)


def test_requests_beyond_the_kv_cache_do_not_reside() -> None:
    few, many = place(concurrency=8)[1], place(concurrency=4096)[1]
    assert few.resident == 8
    held = (1024 + 64) * 131_072
    assert many.resident == pytest.approx((0.93 * 85_018_877_624 - 2 * 2**30 - 16.06e9) / held, rel=0.02)
    assert math.isfinite(many.resident)
