"""What goes out of a request, and how its stamp counts: microseconds since the origin of the export."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """One request that reached a backend, by its last attempt; offsets in microseconds since the export's origin."""

    offset_us: int
    end_offset_us: int | None
    """End of the response; None where it is unknown."""
    session: str | None
    """Session, and the sub-agent inside it; None outside one."""
    prompt_tokens: int
    cached_prompt_tokens: int | None
    output_tokens: int
    block_tokens: int | None
    block_ids: list[int] | None
    """Chained hashes of the prompt's blocks of `block_tokens` tokens, where the log has them."""
    is_last_of_session: bool


COLUMNS = Request._fields
"""Columns, in order, of the rows that an export reads."""
