"""What a replay is asked beside the engine's own settings, and `--set key=value` for both."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from transforms.errors import ConfigError, nearest, nearest_few
from transforms.fleet import Engine
from transforms.planner.tool_waits.policy import parsed
from transforms.setting_values import hinted_kind, read_setting, value_words

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUTERS = ("round_robin", "random", "least_outstanding", "session_affinity", "prefix_affinity")
CACHING = ("auto", "off", "block_ids", "session")
REQUESTED = ("ignore", "reject", "clamp")
RANK_ROUTER = "least_outstanding"
"""vLLM's front end sends a request to the data-parallel rank with the fewest waiting and running, whatever a rank has
cached (docs/serving/data_parallel_deployment.md, internal load balancing)."""
SCALE_MODES = ("sessions", "compress")
WORDS = {"router": ROUTERS, "prefix_caching_by": CACHING, "requested_output": REQUESTED, "scale_mode": SCALE_MODES}


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay; None leaves a value to the engine's release or the KV account."""

    replicas: int = 1
    router: str = "round_robin"
    affinity_slack_requests: int = 32
    kv_blocks: int | None = None
    """Blocks of one replica, as the engine's log counts them."""
    prefix_caching_by: str = "auto"
    """What prefix caching goes by: the trace's blocks, else its sessions."""
    reserve_full_prompt: bool | None = None
    lone_request_exempt: bool | None = None
    async_lag_steps: int | None = None
    watermark_ratio: float = 0.0
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    timeout_s: float | None = None
    acceptance_ratio: float = 0.0
    """Share of drafted tokens that are accepted."""
    requested_output: str = "reject"
    """What becomes of prompt + requested output above max_model_len."""
    tool_wait_policy: str = "auto"
    """What becomes of a session's KV while its tools run: lru, drop, keep, ttl:SECONDS or offload."""
    autoscale_max_replicas: int | None = None
    """Most replicas of a fleet that grows and shrinks from `replicas` on; None: the fleet is fixed."""
    autoscale_min_replicas: int = 1
    autoscale_start_up_s: float = 120.0
    autoscale_out_ratio: float = 0.7
    autoscale_in_ratio: float = 0.3
    autoscale_in_after_s: float = 1800.0
    autoscale_forecast_s: float = 600.0
    autoscale_backlog_s: float = 300.0
    failure_ends_session: bool = True
    carry_calibration: bool = False
    """Take a calibration of another model, GPU or layout over by what it changed against the catalog's values."""
    rate_scale: float = 1.0
    """Times as many arrivals."""
    scale_mode: str = "sessions"
    seed: int = 0
    ttft_p95_s: float = 2.0
    """Objective of the sustainable rate."""
    tpot_p95_s: float = 0.05


def usual_router(engine: Engine, between_replicas: str) -> str:
    """Router in front of engines where nobody names one: `between_replicas`, and for data-parallel ranks vLLM's own."""
    return between_replicas if engine.data_parallel_size == 1 else RANK_ROUTER


def with_settings(
    engine: Engine, options: ReplayOptions, settings: Sequence[str], known_too: Sequence[str] = ()
) -> tuple[Engine, ReplayOptions, set[str]]:
    """Engine and options with each `key=value` of `settings` put in, and the engine's keys among them.

    ConfigError names the nearest keys, `known_too` among them, or what a value must be.
    """
    values: dict[type, dict[str, Any]] = {Engine: {}, ReplayOptions: {}}
    hints = {kind: get_type_hints(kind) for kind in values}
    known = {f.name: kind for kind in values for f in fields(kind)}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or key not in known:
            what = "must be key=value" if not separator else f"unknown key '{key}'"
            words = sorted({*known, *known_too})
            listed = f"(kvledger replay --set help lists all {len(words)})"
            raise ConfigError(f"--set {setting}: {what}{nearest_few(key, words)} {listed}")
        kind = known[key]
        values[kind][key] = _typed(key, text, hints[kind][key])
    changed = replace(options, **values[ReplayOptions])
    check_options(changed)
    return replace(engine, **values[Engine]), changed, set(values[Engine])


def check_options(options: ReplayOptions) -> None:
    """Raise ConfigError where an option has a value it cannot have."""
    for key, words in WORDS.items():
        value = getattr(options, key)
        if value not in words:
            raise ConfigError(f"{key} = '{value}' must be one of {', '.join(words)}{nearest(value, words)}")
    parsed(options.tool_wait_policy)
    check_autoscaling(options)
    for key in ("replicas", "kv_blocks", "rate_scale", "timeout_s", "ttft_p95_s", "tpot_p95_s"):
        value = getattr(options, key)
        if value is not None and not value > 0:
            raise ConfigError(f"{key} = {value} must be above zero")
    for key in ("watermark_ratio", "acceptance_ratio"):
        if not 0 <= getattr(options, key) <= 1:
            raise ConfigError(f"{key} = {getattr(options, key)} must lie in 0 … 1")
    for key in ("max_num_queued_reqs", "max_num_queued_tokens", "affinity_slack_requests", "seed"):
        if (getattr(options, key) or 0) < 0:
            raise ConfigError(f"{key} = {getattr(options, key)} must not be negative")


def check_autoscaling(options: ReplayOptions) -> None:
    """Raise ConfigError where an autoscaler could not work by its rules."""
    most, least = options.autoscale_max_replicas, options.autoscale_min_replicas
    if least < 1 or (most is not None and most < max(least, options.replicas)):
        raise ConfigError(
            f"autoscale_max_replicas = {most} and autoscale_min_replicas = {least}: from 1 up, and the most not fewer "
            f"than the least or than replicas = {options.replicas}"
        )
    if not 0 <= options.autoscale_in_ratio < options.autoscale_out_ratio <= 1:
        raise ConfigError("autoscale_in_ratio must lie below autoscale_out_ratio, both in 0 … 1")
    for key in ("start_up_s", "in_after_s", "forecast_s", "backlog_s"):
        if not getattr(options, f"autoscale_{key}") >= 0:
            raise ConfigError(f"autoscale_{key} = {getattr(options, f'autoscale_{key}')} must not be negative")


def _typed(key: str, text: str, hint: Any) -> Any:
    return read_setting(text, hinted_kind(hint), f"--set {key}={text}:")


def option_kinds() -> dict[str, str]:
    """Key of the engine or the replay → what its value is, in words, by name."""
    hints = get_type_hints(Engine) | get_type_hints(ReplayOptions)
    return {key: value_words(hints[key], WORDS.get(key, ())) for key in sorted(hints)}
