"""AIPerf's `mooncake_trace` input: float stamps in ms, sessions whose turns wait for the answer before them.

Source: aiperf 0.13 (dataset/loader/mooncake_trace.py, models.py). AIPerf sends with each turn all that was said before,
so a turn's `input_length` counts only what is new in it (`context_mode` deltas_without_responses, its own default with
sessions). A prompt that is shorter than the context before it (compaction) cannot be said so: it begins a session anew,
at its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from transforms.exports.traffic import Request

BLOCK_TOKENS = 512
CONTEXT_MODE = "deltas_without_responses"


class _Turn(NamedTuple):
    """The turn before: how often its session began anew, its whole context, and the end of its answer."""

    part: int
    context_tokens: int
    end_offset_us: int | None


def lines(requests: Iterable[Request]) -> Iterator[dict[str, Any]]:
    """One line a request: a stamp for the first turn of a session and lone requests, a delay for later turns."""
    before: dict[str, _Turn] = {}
    for request in requests:
        if request.session is None:
            yield _lone(request)
            continue
        yield _turn(request, request.session, before.get(request.session))
        before[request.session] = _after(request, before.get(request.session))


def _lone(request: Request) -> dict[str, Any]:
    has_ids = request.block_ids is not None and request.block_tokens == BLOCK_TOKENS
    return {
        "timestamp": request.offset_us / 1000,
        "input_length": request.prompt_tokens,
        "output_length": request.output_tokens,
        **({"hash_ids": request.block_ids} if has_ids else {}),
    }


def _turn(request: Request, session: str, before: _Turn | None) -> dict[str, Any]:
    after = _after(request, before)
    is_next = before is not None and after.part == before.part
    held = before.context_tokens if before is not None and is_next else 0
    end_us = before.end_offset_us if before is not None and is_next else None
    when = (
        {"timestamp": request.offset_us / 1000}
        if end_us is None
        else {"delay": max(request.offset_us - end_us, 0) / 1000}
    )
    return {
        "session_id": session if after.part == 0 else f"{session}#{after.part + 1}",
        **when,
        "input_length": request.prompt_tokens - held,
        "output_length": request.output_tokens,
        "context_mode": CONTEXT_MODE,
    }


def _after(request: Request, before: _Turn | None) -> _Turn:
    """What the next turn needs of this one; a prompt that adds nothing to the context before it begins anew."""
    part = before.part if before else 0
    if before and request.prompt_tokens <= before.context_tokens:
        part += 1
    return _Turn(part, request.prompt_tokens + request.output_tokens, request.end_offset_us)
