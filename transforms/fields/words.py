"""The words logs use for how a call ended and what it was, in our own few."""

from __future__ import annotations

from typing import Any

FINISH_STATUS = {
    # OpenAI, Anthropic StopReason, vLLM FinishReason, SGLang {"type": …}, Gemini (log_formats.md §5, §7; case 68)
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "abort": "aborted",
    "aborted": "aborted",
    "cancelled": "aborted",
    "canceled": "aborted",
    "error": "error",
    "failed": "error",
    "timeout": "timeout",
}
"""Finish reason, lower case -> status; every other word is an answer that ended well."""

REFUSALS = frozenset({"refusal", "content_filter", "safety"})
REFUSED = "refusal"

TOOL_REASONS = frozenset({"tool_use", "tool_calls", "function_call", "tool_call"})


def text(value: Any) -> str | None:
    """A name or id as text: numbers become their digits; None for null, "" and anything that is no name."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return None


def finish_word(value: Any) -> str | None:
    """The finish reason as one word, from a text, `{"type": word}` or a list of either (the first)."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("type") or value.get("reason")
    return value if isinstance(value, str) and value else None


def finish_status(word: str | None, flags: list[str]) -> str:
    """Status that follows from a finish reason alone; a refusal is ok with a flag."""
    if word is None:
        return "ok"
    lower = word.lower()
    if lower in REFUSALS:
        flags.append(REFUSED)
    return FINISH_STATUS.get(lower, "ok")


def failure_status(code: Any, words: str = "") -> str:
    """Status of a failed call from its HTTP code (number or text) and the class name of its error."""
    text, lower = str(code or "").strip(), words.lower()
    if text == "429" or "ratelimit" in lower:
        return "rejected"
    if text in ("408", "504") or "timeout" in lower:
        return "timeout"
    if text == "499" or "cancel" in lower or "disconnect" in lower:
        return "aborted"
    return "error"
