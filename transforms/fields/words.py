"""The words logs use for how a call ended and what it was, in our own few."""

from __future__ import annotations

import re
from typing import Any

from transforms.fields.decode import inner

FINISH_STATUS = {
    # OpenAI, Anthropic StopReason, vLLM FinishReason, SGLang {"type": …}, Gemini (log_formats.md §5, §7; case 68)
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "max_length": "length",
    "max_new_tokens": "length",
    "token_limit": "length",
    "truncated": "length",
    "abort": "aborted",
    "aborted": "aborted",
    "cancelled": "aborted",
    "canceled": "aborted",
    "error": "error",
    "failed": "error",
    "timeout": "timeout",
    "timed_out": "timeout",
    "insufficient_system_resource": "error",  # DeepSeek
    "malformed_function_call": "error",  # Gemini
}
"""Finish reason, lower case with underscores -> status; others are an answer that ended well, unless they say error."""

REFUSALS = frozenset(
    # OpenAI, Anthropic, Bedrock, Gemini
    (
        "refusal",
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "blocklist",
        "prohibited_content",
    )
)
REFUSED = "refusal"

TOOL_REASONS = frozenset({"tool_use", "tool_calls", "function_call", "tool_call"})


UNNAMED = frozenset(("", "-", "null", "none", "nan", "n/a"))
"""What loggers and data frames write for no name, lower case: never the id of a session or of a request."""


def text(value: Any) -> str | None:
    """A name or id as text: numbers become their digits; None for null, words of UNNAMED and what is no name."""
    if isinstance(value, str):
        bare = value.strip()
        return None if bare.lower() in UNNAMED else bare
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None if value != value else str(value)  # noqa: PLR0124 - NaN
    return None


def finish_word(value: Any) -> str | None:
    """The finish reason as one word, from a text, `{"type": word}`, a list of either (the first), or their JSON text.

    A list may also be written as Python prints it, as in a CSV of pandas.
    """
    value = inner(value)
    if isinstance(value, str) and value.startswith("['"):
        value = value[2:].partition("'")[0]
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("type") or value.get("reason")
    return value if isinstance(value, str) and value else None


def finish_status(word: str | None, flags: list[str]) -> str:
    """Status that follows from a finish reason alone; a refusal is ok with a flag."""
    if word is None:
        return "ok"
    lower = word.strip().lower().replace("-", "_").rpartition(".")[2]  # enums are written as FinishReason.STOP
    if lower in REFUSALS:
        flags.append(REFUSED)
    if lower in FINISH_STATUS:
        return FINISH_STATUS[lower]
    return failure_status(None, lower) if _FAILED.search(lower) else "ok"


_FAILED = re.compile(r"(?:^|_)(?:error|exception|failure|failed)(?:_|$)")
UNWRITTEN = frozenset(("", "-"))
"""What access logs write where there is nothing."""
_BESIDE_WORDS = re.compile(r"[^a-z0-9]")


def squeezed(word: str) -> str:
    """The word's lower-case letters and digits: one form of rate_limited, Rate-Limited and RateLimited."""
    return _BESIDE_WORDS.sub("", word.lower())


REJECTED_CODES = frozenset(("429", "529"))  # 529: Anthropic, overloaded
TIMEOUT_CODES = frozenset(("408", "504", "522", "524", "598", "599"))  # 52x: Cloudflare
ABORTED_CODES = frozenset(("499", "460"))  # nginx, AWS load balancer: the client left
REJECTED_WORDS = ("ratelimit", "toomanyrequests", "throttl", "reject")
TIMEOUT_WORDS = ("timeout", "timedout", "deadlineexceeded")
ABORTED_WORDS = ("cancel", "disconnect", "abort", "clientclosed")


def failure_status(code: Any, words: str = "") -> str:
    """Status of a failed call from its HTTP code (number or text) and the class name of its error."""
    text, said = str(code or "").strip(), squeezed(words)
    if text in REJECTED_CODES or any(word in said for word in REJECTED_WORDS):
        return "rejected"
    if text in TIMEOUT_CODES or any(word in said for word in TIMEOUT_WORDS):
        return "timeout"
    if text in ABORTED_CODES or any(word in said for word in ABORTED_WORDS):
        return "aborted"
    return "error"
