"""The shared cases of traces, provider bodies and engine logs, each with what EXPECTED.md says must come out."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest
from ingesting import counts, ingested, lake

from transforms.errors import InputError

pytestmark = pytest.mark.shared
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def case(shared_dir, tmp_path):
    """Ingest the case of that number; gives result and rows by file position."""
    folder = shared_dir / "cases" / "logs"

    def run(number, form, name=None, **settings):
        path = folder / name if name else next(folder.glob(f"{number}-*"))
        result = ingested(tmp_path / "home", path, form=form, **settings)
        return result, lake(tmp_path / "home").sort("source_file", "source_position")

    return run


@pytest.mark.parametrize("form", ["openai", "auto"])
def test_13_cached_tokens_are_inside_the_prompt(case, form):
    result, rows = case("13", form)
    assert counts(result) == (1, 1, 0, 0)
    assert rows.select("prompt_tokens", "cached_prompt_tokens").row(0) == (17_903, 17_817)


@pytest.mark.parametrize("form", ["anthropic", "auto"])
def test_14_cached_tokens_are_beside_the_prompt(case, form):
    result, rows = case("14", form)
    assert counts(result) == (1, 1, 0, 0)
    columns = ("prompt_tokens", "cached_prompt_tokens", "cache_write_tokens", "output_tokens")
    assert rows.select(columns).row(0) == (130_213, 128_955, 1253, 90)


@pytest.mark.parametrize("form", ["openai", "auto"])
def test_18_reasoning_is_inside_the_output(case, form):
    _, rows = case("18", form)
    assert rows.select("output_tokens", "reasoning_tokens").row(0) == (266, 261)
    assert rows["flags"].to_list() == [[]]


@pytest.mark.parametrize("form", ["openai", "auto"])
def test_20_streams_without_usage_have_unknown_tokens(case, form):
    result, rows = case("20", form, zero_usage="missing")
    assert counts(result) == (2, 2, 0, 0)
    assert rows.select("prompt_tokens", "output_tokens").rows() == [(None, None)] * 2
    assert rows["flags"].to_list() == [["usage_missing"]] * 2


@pytest.mark.parametrize("form", ["anthropic", "auto"])
def test_21_events_of_a_stream_are_one_request(case, form):
    result, rows = case("21", form)
    assert counts(result) == (1, 1, 0, 0)
    assert rows.select("prompt_tokens", "output_tokens", "status").row(0) == (25, 15, "ok")
    assert rows["arrived_at"].to_list() == [TEN]


@pytest.mark.parametrize("form", ["auto", "openai", "anthropic", "sglang", "tgi", "litellm", "codex", "weka"])
def test_38_vllms_text_log_serves_under_no_format(case, form):
    with pytest.raises(InputError, match=r"no tokens and no times per request.*otel.*gateway") as raised:
        case("38", form)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("form", "name"),
    [("mooncake", "mooncake_ms.jsonl"), ("bailian", "bailian_s.jsonl"), ("weka", "weka_s.json")],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_45_each_format_has_its_own_unit_of_time(case, form, name, is_named):
    result, rows = case("45", form if is_named else "auto", f"45-trace-time-units/{name}")
    assert result.files[0].source == form
    first, second = rows.sort("arrived_at")["arrived_at"]
    assert (second - first).total_seconds() == 3.0


def test_45_conversations(case):
    _, rows = case("45", "bailian", "45-trace-time-units/bailian_s.jsonl")
    assert rows.select("session_id", "turn").rows() == [("1", 1), ("1", 2)]


def test_45_tool_wait_is_think_time(case):
    _, rows = case("45", "weka", "45-trace-time-units/weka_s.json")
    rows = rows.sort("turn")
    assert rows["logged_tool_wait_s"].to_list() == [None, 2.0]
    assert rows["e2e_s"].to_list() == [1.0, 1.0]


@pytest.mark.parametrize("form", ["openai", "auto"])
def test_66_an_abort_under_http_200(case, form):
    _, rows = case("66", form)
    assert rows.select("status", "finish_reason").row(0) == ("aborted", "abort")


@pytest.mark.parametrize("form", ["sglang", "auto"])
def test_70_health_checks_are_synthetic(case, form):
    result, rows = case("70", form, timezone="UTC")
    assert counts(result) == (2, 2, 0, 0)
    assert ["synthetic" in flags for flags in rows["flags"]] == [True, False]
    columns = ("request_id", "prompt_tokens", "cached_prompt_tokens", "output_tokens", "e2e_s", "ttft_s", "status")
    assert rows.select(columns).row(1) == ("r1", 100, 64, 20, 2.0, 0.3, "ok")
    assert rows["arrived_at"].to_list()[1].second == 1


def test_70_local_stamps_without_a_zone_are_refused(case):
    with pytest.raises(InputError, match="no zone; say which with --timezone"):
        case("70", "sglang")


@pytest.mark.parametrize("form", ["auto", "codex", "claude-code", "openai", "weka", "kvledger"])
def test_73_a_trajectory_serves_under_no_format(case, form):
    with pytest.raises(InputError, match=r"no request times and no tokens per request.*gateway") as raised:
        case("73", form)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("form", ["auto", "sglang"])
def test_pickles_are_never_loaded(tmp_path, form):
    path = tmp_path / "dump.pkl"
    path.write_bytes(pickle.dumps([("obj", "out", 1.0, 2.0)]))
    with pytest.raises(InputError, match="is a Python pickle"):
        ingested(tmp_path / "home", path, form=form)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("output.jsonl", '{"instance_id":"a","history":[],"metrics":{"accumulated_cost":1}}\n', "no arrival times"),
        ("server.log", "INFO 11-29 10:00:00 [api_server.py:1] vLLM API server version 0.19.0\n", "format otel"),
        ("server.log", "INFO 02-15 10:00:00 metrics.py:455] Running: 3 reqs, Waiting: 0 reqs\n", "format otel"),
        ("a.traj", '{"trajectory":[],"history":[]}', "no request times"),
        ("usage.json", '{"object":"page","data":[],"has_more":false,"next_page":null}', "totals, not requests"),
        (
            "server.log",
            "[2026-03-01 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 9\n",
            "log-requests-format json",
        ),
        (
            "server.log",
            "[2026-03-01 10:00:00] Finish: obj=GenerateReqInput(rid='a'), out={}\n",
            "log-requests-format json",
        ),
        ("mini.json", '{"messages":[],"info":{},"trajectory_format":"mini-swe-agent-1"}', "without the times"),
        ("atif.json", '{"schema_version":"ATIF-v1.2","agent":{},"steps":[{"step_id":1}]}', "without the times"),
        ("chats.jsonl", '{"messages":[{"role":"user","content":"a"}]}\n' * 2, "are no traffic"),
        ("sharegpt.json", '[{"id":"a","conversations":[{"from":"human","value":"b"}]}]', "are no traffic"),
        (
            "access.log",
            '10.0.0.1 - - [02/Jan/2026:10:00:00 +0000] "POST /v1/chat/completions HTTP/1.1" 200 12 "-" "x" 0.5\n',
            "an access log has no tokens",
        ),
    ],
)
def test_other_logs_that_cannot_serve_say_what_would(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    for form in ("auto", "sglang"):
        with pytest.raises(InputError, match=words):
            ingested(tmp_path / "home", path, form=form)


def test_an_archive_of_sessions_is_to_be_unpacked(shared_dir, tmp_path):
    path = shared_dir / "traces" / "kv-cache-tester" / "traces_odd.tar.zst"
    with pytest.raises(InputError, match=r"is a tar archive; unpack it"):
        ingested(tmp_path / "home", path, form="weka")
