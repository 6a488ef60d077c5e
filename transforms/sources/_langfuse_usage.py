"""Token counts of a Langfuse observation: named buckets that do not overlap, and what older exports have instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.fields.conservation import Usage, doubts
from transforms.fields.decode import inner
from transforms.fields.numbers import count
from transforms.fields.usage import USAGE_MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Source
    from transforms.sources._nodes import Row

PROMPTS = frozenset(("prompt", "prompttokens", "prompt_tokens"))
OUTPUTS = frozenset(("completion", "completiontokens", "completion_tokens"))
TOTALS = frozenset(("total", "totaltokens", "total_tokens"))
SUMS = (
    ("input", ("inputUsage", "promptTokens")),
    ("output", ("outputUsage", "completionTokens")),
    ("total", ("totalUsage", "totalTokens")),
)
_UPPER = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SNAKE: dict[str, str] = {}


@dataclass
class Buckets:
    """Tokens by what their bucket is named; None where no bucket says.

    `cached`, `written` and `reasoning` are all that names say of them; the `own_` ones those in buckets of their own,
    beside `prompt` and `output`: a breakdown such as prompt_details.cache_read lies inside its whole.
    """

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    total: int | None = None
    own_cached: int = 0
    own_written: int = 0
    own_reasoning: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether any token is counted."""
        return any((self.prompt, self.output, self.cached, self.written, self.reasoning))

    def columns(self, source: Source, flags: list[str]) -> Row:
        """The token columns of the lake under the settings of `source`, with flags where the total contradicts them."""
        cached_tokens, reasoning_tokens = source.cached_tokens or "outside", source.reasoning_tokens or "outside"
        prompt, output = self.prompt, self.output
        own = Usage(prompt, self.own_cached, self.own_written, output, self.own_reasoning, self.total)
        if not self.is_counted and prompt is None and output is None:
            flags.append(USAGE_MISSING)
        flags += doubts(own, cached_tokens, reasoning_tokens)
        if cached_tokens == "outside" and (self.own_cached or self.own_written):
            prompt = (prompt or 0) + self.own_cached + self.own_written
        if reasoning_tokens == "outside" and self.own_reasoning:
            output = (output or 0) + self.own_reasoning
        return {
            "prompt_tokens": prompt,
            "cached_prompt_tokens": self.cached,
            "cache_write_tokens": self.written,
            "output_tokens": output,
            "reasoning_tokens": self.reasoning,
        }


def value_of(observation: Mapping[str, Any], name: str) -> Any:
    """The field `name` (in camelCase), or the same field in snake_case; "" is None."""
    value = observation.get(name)
    if value is None:
        snake = _SNAKE.setdefault(name, _UPPER.sub("_", name).lower())
        value = observation.get(snake)
    return None if value == "" else value


def buckets_of(observation: Mapping[str, Any], flags: list[str]) -> Buckets:
    """The usage buckets of an observation, else its older usage object, else the sums that stand beside them.

    ValueError with a fixed reason where a count is no whole number.
    """
    for name in ("usageDetails", "providedUsageDetails", "usage"):
        held = inner(value_of(observation, name))
        if isinstance(held, dict) and str(held.get("unit") or "TOKENS").upper() == "TOKENS":
            buckets = _sorted_out(held, flags)
            if buckets.is_counted:
                return buckets
    sums = {
        bucket: next((value for name in names if (value := value_of(observation, name))), None)
        for bucket, names in SUMS
    }
    found = _sorted_out(sums, flags)
    return found if found.is_counted else Buckets()


def _sorted_out(held: Mapping[str, Any], flags: list[str]) -> Buckets:
    out = Buckets()
    for key, value in held.items():
        name = key.lower()
        part = _part(name)
        number = None if part is None or "cost" in name else count(value, flags)
        if part is None or number is None:
            continue
        setattr(out, part, (getattr(out, part) or 0) + number)
        is_own = ("input" if part in ("cached", "written") else "output") in name
        if is_own and part in ("cached", "written", "reasoning"):
            setattr(out, f"own_{part}", getattr(out, f"own_{part}") + number)
    return out


def _part(name: str) -> str | None:
    """Which count a bucket's lower-case name belongs to."""
    if name in TOTALS:
        return "total"
    if "cache" in name:
        return "written" if "creation" in name or "write" in name else "cached"
    if "reasoning" in name or "thought" in name:
        return "reasoning"
    if "input" in name or name in PROMPTS:
        return "prompt"
    return "output" if "output" in name or name in OUTPUTS else None
