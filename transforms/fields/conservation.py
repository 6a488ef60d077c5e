"""What the sum of a call's token counts says about the source settings: flags where they cannot both be true."""

from __future__ import annotations

from dataclasses import dataclass

TOTAL_MISMATCH = "usage_total_mismatch"
"""The log's own total is not prompt + output, and no other setting would make it so."""

SETTING_DOUBTS = {
    f"{setting}_{fit}": (setting, fit)
    for setting in ("cached_tokens", "reasoning_tokens")
    for fit in ("inside", "outside")
}
"""Flags that prove a source setting wrong for a row: the setting, and the value under which the counts add up."""


@dataclass(frozen=True)
class Usage:
    """Token counts of one call as the log has them; None where it says nothing."""

    prompt: int | None = None
    cached: int | None = None
    written: int | None = None
    output: int | None = None
    reasoning: int | None = None
    total: int | None = None

    @property
    def is_missing(self) -> bool:
        """Whether neither a prompt nor an output count is known."""
        return self.prompt is None and self.output is None


def doubts(usage: Usage, cached_tokens: str, reasoning_tokens: str) -> list[str]:
    """Flags where the counts contradict the settings ("inside" or "outside").

    `cached_tokens_outside` and its three like: this setting would fit, the one in force cannot. Prompt and output here
    are the counts before what lies outside is added.
    """
    if usage.prompt is None:
        return []
    cached = (usage.cached or 0) + (usage.written or 0)
    is_over = cached_tokens == "inside" and cached > usage.prompt
    if usage.total is None or usage.output is None:
        return ["cached_tokens_outside"] if is_over else []
    reasoning = usage.reasoning or 0
    fits = [
        (c, r)
        for c in ("inside", "outside")
        for r in ("inside", "outside")
        if usage.total == usage.prompt + usage.output + cached * (c == "outside") + reasoning * (r == "outside")
        and not (c == "inside" and cached > usage.prompt)
        and not (r == "inside" and reasoning > usage.output)
    ]
    if (cached_tokens, reasoning_tokens) in fits:
        return []
    if not fits:
        return [TOTAL_MISMATCH, *(["cached_tokens_outside"] if is_over else [])]
    best = min(fits, key=lambda pair: (pair[0] != cached_tokens) + (pair[1] != reasoning_tokens))
    told = zip(("cached_tokens", "reasoning_tokens"), best, (cached_tokens, reasoning_tokens), strict=True)
    return [f"{name}_{fit}" for name, fit, given in told if fit != given]
