"""How versions of vLLM schedule, as a table of what changed when; a version nobody has read is an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from transforms.planner.memory.kv_versions import VLLM, Version, known_version


@dataclass(frozen=True)
class EngineRules:
    """Rules of the scheduler that are not settings but follow from the engine's version."""

    reserve_full_prompt: bool = False
    """A request is admitted only if its whole prompt fits the free blocks now, not just its first chunk."""
    lone_request_exempt: bool = False
    """`long_prefill_token_threshold` does not bind a request that is alone in the engine."""
    async_lag_steps: int = 0
    """Steps for which a finished request still holds its seat and its blocks."""


# vLLM's v1/core/sched/scheduler.py and config/scheduler.py, by the first version read that has the change: 0.11 knows
# no scheduler_reserve_full_isl and schedules in step with the results; 0.19 has both on by default. A lone request is
# exempt since vllm-project/vllm pull request 57951 (September 2026), first in 0.33.
_CHANGES: tuple[tuple[Version, dict[str, Any]], ...] = (
    ((0, 19), {"reserve_full_prompt": True, "async_lag_steps": 1}),
    ((0, 33), {"lone_request_exempt": True}),
)


def engine_rules(version: str | None = None) -> EngineRules:
    """Scheduling rules of vLLM at `version`, the newest known if None; CatalogError says which versions are known."""
    found = known_version(VLLM, version)
    rules = EngineRules()
    for since, changes in _CHANGES:
        if since <= found:
            rules = replace(rules, **changes)
    return rules
