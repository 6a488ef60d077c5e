"""Who and what holds KV·time: planted holders come out, parts add up, caps free what a recount says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_week import TOKEN_BYTES, TOOL_WAITS, attempt, random_rows, replica, workload

from transforms.planner.residency.attribution import OUTPUT_CAPS_TOKENS, attribution_rows
from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.timeline import observed_timeline


def rows_of(rows: list[dict], gaps: list[dict] | None = None) -> dict[tuple[str, str | None], dict]:
    week, one = workload(rows, gaps or []), replica()
    timeline = observed_timeline(week, one, slo_pace(one), np.full(week.rows, 0.02))
    found = {(row["dimension"], row["name"]): row for row in attribution_rows(week, timeline, one)}
    assert len(found) == len(attribution_rows(week, timeline, one))
    total = prefill_kv_time(timeline, one).linear_byte_s + decode_kv_time(timeline, one).linear_byte_s
    held = found["part", "prompt"]["kv_time_byte_s"] + found["part", "output"]["kv_time_byte_s"]
    assert held == pytest.approx(total[~week.is_carried].sum(), rel=1e-12), "prompt and output are all there is"
    waits = found["part", "tool_wait"]["kv_time_byte_s"]
    for key in ("tenant", "model"):
        of_key = [row for (dimension, _), row in found.items() if dimension == key]
        assert sum(row["tool_wait_kv_time_byte_s"] for row in of_key) == pytest.approx(waits), (
            "every wait is somebody's"
        )
    for dimension in ("length", "tenant", "model"):
        assert sum(row["kv_time_byte_s"] for key, row in found.items() if key[0] == dimension) == pytest.approx(held)
    return found


def known(at_s: float, prompt: int, output: int, e2e_s: float, **more: object) -> dict:
    """An attempt whose prefill takes no time: KV·time k·(P + O/2)·e2e."""
    return attempt(at_s, prompt, output, queue=0.0, ttft=0.0, e2e=e2e_s, **more)


def test_one_session_in_a_hundred_that_holds_half():
    rows = [known(3600.0 + n, 1000, 100, 10.0, session_id=f"s{n}", tenant="many") for n in range(99)]
    rows.append(known(3700.0, 99_000, 9_900, 10.0, session_id="whale", tenant="one"))
    found = rows_of(rows)
    assert found["top_sessions", "top 1%"]["share_ratio"] == pytest.approx(0.5)
    assert found["top_sessions", "top 1%"]["held_sessions"] == 1
    assert found["session", "whale"]["share_ratio"] == pytest.approx(0.5)
    assert found["tenant", "one"]["share_ratio"] == pytest.approx(0.5)
    assert found["tenant", "many"]["held_sessions"] == 99
    assert found["session", "whale"]["kv_time_byte_s"] == pytest.approx(TOKEN_BYTES * (99_000 + 4_950) * 10)
    assert sum(key[0] == "session" for key in found) == 20


def test_long_prompts_and_long_outputs_stand_apart():
    rows = [known(3600.0 + n, 1000, 100, 2.0) for n in range(88)]
    rows += [known(3800.0 + n, 20_000, 100, 2.0) for n in range(6)]
    rows += [known(3900.0 + n, 1000, 4000, 80.0) for n in range(6)]
    found = rows_of(rows)
    assert found["length", "long prompts"]["attempts_requests"] == 6
    assert found["length", "long outputs"]["attempts_requests"] == 6
    assert found["length", "long outputs"]["kv_time_byte_s"] == pytest.approx(6 * TOKEN_BYTES * 3000 * 80)
    assert found["length", "long outputs"]["output_kv_time_byte_s"] == pytest.approx(6 * TOKEN_BYTES * 2000 * 80)
    assert found["length", "both long"]["attempts_requests"] == 0
    assert found["part", "output"]["kv_time_byte_s"] == pytest.approx(TOKEN_BYTES * (94 * 50 * 2 + 6 * 2000 * 80))


def test_caps_free_what_counting_the_cut_attempts_anew_says():
    rng = np.random.default_rng(3)
    rows = [
        known(3600.0 + n, int(rng.integers(1, 9000)), int(output), 0.02 * (int(output) - 1))
        for n, output in enumerate(rng.lognormal(6, 1.2, 400).astype(int) + 1)
    ]
    found = rows_of(rows)
    for cap in OUTPUT_CAPS_TOKENS:
        cut = [
            row
            | {"output_tokens": min(row["output_tokens"], cap), "e2e_s": 0.02 * (min(row["output_tokens"], cap) - 1)}
            for row in rows
        ]
        anew = rows_of(cut)
        left = sum(anew["part", name]["kv_time_byte_s"] for name in ("prompt", "output"))
        total = sum(found["part", name]["kv_time_byte_s"] for name in ("prompt", "output"))
        freed = found["output_cap", f"{cap} tokens"]
        assert freed["kv_time_byte_s"] == pytest.approx(total - left, rel=1e-6)
        assert freed["attempts_requests"] == sum(row["output_tokens"] > cap for row in rows)


def test_tool_waits_are_of_their_session_and_a_cap_frees_what_lies_beyond_it():
    rows = [known(3600.0, 1000, 100, 5.0, session_id="agent", turn=1, tenant="t")]
    rows.append(known(3905.0, 1200, 100, 5.0, session_id="agent", turn=2, tenant="t"))
    gap = dict.fromkeys(TOOL_WAITS) | {
        "session_id": "agent", "model": "m", "tenant": "t", "arrived_at": rows[1]["arrived_at"], "kind": "tool",
        "wait_s": 300.0, "prior_context_tokens": 1100,
    }  # fmt: skip
    found = rows_of(rows, [gap])
    want = TOKEN_BYTES * 1100 * 300.0
    assert found["part", "tool_wait"]["kv_time_byte_s"] == pytest.approx(want)
    assert found["session", "agent"]["tool_wait_kv_time_byte_s"] == pytest.approx(want)
    assert found["tenant", "t"]["tool_wait_kv_time_byte_s"] == pytest.approx(want)
    assert found["tool_wait_cap", "60 s"]["kv_time_byte_s"] == pytest.approx(want * 0.8)
    assert found["tool_wait_cap", "60 s"]["share_ratio"] == pytest.approx(0.8)
    assert found["tool_wait_cap", "300 s"]["kv_time_byte_s"] == 0


def test_attempts_without_a_session_are_sessions_of_their_own():
    rows = [known(3600.0 + n, 1000, 100, 5.0) for n in range(200)]
    found = rows_of(rows)
    assert found["top_sessions", "top 1%"]["held_sessions"] == 2
    assert found["top_sessions", "top 1%"]["share_ratio"] == pytest.approx(0.01)
    assert not any(key[0] == "session" for key in found)


def test_any_week_adds_up():
    for seed in range(3):
        rows_of(random_rows(np.random.default_rng(seed), 200))


def test_a_week_without_requests_has_no_rows():
    week, one = workload([]), replica()
    timeline = observed_timeline(week, one, slo_pace(one), np.zeros(0))
    assert attribution_rows(week, timeline, replace(one)) == []
