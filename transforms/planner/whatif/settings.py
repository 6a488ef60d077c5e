"""What a scenario may set: every key of the engine, objective, planning, replay and refusals, in one list.

The list is made of the dataclasses that hold the settings, so a new option of the engine or the replay is one here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from transforms.errors import ConfigError, nearest, nearest_few
from transforms.fleet import Deployment, Engine, Planning, Slo
from transforms.fleet_limits import DEPLOYMENT, ENGINE, PLANNING, SLO, Limit
from transforms.planner.replay.replay_options import WORDS, ReplayOptions, check_options, usual_router
from transforms.planner.whatif.context_limit import REJECTED_TURNS, REQUESTED
from transforms.setting_values import as_kind, hinted_kind, read_setting, value_words

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBERS = (int, float)


@dataclass(frozen=True)
class Refusals:
    """What a scenario says of refused turns, beside the replay's own options."""

    requested_output: str | None = None
    """reject, clamp or ignore; None: as the log shows it (reject, unless it has served what would be refused)."""
    rejected_turn: str = "abort"
    compact_ratio: float = 0.5


_LEFT_TO_OTHERS: Mapping[type, tuple[str, ...]] = {
    Deployment: ("name", "serves", "calibration", "engine", "slo", "given"),
    Planning: ("timezone",),
    ReplayOptions: ("replicas", "kv_blocks", "requested_output", "ttft_p95_s", "tpot_p95_s", "failure_ends_session"),
}
"""Fields that are no setting of a scenario: the fleet file, the engine, the objective or `Refusals` have them."""

TOGETHER = "autoscale_"
"""Options that are checked with each other, where a scenario is laid over a deployment."""

KINDS: tuple[type, ...] = (Engine, Deployment, Slo, Planning, Refusals, ReplayOptions)

_LIMITS: Mapping[str, Limit] = {
    **ENGINE,
    **DEPLOYMENT,
    **SLO,
    **PLANNING,
    "replicas": Limit(1, 1_000_000, "replicas"),
    "compact_ratio": Limit(0, 1, "of max_model_len", is_above=True),
    "rate_scale": Limit(0, 1000, "times the arrivals", is_above=True),
}
_WORDS = {"requested_output": REQUESTED, "rejected_turn": REJECTED_TURNS}


def known_settings() -> dict[str, type]:
    """Key -> the dataclass whose field it is, in the order of `KINDS`."""
    found: dict[str, type] = {}
    for kind in KINDS:
        for f in fields(kind):
            if f.name not in _LEFT_TO_OTHERS.get(kind, ()):
                found.setdefault(f.name, kind)
    return found


def parse_setting(key: str, text: str, where: str) -> Any:
    """Value of setting `key` from its text; ConfigError names the nearest key or what it must be."""
    check_key(key, where)
    return check_setting(key, read_setting(text, kind_of(key), f"{where}: {key}"), where)


def check_setting(key: str, value: Any, where: str) -> Any:
    """`value` as setting `key` has it; ConfigError where there is no such key, or it cannot have that value."""
    check_key(key, where)
    value = as_kind(value, kind_of(key), f"{where}: {key}")
    _check_value(key, value, where)
    return value


def check_key(key: str, where: str) -> None:
    """ConfigError with the nearest keys where there is no setting `key`."""
    known = known_settings()
    if key not in known:
        listed = f"(kvledger whatif --set help lists all {len(known)})"
        raise ConfigError(f"{where}: unknown setting '{key}'{nearest_few(key, known)} {listed}")


def setting_kinds() -> dict[str, str]:
    """Key of a setting → what its value is, in words, by name."""
    words = {**WORDS, **_WORDS}
    return {key: value_words(_hint_of(key), words.get(key, ())) for key in sorted(known_settings())}


def kind_of(key: str) -> type:
    """Type of setting `key`: int, float, bool or str."""
    return hinted_kind(_hint_of(key))  # type: ignore[no-any-return]


def _hint_of(key: str) -> Any:
    return get_type_hints(known_settings()[key])[key]


def _check_value(key: str, value: Any, where: str) -> None:
    limit = _LIMITS.get(key)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: {key} = {value} must be a finite number")
    if limit is not None and not limit.allows(value):
        raise ConfigError(f"{where}: {key} = {value} must be {limit.words}")
    if key in _WORDS and value not in _WORDS[key]:
        raise ConfigError(
            f"{where}: {key} = '{value}' must be one of {', '.join(_WORDS[key])}{nearest(value, _WORDS[key])}"
        )
    kind = known_settings()[key]
    try:
        if kind is ReplayOptions and not key.startswith(TOGETHER):
            check_options(replace(ReplayOptions(), **{key: value}))
        if kind is Slo:
            Slo(**{key: value}).window_s  # noqa: B018 - asked for its error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


DEFAULT_ROUTER = "session_affinity"
"""Turns of a session go where its prefix is cached, which is what gateways in front of prefix caches do."""

LAYOUT = {
    "gpu", "model", "name", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
}  # fmt: skip
"""Settings whose change takes a deployment out of what its own calibration holds for: the catalog's is used then."""


@dataclass(frozen=True)
class Changed:
    """One deployment under a scenario: what the planner and the replay are asked with."""

    deployment: Deployment
    planning: Planning
    options: ReplayOptions
    refusals: Refusals


def changed(deployment: Deployment, planning: Planning, settings: Mapping[str, Any]) -> Changed:
    """`deployment` and `planning` with `settings` (checked) laid over them; without any: today.

    ConfigError where values cannot be together.
    """
    known = known_settings()
    values: dict[type, dict[str, Any]] = {kind: {} for kind in KINDS}
    for key, value in settings.items():
        values[known[key]][key] = value
    given = {f"engine.{key}" for key in values[Engine]} | {f"slo.{key}" for key in values[Slo]}
    is_other = not LAYOUT.isdisjoint(settings)
    laid = replace(
        deployment,
        **values[Deployment],
        calibration=None if is_other else deployment.calibration,
        engine=replace(deployment.engine, **values[Engine]),
        slo=replace(deployment.slo, **values[Slo]),
        given=deployment.given | given | set(values[Deployment]),
    )
    usual = ReplayOptions(
        replicas=max(1, laid.replicas),
        router=usual_router(laid.engine, DEFAULT_ROUTER),
        requested_output="ignore",  # the limits have been applied before the replay sees the traffic
        ttft_p95_s=laid.slo.ttft_p95_s,
        tpot_p95_s=laid.slo.tpot_p95_s,
    )
    options = replace(usual, **values[ReplayOptions])
    check_options(options)
    return Changed(laid, replace(planning, **values[Planning]), options, Refusals(**values[Refusals]))
