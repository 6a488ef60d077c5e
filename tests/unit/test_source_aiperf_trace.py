"""AIPerf's traces: sessions, delays, prompts in words, and what input_length counts."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

from flows.reading.look import HEAD_ELEMENTS
from transforms.batches import Batch, Head
from transforms.fleet import Source
from transforms.sources import _trace_line, aiperf_trace, mooncake, vllm_timed_trace

ORIGIN = 1_772_359_200_000_000
FIXTURES = "traces/formats/ai-dynamo/dynamo/replay/tests/e2e/configs/unified_cli/fixtures/traces"


def parse(*lines, carry=None, **settings):
    given = {"origin": "2026-03-01T10:00:00Z", **aiperf_trace.DEFAULTS, **settings}
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    batch = Batch("a", raw, list(range(len(raw))), {} if carry is None else carry)
    parsed = aiperf_trace.canonicalise(batch, Source("aiperf-trace", "x", **given))
    assert len(parsed.rows) + len(parsed.rejects) == len(raw)
    return parsed


def turn(**more):
    return {"session_id": "s", "input_length": 100, "output_length": 10, **more}


def seconds_of(rows):
    return [(us - ORIGIN) / 1e6 for us in rows["arrived_at"]]


def test_stamps_are_milliseconds_with_fractions():
    assert seconds_of(parse(turn(timestamp=0), turn(timestamp=1500.25)).rows) == [0, 1.50025]


def test_a_turn_without_a_stamp_arrives_its_delay_after_the_turn_before_it():
    rows = parse(turn(timestamp=1000), turn(delay=500, input_length=120), turn(delay_ms=2000.5, input_length=150)).rows
    assert seconds_of(rows) == [1, 1.5, 3.5005]
    assert rows["turn"].to_list() == [1, 2, 3]
    assert rows["logged_tool_wait_s"].to_list() == [None, 0.5, 2.0005]
    assert rows["flags"].to_list() == [[], ["assumed_arrival"], ["assumed_arrival"]]


def test_sessions_go_on_from_batch_to_batch():
    carry = {}
    parse(turn(timestamp=0), carry=carry)
    rows = parse(turn(delay=1000), {"session_id": "other", "input_length": 5, "timestamp": 7}, carry=carry).rows
    assert rows["turn"].to_list() == [2, 1]
    assert seconds_of(rows) == [1, 0.007]


def test_sessions_without_any_stamp_start_at_the_origin_or_are_spread():
    lines = [turn(), turn(session_id="t"), {"input_length": 4}]
    rows = parse(*lines).rows
    assert seconds_of(rows) == [0, 0, 0]
    assert all("assumed_start" in flags for flags in rows["flags"])
    spread = seconds_of(parse(*lines, session_rate_per_s=0.1).rows)
    assert spread == sorted(spread)
    assert len(set(spread)) == 3


def test_without_an_origin_the_rows_say_so():
    assert parse(turn(timestamp=0), turn(delay=1), origin=None).rows["flags"].to_list() == [
        ["assumed_origin"], ["assumed_origin", "assumed_arrival"],
    ]  # fmt: skip


def test_input_length_is_the_whole_prompt_unless_something_says_otherwise():
    lines = [turn(timestamp=0), turn(delay=1, input_length=30, hash_ids=[7]), turn(delay=1, input_length=20)]
    inside = parse(*lines).rows
    assert inside["prompt_tokens"].to_list() == [100, 30, 20]
    assert ["delta_suspected" in flags for flags in inside["flags"]] == [False, True, True]
    outside = parse(*lines, cached_tokens="outside").rows
    assert outside["prompt_tokens"].to_list() == [100, 140, 170]
    assert outside["prefix_block_ids"].to_list() == [None, None, None]
    assert ["delta_prompt" in flags for flags in outside["flags"]] == [False, True, True]


@pytest.mark.parametrize(("mode", "prompt"), [("deltas_without_responses", 140), ("message_array_with_responses", 30)])
def test_a_line_s_own_mode_settles_what_its_length_counts(mode, prompt):
    lines = turn(timestamp=0, context_mode=mode), turn(delay=1, input_length=30, context_mode=mode)
    for setting in ("inside", "outside"):
        rows = parse(*lines, cached_tokens=setting).rows
        assert rows["prompt_tokens"].to_list() == [100, prompt]
        assert "delta_suspected" not in rows["flags"][1]


def test_a_delta_after_an_unknown_length_is_unknown():
    lines = {"session_id": "s", "text_input": "hello", "output_length": 3}, turn(delay=1)
    assert parse(*lines, cached_tokens="outside").rows["prompt_tokens"].to_list() == [None, None]


def test_prompts_in_words_have_no_length_and_leave_no_words():
    messages = [{"role": "user", "content": "SECRET"}, {"role": "assistant", "content": ""},
                {"role": "tool", "content": "SECRET"}, {"role": "tool", "content": "SECRET"}]  # fmt: skip
    rows = parse(
        {"timestamp": 0, "messages": messages, "output_length": 4},
        {"timestamp": 1, "payload": {"prompt": "SECRET", "model": "m", "max_tokens": 50}},
        {"timestamp": 2, "text_input": "SECRET"},
    ).rows
    assert rows["prompt_tokens"].to_list() == [None, None, None]
    assert rows["output_tokens"].to_list() == [4, None, None]
    assert rows["tool_results"].to_list() == [2, None, None]
    assert rows["model"].to_list() == [None, "m", None]
    assert rows["requested_output_tokens"].to_list() == [None, 50, None]
    assert ["usage_missing" in flags for flags in rows["flags"]] == [False, True, True]
    assert "SECRET" not in str(rows.to_dicts())


def test_blocks_that_do_not_fit_are_dropped_and_tokens_kept():
    rows = parse(turn(hash_ids=[1], timestamp=0), turn(hash_ids=[1, 2], timestamp=1)).rows
    assert rows["prefix_block_ids"].list.len().to_list() == [1, None]
    assert rows["prefix_block_tokens"].to_list() == [512, None]
    assert "hash_block_mismatch" in rows["flags"][1]


def test_records_that_cannot_be_used_are_rejected():
    parsed = parse(b"{", {"session_id": "s"}, turn(delay="soon"), turn(input_length=1.5), turn(timestamp=True))
    assert [r.reason for r in parsed.rejects] == [
        "not JSON", "no prompt", "not a number", "not a whole number", "not a time",
    ]  # fmt: skip


def names(*records):
    modules = (aiperf_trace, mooncake, vllm_timed_trace)
    return [module.FORMAT for module in modules if module.recognise(Head("a", records))]


def test_the_three_trace_formats_part_by_what_only_one_has():
    plain = {"timestamp": 0, "input_length": 600, "output_length": 5}
    assert names(plain) == ["mooncake"]
    assert names({**plain, "hash_ids": [1, 2]}) == ["mooncake"]
    assert names({**plain, "hash_ids": list(range(38))}) == ["vllm-timed-trace"]
    assert names({**plain, "input_length": 10, "hash_ids": [1]}) == ["mooncake"]
    assert names({**plain, "session_id": "s"}) == ["aiperf-trace"]
    assert names({**plain, "delay": 3}) == ["aiperf-trace"]
    assert names({"input_length": 10, "output_length": 4}) == ["aiperf-trace"]
    assert names({"text_input": "x", "output_length": 4}) == ["aiperf-trace"]
    assert names({"messages": [], "timestamp": 1}) == []
    assert names({**plain, "session_id": "s", "chat_id": 1}) == []
    assert names({"input_length": 10, "text_input": "x"}) == []
    assert names({"input_length": 10, "status": "ok"}) == []


def test_a_head_holds_only_the_first_ids_of_a_long_prompt():
    assert _trace_line.CUT_IDS == HEAD_ELEMENTS
    long = {"timestamp": 0, "input_length": 160_000, "output_length": 5, "hash_ids": list(range(HEAD_ELEMENTS))}
    assert names(long) == ["mooncake"]
    assert names(long, {**long, "input_length": 40, "hash_ids": [1, 2, 3]}) == ["vllm-timed-trace"]


def timed(*stamps, carry=None, ids=(1, 2, 3), **settings):
    lines = [
        json.dumps({"timestamp": t, "input_length": 33, "output_length": 5, "hash_ids": list(ids)}).encode()
        for t in stamps
    ]
    batch = Batch("a", lines, list(range(len(lines))), {} if carry is None else carry)
    return vllm_timed_trace.canonicalise(batch, Source("vllm-timed-trace", "x", **vllm_timed_trace.DEFAULTS | settings))


def test_timed_traces_count_seconds_and_chunks_of_16():
    assert timed(0, 3.5).rows["arrived_at"].diff()[1] == 3_500_000
    assert timed(0, 3.5, time_unit="ms").rows["arrived_at"].diff()[1] == 3_500
    assert timed(0, 3.5).rows["prefix_block_tokens"].to_list() == [16, 16]
    assert timed(0, block_tokens=512).rows["flags"].to_list() == [["assumed_origin", "hash_block_mismatch"]]


def test_block_ids_are_their_file_s_own():
    carry = {}
    here = [*timed(0, 1, carry=carry).rows["prefix_block_ids"], *timed(2, carry=carry).rows["prefix_block_ids"]]
    assert [ids.to_list() for ids in here] == [here[0].to_list()] * 3
    assert len(set(here[0])) == 3
    assert not set(here[0]) & set(timed(7).rows["prefix_block_ids"][0])
    given = {"session_id": "s", "input_length": 600, "hash_ids": [1, 2]}
    first, second = parse({**given, "timestamp": 0}, {**given, "delay": 1}).rows["prefix_block_ids"].to_list()
    assert first == second
    assert first != parse({**given, "timestamp": 5}).rows["prefix_block_ids"].to_list()[0]


def test_vidur_rows_are_read_by_header_name(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("num_decode_tokens,arrived_at,num_prefill_tokens,pd_ratio\n9,0.0,374,41.5\n5,1.25,396,79\n")
    for form in ("vidur", "auto"):
        assert counts(ingested(tmp_path / form, path, form=form, origin="2026-03-01T10:00:00Z")) == (2, 2, 0, 0)
        rows = lake(tmp_path / form)
        assert rows.select("prompt_tokens", "output_tokens").rows() == [(374, 9), (396, 5)]
        assert rows["arrived_at"].diff()[1].total_seconds() == 1.25


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "form", "prompt"), [("mooncake.jsonl", "mooncake", 56), ("mooncake-delta.jsonl", "aiperf-trace", 24)]
)
def test_traces_of_dynamo_s_replay(shared_dir, tmp_path, name, form, prompt):
    for given in (form, "auto"):
        result = ingested(tmp_path / given, shared_dir / FIXTURES / name, form=given)
        assert counts(result) == (2, 2, 0, 0)
        assert result.files[0].source == form
        assert lake(tmp_path / given)["prompt_tokens"].sum() == prompt


@pytest.mark.shared
def test_templates_of_aiperf_are_read_under_its_name_and_recognised(shared_dir, tmp_path):
    folder = shared_dir / "traces/formats/aiperf/aiperf/config/templates/data"
    for form in ("aiperf-trace", "mooncake", "auto"):
        assert counts(ingested(tmp_path / form, folder, form=form)) == (18, 18, 0, 0)
        assert lake(tmp_path / form)["prompt_tokens"].sum() == 10_480
