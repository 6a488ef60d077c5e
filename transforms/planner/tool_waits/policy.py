"""Tool-wait policies by name: what becomes of a session's KV from an answer that asks for tools to the next turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from transforms.fleet import Engine

AUTO, LRU, DROP, KEEP, TTL, OFFLOAD = "auto", "lru", "drop", "keep", "ttl", "offload"
WORDS = (AUTO, LRU, DROP, KEEP, f"{TTL}:SECONDS", OFFLOAD)


@dataclass(frozen=True)
class Policy:
    """One policy: `lru` leaves KV cached until evicted, `drop` caches nothing, the others keep or move it."""

    name: str
    ttl_s: float = 0.0
    """Seconds KV stays referenced; infinite: until the next turn, 0: not at all."""

    @property
    def text(self) -> str:
        """As a setting."""
        return f"{TTL}:{self.ttl_s:g}" if self.name == TTL else self.name


def today(engine: Engine) -> Policy:
    """What an engine does without being told: `lru` with prefix caching, else `drop`."""
    return Policy(LRU if engine.enable_prefix_caching else DROP)


def policy_of(text: str, engine: Engine) -> Policy:
    """Policy that a setting names, `auto` being the engine's own; ConfigError names the known ones."""
    return parsed(text) or today(engine)


def parsed(text: str) -> Policy | None:
    """Policy that a setting names, None for `auto`; ConfigError names the known ones."""
    name, separator, seconds = text.partition(":")
    if name == TTL:
        return Policy(TTL, _seconds(text, seconds))
    if separator or text not in WORDS:
        known = ", ".join(WORDS)
        raise ConfigError(f"tool_wait_policy = '{text}' must be one of {known}{nearest(name, [*WORDS, TTL])}")
    if text == AUTO:
        return None
    return Policy(text, math.inf if text == KEEP else 0.0)


def _seconds(text: str, seconds: str) -> float:
    try:
        ttl_s = float(seconds)
    except ValueError:
        ttl_s = math.nan
    if not 0 <= ttl_s < math.inf:
        raise ConfigError(f"tool_wait_policy = '{text}': write seconds of 0 or more, as in ttl:30")
    return ttl_s
