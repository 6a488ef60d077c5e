"""Ids of the blocks of each prompt in the size a format wants: the log's own, or made of what a session repeats.

A block's id stands for all that comes before it too. Ids of the log in the wanted size stay as they are; of larger
blocks each is split, of smaller ones every n-th is kept. In a session without ids a prompt begins with the one before
it and that one's output, as far as it is longer; a shorter prompt (compaction) shares what the engine found cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from transforms.exports.traffic import Request

MASK = 2**64 - 1
FIRST_MADE = 2**32
"""First id of our making: above the counters that traces use for theirs."""


class _Session:
    """The context a session holds after a turn: its length in tokens, the prompt in it, and its whole blocks."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.context_tokens = 0
        self.ids: list[int] = []


def with_blocks(requests: Iterable[Request], block_tokens: int) -> Iterator[Request]:
    """Each request with one id per started block of `block_tokens` tokens; without where the log's do not divide so."""
    sessions: dict[str, _Session] = {}
    made = FIRST_MADE
    for request in requests:
        if request.block_ids is not None and request.block_tokens:
            ids = resized(request.block_ids, request.block_tokens, block_tokens, request.prompt_tokens)
        else:
            session = sessions.pop(request.session or "", None) or _Session()
            ids = _continued(session, request, block_tokens, made)
            made += len(session.ids)
            if request.session is not None and not request.is_last_of_session:
                sessions[request.session] = session
        yield request._replace(block_tokens=block_tokens, block_ids=ids)


def resized(ids: list[int], from_tokens: int, to_tokens: int, prompt_tokens: int) -> list[int] | None:
    """One id per started block of `to_tokens` of the prompt; None where the two sizes do not divide."""
    if from_tokens == to_tokens:
        return ids
    blocks = -(-prompt_tokens // to_tokens)
    if from_tokens % to_tokens == 0:
        parts = from_tokens // to_tokens
        return [(ids[i // parts] * parts + i % parts) & MASK for i in range(blocks)]
    if to_tokens % from_tokens == 0:
        parts = to_tokens // from_tokens
        return [ids[min((i + 1) * parts, len(ids)) - 1] for i in range(blocks)]
    return None


def _continued(session: _Session, request: Request, block_tokens: int, made: int) -> list[int]:
    """Ids of a turn: those of the whole blocks it shares with the turn before it, then new ones from `made` on."""
    is_longer = request.prompt_tokens >= session.prompt_tokens
    held = session.context_tokens if is_longer else request.cached_prompt_tokens or 0
    shared = min(held, session.context_tokens, request.prompt_tokens) // block_tokens
    kept = session.ids[:shared]
    context_tokens = request.prompt_tokens + request.output_tokens
    new = -(-context_tokens // block_tokens) - len(kept)
    ids = kept + list(range(made, made + new))
    session.prompt_tokens, session.context_tokens, session.ids = request.prompt_tokens, context_tokens, ids
    return ids[: -(-request.prompt_tokens // block_tokens)]
