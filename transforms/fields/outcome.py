"""How a call ended, from one cell of any kind: our own words, HTTP and OTel codes, booleans, error names."""

from __future__ import annotations

from typing import Any

from transforms.canonical import STATUSES
from transforms.fields.words import FINISH_STATUS, failure_status

WELL = frozenset(
    {"", "ok", "success", "succeeded", "successful", "completed", "complete", "finished", "unset", "200", "-"}
)
BADLY = frozenset({"error", "failure", "failed", "err", "exception"})
OTEL_ERROR = 2
HTTP_FROM, HTTP_ERROR_FROM = 100, 400


def outcome(value: Any, field_name: str) -> str | None:
    """One of STATUSES for a cell's value; None for null and for what says nothing about an end.

    A boolean is read by the field's name: true under "is_error" is an error, under "cancelled" an abort, under
    "success" an answer. Numbers from 100 are HTTP codes, 0 to 2 OTel status codes, negative ones aborts (Helicone).
    """
    if value is None:
        return None
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return _of_boolean(word == "true", field_name.rpartition(".")[2].lower())
    try:
        return _of_number(float(word))
    except ValueError:
        return _of_word(word.removeprefix("status_code_"))


def _of_boolean(is_true: bool, name: str) -> str:
    if "success" in name or name in ("ok", "is_ok", "completed"):
        return "ok" if is_true else "error"
    if not is_true:
        return "ok"
    return failure_status(None, name)


def _of_number(number: float) -> str | None:
    if number != number:  # noqa: PLR0124 - NaN
        return None
    if number < 0:
        return "aborted"
    if number < HTTP_FROM:
        return "error" if number == OTEL_ERROR else "ok"
    return "ok" if number < HTTP_ERROR_FROM else failure_status(int(number))


def _of_word(word: str) -> str | None:
    if word in STATUSES:
        return word
    if word in WELL:
        return "ok"
    if word in BADLY or "error" in word or "exception" in word or "fail" in word:
        return failure_status(None, word)
    if word in FINISH_STATUS:
        return FINISH_STATUS[word]
    found = failure_status(None, word)
    return found if found != "error" else None
