"""The shared cases of load generators and logging payloads, with their format named and recognised."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ingesting import counts, ingested, lake

pytestmark = pytest.mark.shared
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def case(shared_dir, tmp_path):
    """Ingest a case with its format named and recognised; gives counts and rows in the order of the file."""

    def run(name, form):
        path = shared_dir / "cases" / "logs" / name
        by_name = ingested(tmp_path / "named", path, form=form)
        recognised = ingested(tmp_path / "auto", path, form="auto")
        assert counts(by_name) == counts(recognised)
        rows = lake(tmp_path / "named")
        assert rows.equals(lake(tmp_path / "auto"))
        return counts(by_name), rows

    return run


def test_30_response_time_is_the_first_token_of_a_stream(case):
    found, rows = case("30-litellm-response-time-is-ttft.jsonl", "litellm-payload")
    assert found == (2, 2, 0, 0)
    rows = rows.sort("request_id")
    assert rows.select("request_id", "e2e_s", "ttft_s").rows() == [("a", 8.0, 0.4), ("b", 8.0, None)]
    assert rows.select("prompt_tokens", "output_tokens", "arrived_at").unique().rows() == [(10, 20, TEN)]


def test_65_names_of_two_releases_in_one_archive(case):
    found, rows = case("65-schema-drift.jsonl", "aiperf")
    assert found == (2, 2, 0, 0)
    names = ("request_id", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s", "status")
    assert rows.select(names).rows() == [
        ("a", 550, None, 3.3405, 8.2142, "ok"), ("b", 550, 9, 0.2559, 0.305864, "ok"),
    ]  # fmt: skip
    assert [at.isoformat() for at in rows["arrived_at"]] == [
        "2025-10-03T20:13:39.158355+00:00", "2025-10-07T05:00:07.532900+00:00",
    ]  # fmt: skip


def test_74_failed_prompts_stay_in_the_arrays(case):
    found, rows = case("74-vllm-bench-detailed.json", "vllm-bench")
    assert found == (3, 3, 0, 0)
    names = ("status", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
    assert rows.select(names).rows() == [
        ("ok", 100, 4, 0.2, 0.5), ("error", 100, None, None, None), ("ok", 100, 5, 0.2, 0.5),
    ]  # fmt: skip
    first = rows["arrived_at"][0]
    assert [(at - first).total_seconds() for at in rows["arrived_at"]] == [0, 0.1, 0.2]
    assert set(rows["model"]) == {"m"}


def test_76_a_cancelled_request_has_a_prompt_and_no_answer(case):
    found, rows = case("76-aiperf-cancelled.jsonl", "aiperf")
    assert found == (1, 1, 0, 0)
    names = ("status", "prompt_tokens", "output_tokens", "ttft_s", "session_id", "turn")
    assert rows.select(names).row(0) == ("aborted", 550, None, None, "v", 1)


@pytest.mark.parametrize("form", ["mooncake", "aiperf-trace"])
def test_45_stamps_of_aiperf_are_milliseconds_as_mooncake_s(shared_dir, tmp_path, form):
    ingested(tmp_path, shared_dir / "cases/logs/45-trace-time-units/mooncake_ms.jsonl", form=form)
    assert lake(tmp_path)["arrived_at"].diff()[1].total_seconds() == 3.0


def test_45_stamps_of_vllm_s_timed_trace_are_seconds_unless_its_multiplier_says_otherwise(shared_dir, tmp_path):
    path = shared_dir / "cases/logs/45-trace-time-units/mooncake_ms.jsonl"
    ingested(tmp_path / "s", path, form="vllm-timed-trace")
    ingested(tmp_path / "ms", path, form="vllm-timed-trace", time_unit="ms", block_tokens=512)
    assert lake(tmp_path / "s")["arrived_at"].diff()[1].total_seconds() == 3000.0
    assert lake(tmp_path / "s")["prefix_block_ids"].null_count() == 2
    assert lake(tmp_path / "ms")["arrived_at"].diff()[1].total_seconds() == 3.0
    assert lake(tmp_path / "ms")["prefix_block_ids"].null_count() == 0


@pytest.mark.parametrize("form", ["tair-prefill", "auto"])
def test_prefill_nodes_of_glm5(shared_dir, tmp_path, form):
    assert counts(ingested(tmp_path, shared_dir / "traces/glm5/glm5_ground_truth.jsonl", form=form)) == (20, 20, 0, 0)
    rows = lake(tmp_path)
    first = rows.row(0, named=True)
    assert first["arrived_at"] == datetime(2026, 6, 5, 15, 32, 12, 527_000, UTC)
    assert (first["prompt_tokens"], first["cached_prompt_tokens"], first["ttft_s"]) == (2713, 2074, 0.553)
    assert set(rows["output_tokens"]) == {1}


def test_prefill_nodes_of_glm5_through_a_mapping_of_one_s_own(shared_dir, tmp_path):
    mapping = {
        "request_id": "rid", "arrived_at": {"field": "arrive", "unit": "ms"}, "prompt_tokens": "input_length",
        "cached_prompt_tokens": "total_hit_len", "ttft_s": {"field": "first_latency_ms", "unit": "ms"},
    }  # fmt: skip
    path = shared_dir / "traces/glm5/glm5_ground_truth.jsonl"
    assert counts(ingested(tmp_path, path, form="mapped", mapping=mapping)) == (20, 20, 0, 0)
    assert lake(tmp_path)["cached_prompt_tokens"][0] == 2074
    assert lake(tmp_path)["output_tokens"].null_count() == 20
