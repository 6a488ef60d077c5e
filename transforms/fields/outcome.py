"""How a call ended, from one cell of any kind: our own words, HTTP and OTel codes, booleans, error names.

A word that is not known is refused, never taken for an answer that went well.
"""

from __future__ import annotations

import re
from typing import Any

from transforms.canonical import STATUSES
from transforms.fields.words import FINISH_STATUS, REFUSALS, UNWRITTEN, failure_status, squeezed

NOT_A_STATUS = "status is not a word we know"

SILENT = frozenset(("unset", "none", "null", "nil", "na", "nan"))
"""What stands for no status: nothing went wrong that the log knows of."""
WORDS: dict[str, str] = {
    **{squeezed(word): status for word, status in FINISH_STATUS.items()},
    **dict.fromkeys(map(squeezed, REFUSALS), "ok"),
    **dict.fromkeys((
        # envelopes and gateways, OTel, finish reasons of answers that ended by themselves
        "ok", "okay", "success", "succeeded", "successful", "complete", "completed", "finished", "done", "passed",
        "answered", "processed", "noerror", "noerrors", "2xx", "cached", "cachehit", "stop", "stopsequence", "endturn",
        "eos", "eostoken", "toolcalls", "tooluse", "functioncall",
    ), "ok"),
    **dict.fromkeys(("truncated", "incomplete"), "length"),  # OpenAI's Responses: incomplete
    **dict.fromkeys((
        # HTTP reason phrases, gRPC codes (grpc.io, status codes), crashes
        "internal", "unavailable", "serviceunavailable", "badgateway", "badrequest", "notfound", "unauthorized",
        "unauthenticated", "forbidden", "permissiondenied", "invalid", "invalidargument", "invalidrequest",
        "failedprecondition", "alreadyexists", "outofrange", "unimplemented", "dataloss", "unprocessableentity",
        "connectionrefused", "connectionreset", "oom", "outofmemory", "crashed", "3xx", "4xx", "5xx",
    ), "error"),
    **dict.fromkeys(("timedout", "deadlineexceeded", "gatewaytimeout", "requesttimeout", "expired"), "timeout"),
    **dict.fromkeys((
        "rejected", "ratelimit", "ratelimited", "ratelimitexceeded", "throttled", "toomanyrequests", "quotaexceeded",
        "budgetexceeded", "resourceexhausted", "overloaded", "queuefull", "denied", "blocked", "limited",
        "contextlengthexceeded",
    ), "rejected"),
    **dict.fromkeys((
        "cancel", "cancelledbyuser", "canceledbyuser", "usercancelled", "clientclosed", "clientclosedrequest",
        "clientdisconnect", "clientdisconnected", "disconnected", "interrupted",
    ), "aborted"),
    **{status: status for status in STATUSES},
}  # fmt: skip
"""Squeezed word (lower case, letters and digits alone) -> status."""
PREFIXES = ("statuscode", "httpstatus", "finishreason", "status", "http")

_HTTP = re.compile(r"(?:https?(?:/\d(?:\.\d)?)?|status|code|response|error|[\s:=_(-])*([1-5]\d\d)(?!\w)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:\.0*)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_FAILED = re.compile(r"\b(?:err|errors?|exceptions?|fail(?:ed|ures?|s)?|fault)\b|(?:error|exception|failure|failed)\b")
_DENIED = re.compile(r"\b(?:no|not|non|never|without)\b")
_SAYS_WELL = ("success", "succeed", "complete")
_SAYS_BADLY = (
    "err", "exception", "fail", "cancel", "abort", "timeout", "timedout", "disconnect", "reject", "ratelimit",
    "throttl",
)  # fmt: skip


def outcome(value: Any, field_name: str) -> str | None:
    """One of STATUSES for a cell's value; None for null and for what stands for none; ValueError for any other word.

    Numbers are HTTP codes, 0 to 2 OTel's, negative ones aborts (Helicone). A boolean is read by the field's name: true
    under "is_error" is an error, under "cancelled" an abort, under "success" an answer; under "status" it says nothing.
    """
    if value is None:
        return None
    if not isinstance(value, str | int | float):
        raise ValueError(NOT_A_STATUS)  # noqa: TRY004 - one class for every unusable field
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return _of_boolean(text.lower() == "true", squeezed(field_name.rpartition(".")[2]))
    if _NUMBER.fullmatch(text):
        return _of_code(int(text.partition(".")[0]))
    return _of_word(text)


def _of_boolean(is_true: bool, name: str) -> str:
    if any(word in name for word in _SAYS_WELL) or name in ("ok", "isok"):
        return "ok" if is_true else "error"
    if any(word in name for word in _SAYS_BADLY):
        return failure_status(None, name) if is_true else "ok"
    raise ValueError(NOT_A_STATUS)


HTTP_FROM, REDIRECT_FROM, HTTP_ERROR_FROM, HTTP_END = 100, 300, 400, 600
OTEL_CODES = {0: "ok", 1: "ok", 2: "error"}


def _of_code(number: int) -> str:
    if number < 0:
        return "aborted"
    if HTTP_FROM <= number < HTTP_END:
        return "ok" if number < REDIRECT_FROM else failure_status(number)
    if number in OTEL_CODES:
        return OTEL_CODES[number]
    raise ValueError(NOT_A_STATUS)


def _of_word(text: str) -> str | None:
    word = squeezed(text)
    if word in SILENT or text in UNWRITTEN:
        return None
    for prefix in ("", *PREFIXES):
        if (bare := word.removeprefix(prefix)) in WORDS:
            return WORDS[bare]
        if prefix and word.startswith(prefix) and bare in SILENT:
            return None
    if code := _HTTP.match(text):
        return _of_code(int(code[1]))
    spaced = _CAMEL.sub(" ", text).lower()
    found = failure_status(None, word)
    if _DENIED.search(spaced) or (found == "error" and not _FAILED.search(spaced)):
        raise ValueError(NOT_A_STATUS)
    return found
