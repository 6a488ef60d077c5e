"""The steady state of a closed loop: the loop run step by step, above the floors, never worse on a faster GPU."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.calibrations import load_calibrations
from flows.catalog import load_catalog
from transforms.catalog import Gpu
from transforms.planner.steps.calibration_choice import chosen
from transforms.planner.steps.closed_loop import Load, Steady, steady
from transforms.planner.steps.step_calibration import StepParameters, calibrated
from transforms.planner.steps.step_time import step_floor_s, step_s, ttft_floor_s
from transforms.planner.steps.step_work import Layout, step_work

CATALOG = load_catalog(None)
CALIBRATIONS = load_calibrations(CATALOG)
MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": Layout(1),
    "Qwen/Qwen3-32B": Layout(4),
    "openai/gpt-oss-120b": Layout(2),
    "deepseek-ai/DeepSeek-R1": Layout(8, 1, 1, 8),
    "Qwen/Qwen3.5-397B-A17B": Layout(1, 1, 8, 8),
    "zai-org/GLM-5-FP8": Layout(8, 2),
}
GPUS = ("H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "A100-SXM-80GB", "RTX-4090-24GB", "MI300X-192GB")
points = st.fixed_dictionaries(
    {
        "model": st.sampled_from(sorted(MODELS)),
        "gpu": st.sampled_from(GPUS),
        "engine": st.sampled_from(["vllm", "sglang", "tensorrt-llm"]),
        "requests": st.integers(1, 512),
        "prompt": st.integers(1, 32_768),
        "output": st.integers(1, 8192),
    }
)


def answered(
    point: dict[str, Any], gpu: Gpu | None = None, burst_ratio: float | None = None
) -> tuple[Any, Steady[float]]:
    """The step model of a point, its calibration that of the named GPU whatever `gpu` is, and its steady state."""
    named = CATALOG.gpu(point["gpu"])
    calibration = chosen(CALIBRATIONS, point["engine"], named)
    if burst_ratio is not None:
        parameters = dataclasses.replace(calibration.parameters, burst_ratio=burst_ratio)
        calibration = dataclasses.replace(calibration, parameters=parameters)
    layout = MODELS[point["model"]]
    config = CATALOG.model(point["model"]).config
    work = step_work(config, point["model"], gpu or named, layout, engine_name=point["engine"])
    model = calibrated(work, calibration.parameters, calibration.provenance)
    requests = float(point["requests"])
    load = Load(requests, requests, float(point["prompt"]), float(point["output"]), float(layout.data > 1))
    return model, steady(model, calibration.parameters, load, largest=max, ceiling=ceiled)


@settings(max_examples=60, deadline=None)
@given(point=points)
def test_no_prediction_is_below_the_floors(point: dict[str, Any]) -> None:
    model, found = answered(point)
    assert found.tpot_s * (1 + model.speculative_tokens) >= step_floor_s(model)
    assert found.ttft_s >= ttft_floor_s(model, point["prompt"], 0.0)
    assert step_s(model, 0.0, point["requests"], point["prompt"]) >= step_floor_s(model)
    assert found.output_tokens_per_s <= point["requests"] / step_floor_s(model)


@settings(max_examples=60, deadline=None)
@given(point=points, dimension=st.sampled_from(["bandwidth", "peak", "link"]), factor=st.floats(1.0, 4.0))
def test_a_faster_gpu_never_serves_less(point: dict[str, Any], dimension: str, factor: float) -> None:
    gpu = CATALOG.gpu(point["gpu"])
    faster = {
        "bandwidth": lambda: dataclasses.replace(gpu, bandwidth_bytes_per_s=factor * gpu.bandwidth_bytes_per_s),
        "peak": lambda: dataclasses.replace(
            gpu, peak_flop_per_s={dtype: factor * peak for dtype, peak in gpu.peak_flop_per_s.items()}
        ),
        "link": lambda: dataclasses.replace(gpu, link_bytes_per_s=factor * (gpu.link_bytes_per_s or 0.0)),
    }[dimension]()
    before, after = answered(point)[1], answered(point, faster)[1]
    assert after.output_tokens_per_s >= before.output_tokens_per_s * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(point=points, first=st.floats(0.0, 1.0), second=st.floats(0.0, 1.0))
def test_more_room_for_kv_never_serves_less(point: dict[str, Any], first: float, second: float) -> None:
    point["output"] = max(point["output"], 100)  # shorter ones were never measured: see `steady`
    model, _ = answered(point)
    parameters = chosen(CALIBRATIONS, point["engine"], CATALOG.gpu(point["gpu"])).parameters
    requests, lengths = float(point["requests"]), (float(point["prompt"]), float(point["output"]))
    few, many = (1 + share * (requests - 1) for share in sorted((first, second)))
    served = [
        steady(model, parameters, Load(requests, resident, *lengths, 0.0), largest=max, ceiling=ceiled)
        for resident in (few, many)
    ]
    assert served[1].output_tokens_per_s >= served[0].output_tokens_per_s * (1 - 1e-9)


def ceiled(value: float) -> float:
    return float(math.ceil(value))


def run_step_by_step(model: Any, requests: int, prompt: int, output: int, cycles: int) -> float:
    """Seconds per output token of a closed loop whose requests are spread evenly over their lives at the start."""
    left = [1 + at * output // requests for at in range(requests)]
    age = [output - rest for rest in left]
    fresh: list[int] = []
    elapsed = tokens = 0.0
    for _ in range(cycles * output):
        decoding = len(left)
        context = sum(prompt + a for a in age) / max(decoding, 1)
        chunk = prompt if fresh else 0
        elapsed += step_s(model, chunk, decoding, context, prompt / 2 if chunk else 0.0)
        tokens += decoding
        ended = [at for at, rest in enumerate(left) if rest == 1]
        left, age = ([v for at, v in enumerate(values) if at not in ended] for values in (left, age))
        left, age = [rest - 1 for rest in left], [a + 1 for a in age]
        if fresh:
            fresh.pop()
            left.append(output)
            age.append(0)
        fresh += [0] * len(ended)
    return elapsed / tokens * (requests - 1 if fresh else requests)


@pytest.mark.parametrize(("requests", "prompt", "output"), [(8, 1024, 256), (32, 1024, 512), (64, 4096, 1024)])
@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-120b"])
def test_the_steady_state_is_the_loop_run_step_by_step(name: str, requests: int, prompt: int, output: int) -> None:
    point = {"model": name, "gpu": "H100-SXM-80GB", "engine": "vllm", "requests": requests}
    model, found = answered(point | {"prompt": prompt, "output": output}, burst_ratio=0.0)
    assert found.tpot_s == pytest.approx(run_step_by_step(model, requests, prompt, output, cycles=3), rel=0.04)


def test_a_prefill_is_waited_for_before_the_first_token_or_between_tokens_but_once() -> None:
    """With a compute-bound prefill in steps of its own, a burst moves time from the tokens' gaps to the first one."""
    point = {"model": "Qwen/Qwen3-32B", "gpu": "H100-SXM-80GB", "engine": "sglang", "requests": 16}
    spread, burst = (answered(point | {"prompt": 8192, "output": 1024}, burst_ratio=share)[1] for share in (0.0, 0.5))
    assert burst.ttft_s > 2 * spread.ttft_s
    cycles_s = [one.ttft_s + 1023 * one.tpot_s for one in (spread, burst)]
    assert cycles_s[1] == pytest.approx(cycles_s[0], rel=0.05)


def test_arrays_are_the_scalars_side_by_side() -> None:
    parameters = StepParameters()
    model, _ = answered(
        {"model": "Qwen/Qwen3-32B", "gpu": "H100-SXM-80GB", "engine": "vllm", "requests": 1, "prompt": 1, "output": 1}
    )
    rows = [(64.0, 32.0, 9000.0, 512.0, 0.0), (1.0, 1.0, 100.0, 1.0, 1.0)]
    loads = [Load(*row) for row in rows]
    alone = [steady(model, parameters, load, largest=max, ceiling=ceiled) for load in loads]
    together = steady(model, parameters, Load(*np.array(rows).T), largest=np.maximum, ceiling=np.ceil)
    for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
        assert getattr(together, name) == pytest.approx([getattr(one, name) for one in alone], rel=1e-12)
