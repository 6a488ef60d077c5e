"""What a max_model_len costs in requests, sessions and tokens: main turns and sub-agents' calls apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.whatif.context_limit import NONE, Fate, limited

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.whatif.context_limit import Limited, LimitRules, Turns

REFUSED = (Fate.PROMPT_TOO_LONG, Fate.REQUESTED_TOO_LONG)


def limit_counts(turns: Turns, found: Limited, rules: LimitRules) -> dict[str, int | float | None]:
    """Counts of `found` by column of plan_scenarios; sub-agents' calls stand in columns of their own."""
    is_sub = turns.agent > 0
    is_refused = np.isin(found.fate, REFUSED)
    is_lost = found.fate == Fate.LOST
    cut_tokens = np.where(is_refused | is_lost, turns.output_tokens, 0)
    over_tokens = np.where(found.is_served, turns.output_tokens - found.output_tokens, 0)
    asked_tokens = int(turns.output_tokens.sum())
    ended = turns.session[is_refused & ~is_sub & (turns.session != NONE)]

    def main(chosen: NDArray[np.bool_]) -> int:
        return int((chosen & ~is_sub).sum())

    return {
        "offered_requests": len(found.fate),
        "rejected_requests": main(is_refused),
        "prompt_too_long_requests": main(found.fate == Fate.PROMPT_TOO_LONG),
        "requested_too_long_requests": main(found.fate == Fate.REQUESTED_TOO_LONG),
        "clamped_requests": main(found.is_clamped),
        "compacted_requests": main(found.is_compacted),
        "lost_requests": main(is_lost),
        "sessions_cut": len(np.unique(ended)),
        "truncated_requests": main(over_tokens > 0),
        "lost_cut_tokens": int(cut_tokens[~is_sub].sum()),
        "lost_truncated_tokens": int(over_tokens[~is_sub].sum()),
        "sub_agent_rejected_requests": int((is_refused & is_sub).sum()),
        "sub_agent_lost_requests": int((is_lost & is_sub).sum()),
        "sub_agent_truncated_requests": int(((over_tokens > 0) & is_sub).sum()),
        "sub_agent_lost_tokens": int((cut_tokens + over_tokens)[is_sub].sum()),
        "served_output_ratio": int(found.output_tokens.sum()) / asked_tokens if asked_tokens else None,
        **_clamp_saves(turns, found, rules),
    }


def _clamp_saves(turns: Turns, found: Limited, rules: LimitRules) -> dict[str, int]:
    """Requests and output tokens that would be served were the caller's limit clamped; 0 where none is refused."""
    saved = {"clamp_saves_requests": 0, "clamp_saves_tokens": 0}
    if not (found.fate == Fate.REQUESTED_TOO_LONG).any():
        return saved
    clamped = limited(turns, replace(rules, requested_output="clamp"))
    saved["clamp_saves_requests"] = int(clamped.is_served.sum() - found.is_served.sum())
    saved["clamp_saves_tokens"] = int(clamped.output_tokens.sum() - found.output_tokens.sum())
    return saved


def raised_limit(turns: Turns, today: int | None, limit: int | None) -> dict[str, Any]:
    """Outputs that today's max_model_len ended and a higher one lets go on: how many, and the most they could add.

    How long they would have been nobody knows: between no further token and the new limit (never past the caller's).
    """
    if today is None or (limit is not None and limit <= today):
        return {"extendable_requests": 0, "extension_max_tokens": 0}
    total = turns.prompt_tokens + turns.output_tokens
    ended = (total >= today - 1) & (turns.prompt_tokens < today) & turns.was_answered
    room = np.full(len(total), np.iinfo(np.int32).max) if limit is None else limit - total
    own = np.where(turns.requested_tokens >= 0, turns.requested_tokens - turns.output_tokens, room)
    more = np.maximum(np.minimum(room, own), 0)
    can_go_on = ended & (more > 0)
    most = int(more[can_go_on].sum()) if limit is not None else None
    return {"extendable_requests": int(can_go_on.sum()), "extension_max_tokens": most}


def log_clamps(turns: Turns, today: int | None) -> bool:
    """Whether the log shows that today's front end does not refuse a caller's limit that does not fit.

    It has answered requests whose prompt and limit are together above max_model_len.
    """
    if today is None:
        return False
    is_over = (turns.requested_tokens >= 0) & (turns.prompt_tokens + turns.requested_tokens > today)
    return bool((is_over & (turns.prompt_tokens < today) & turns.was_answered).any())
