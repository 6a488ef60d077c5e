"""Words for how a call ended, what it was and who answered: the known ones, and that no other is believed."""

from __future__ import annotations

import pytest

from transforms.canonical import OPERATIONS, SERVED_BY, STATUSES
from transforms.fields.kinds import CALLS, NOT_A_SERVER, SERVERS, operation_of, server_of
from transforms.fields.outcome import NOT_A_STATUS, WORDS, outcome
from transforms.fields.words import finish_status

OF_STATUS = {
    "ok": [
        "success", "OK", "200", 200, "200 OK", 200.0, "201", "HTTP/1.1 200 OK", "2xx", "STATUS_CODE_OK", 0, 1,
        "no_error", "completed", "end_turn", "FinishReason.STOP",
    ],
    "length": ["max_tokens", "length", "incomplete"],
    "error": [
        "503 Service Unavailable", "HTTP 500", "http_502", "status: 404", 2, "5xx", "302", "failure", "Bad Gateway",
        "UNAVAILABLE", "litellm.exceptions.APIConnectionError", "internalServerError", "model error",
    ],
    "timeout": ["timed_out", "DEADLINE_EXCEEDED", "504 Gateway Time-out", "APITimeoutError", "408", 524],
    "rejected": ["rate_limited", "429 Too Many Requests", "RateLimitError", "throttled", "529", "RESOURCE_EXHAUSTED"],
    "aborted": ["client_closed", "cancelled", "CANCELED", 499, "Client Closed Request", "client disconnected", -3],
}  # fmt: skip


@pytest.mark.parametrize(("status", "written"), [(s, w) for s, words in OF_STATUS.items() for w in words])
def test_status_in_the_words_of_gateways(status, written):
    assert outcome(written, "status") == status


@pytest.mark.parametrize("written", [None, "", "-", "UNSET", "none", "STATUS_CODE_UNSET"])
def test_no_status_says_nothing(written):
    assert outcome(written, "status") is None


@pytest.mark.parametrize(
    "written",
    ["banana", "in_progress", "pending", "unknown", "600", 7, "2026-03-01", "completed without errors", "not failed",
     "failover", True, False, "true", ["ok"], {"code": 200}],
)  # fmt: skip
def test_any_other_word_is_refused_and_not_quoted(written):
    with pytest.raises(ValueError, match=f"^{NOT_A_STATUS}$"):
        outcome(written, "result.status")


@pytest.mark.parametrize(
    ("name", "if_true", "if_false"),
    [
        ("is_error", "error", "ok"), ("cancelled", "aborted", "ok"), ("resp.timed_out", "timeout", "ok"),
        ("success", "ok", "error"), ("rejected", "rejected", "ok"), ("rate_limited", "rejected", "ok"),
    ],
)  # fmt: skip
def test_a_boolean_is_read_by_the_name_of_its_field(name, if_true, if_false):
    assert [outcome(value, name) for value in (True, "True", False, "false")] == [if_true] * 2 + [if_false] * 2


def test_finish_reasons_are_free_text_unless_they_tell_of_an_end():
    flags: list[str] = []
    told = {
        "MAX_TOKENS": "length", "FinishReason.MAX_TOKENS": "length", "max-tokens": "length", "something_new": "ok",
        "engine_error": "error", "timed_out": "timeout", "CANCELLED": "aborted", "rate_limit_error": "rejected",
    }  # fmt: skip
    assert {word: finish_status(word, flags) for word in told} == told
    assert flags == []
    assert (finish_status("PROHIBITED_CONTENT", flags), flags) == ("ok", ["refusal"])


def test_operations_by_call_type_method_and_path():
    told = {
        "chat": ["chat.completions", "acompletion", "text_completion", "/v1/chat/completions", "POST /v1/messages",
                 "models/gemini:generateContent", "https://host/openai/v1/responses?stream=1", "ChatCompletion"],
        "embedding": ["embeddings", "aembedding", "/v1/embeddings"],
        "rerank": ["arerank"], "moderation": ["moderations"], "batch": ["acreate_batch", "/v1/batches"],
        "other": ["aimage_generation", "/v1/audio/transcriptions", "execute_tool"],
        "": ["banana", "chatty", "a"],
        None: [None, "", "none"],
    }  # fmt: skip
    for operation, names in told.items():
        assert [operation_of(name) for name in names] == [operation] * len(names)


def test_who_answered():
    assert [server_of(word) for word in ("backend", "MISS", "upstream", None)] == ["backend"] * 3 + [None]
    assert [server_of(word) for word in ("gateway_cache", "cache", "Cache-Hit", "HIT")] == ["gateway_cache"] * 4
    for written in ("banana", "gateway", True, 1):
        with pytest.raises(ValueError, match=f"^{NOT_A_SERVER}$"):
            server_of(written)


def test_every_word_is_one_of_the_lake_s():
    assert set(WORDS.values()) == set(STATUSES)
    assert set(SERVERS.values()) == set(SERVED_BY)
    assert set(CALLS.values()) == set(OPERATIONS)
