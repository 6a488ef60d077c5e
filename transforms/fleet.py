"""The fleet file: log sources, deployments, objectives and planning settings, checked key by key."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from transforms.errors import ConfigError, nearest
from transforms.fleet_limits import check_limits
from transforms.fleet_running import Publish, Schedule, Warehouse
from transforms.setting_values import as_kind
from transforms.source_settings import check_settings

T = TypeVar("T")

NOT_A_KEY = {"is_key": False}
"""Metadata of a field that no key of the file sets."""
MAP_FILE = (
    ": write the columns under [sources.map], or put the mapping file into HOME/catalog/formats/NAME.toml and use "
    'format = "NAME"'
)
"""What to do where `map` is something else, such as the path of a mapping file."""

LONGEST_WINDOW_S, SHORTEST_WINDOW_S = 7 * 86_400, 60
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Source:
    """One `[[sources]]` table: where a log lies and how its ambiguities are settled."""

    format: str
    path: str
    name: str = ""
    timezone: str | None = None
    time_unit: str | None = None
    origin: str | None = None
    file_order: str | None = None
    cached_tokens: str | None = None
    reasoning_tokens: str | None = None
    zero_usage: str | None = None
    block_tokens: int | None = None
    session_rate_per_s: float | None = None
    map: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Engine:
    """`[deployments.engine]`, in vLLM's names; tokens, sequences, ratios and bytes as vLLM means them."""

    name: str = "vllm"
    version: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    kv_cache_memory_bytes: int | None = None
    block_size: int | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    async_scheduling: bool | None = None
    long_prefill_token_threshold: int = 0
    speculative_tokens: int = 0
    drafter_layers: int = 0
    activation_bytes: int | None = None
    non_torch_bytes: int | None = None
    weights_bytes: int | None = None
    cuda_graph_bytes: int | None = None


@dataclass(frozen=True)
class Slo:
    """`[deployments.slo]`: what the service promised; `window` is the span it is judged over, as "1h"."""

    ttft_p95_s: float = 2.0
    tpot_p95_s: float = 0.05
    window: str = "1h"

    @property
    def window_s(self) -> float:
        """Seconds of `window`: like "1h", "15min" or "90s"; ConfigError where it is none from 60 s to a week."""
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d)\s*", self.window)
        seconds = float(found[1]) * _SECONDS[found[2]] if found else math.nan
        if not SHORTEST_WINDOW_S <= seconds <= LONGEST_WINDOW_S:
            raise ConfigError(f'window \'{self.window}\' must be from "60s" to "7d", like "1h", "15min" or "90s"')
        return seconds


@dataclass(frozen=True)
class Deployment:
    """One `[[deployments]]` table: `replicas` copies of `model` on `gpu` under `engine`, serving `serves`."""

    name: str
    serves: tuple[str, ...]
    model: str
    gpu: str
    replicas: int = 1
    calibration: str | None = None
    engine: Engine = field(default_factory=Engine)
    slo: Slo = field(default_factory=Slo)
    given: frozenset[str] = field(default=frozenset(), metadata=NOT_A_KEY)
    """Keys the file names, as "engine.max_num_seqs": the others have their default."""


@dataclass(frozen=True)
class Planning:
    """`[planning]`: how much spare the review keeps and how far ahead it looks."""

    headroom_ratio: float = 0.3
    spare_replicas: int = 1
    lead_time_days: int = 30
    horizon_weeks: int = 8
    timezone: str = "UTC"


@dataclass(frozen=True)
class Privacy:
    """`[privacy]`: "hashed" keeps a keyed hash of tenant identifiers, "plain" keeps them as logged."""

    identifiers: str = "hashed"


@dataclass(frozen=True)
class Fleet:
    """The whole fleet file. `prices` maps a GPU's catalog name to USD per GPU-hour."""

    sources: tuple[Source, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    planning: Planning = field(default_factory=Planning)
    privacy: Privacy = field(default_factory=Privacy)
    warehouse: Warehouse = field(default_factory=Warehouse)
    schedule: Schedule = field(default_factory=Schedule)
    publish: Publish = field(default_factory=Publish)
    prices: Mapping[str, float] = field(default_factory=dict)


def parse_fleet(document: Mapping[str, Any], where: str) -> Fleet:
    """The fleet in a decoded TOML `document`; `where` names the file in errors. Unknown keys are ConfigErrors."""
    fleet = _build(Fleet, document, where, "")
    fleet = replace(
        fleet,
        deployments=tuple(
            replace(deployment, given=_keys(table))
            for deployment, table in zip(fleet.deployments, document.get("deployments", ()), strict=True)
        ),
    )
    _check_sources(fleet, where)
    check_limits(fleet, where)
    _check_windows(fleet.deployments, where)
    _check_serves(fleet.deployments, where)
    return fleet


def deployment_of(model: str | None, deployments: Sequence[Deployment]) -> str | None:
    """Name of the deployment that serves `model`: exact name, then pattern, then "*"; None if nobody does.

    ConfigError where patterns of two deployments match it.
    """
    if model is not None:
        for deployment in deployments:
            if model in deployment.serves:
                return deployment.name
        found = [d.name for d in deployments if any(p != "*" and fnmatch.fnmatchcase(model, p) for p in d.serves)]
        if len(found) > 1:
            raise ConfigError(
                f"model '{model}' is served by a pattern of '{found[0]}' and by one of '{found[1]}'; "
                "name it in `serves` of the one that has it"
            )
        if found:
            return found[0]
    return next((d.name for d in deployments if "*" in d.serves), None)


def _keys(table: Mapping[str, Any]) -> frozenset[str]:
    """Keys of a table, those of its tables as "table.key"."""
    inner = (f"{key}.{name}" for key, value in table.items() if isinstance(value, Mapping) for name in value)
    return frozenset((*table, *inner))


def _check_windows(deployments: Sequence[Deployment], where: str) -> None:
    for deployment in deployments:
        try:
            deployment.slo.window_s  # noqa: B018 - asked for its error
        except ConfigError as error:
            raise ConfigError(f"{where}: deployment '{deployment.name}': [slo] {error}") from None


def _check_serves(deployments: Sequence[Deployment], where: str) -> None:
    names: dict[str, str] = {}
    patterns: dict[str, str] = {}
    for deployment in deployments:
        if deployment.name in names:
            raise ConfigError(f"{where}: two deployments are named '{deployment.name}'; give each its own name")
        if deployment.name.startswith("("):
            raise ConfigError(
                f"{where}: a deployment is named '{deployment.name}'; names in brackets stand for sums and the rest: "
                "choose another"
            )
        names[deployment.name] = deployment.name
        for pattern in deployment.serves:
            if pattern in patterns:
                raise ConfigError(
                    f"{where}: '{pattern}' is served by both '{patterns[pattern]}' and '{deployment.name}'; "
                    "leave it to one of them"
                )
            patterns[pattern] = deployment.name
    _check_covered(patterns, where)


def _check_covered(patterns: Mapping[str, str], where: str) -> None:
    """ConfigError where all that one pattern matches is matched by another deployment's as well.

    Patterns that only cross are refused once a model in the logs matches both (`deployment_of`).
    """
    wild = {pattern: name for pattern, name in patterns.items() if pattern != "*" and any(c in pattern for c in "*?[")}
    for wide, owner in wild.items():
        for narrow, other in wild.items():
            if owner != other and fnmatch.fnmatchcase(narrow, wide):
                raise ConfigError(
                    f"{where}: what '{narrow}' of '{other}' matches is matched by '{wide}' of '{owner}' as well; "
                    "leave it to one of them (exact names win over patterns)"
                )


def _check_sources(fleet: Fleet, where: str) -> None:
    for source in fleet.sources:
        check_settings(asdict(source), f"{where}: source '{source.name or source.path}'")
    check_settings({"timezone": fleet.planning.timezone}, f"{where}: [planning]")
    check_settings({"timezone": fleet.schedule.timezone}, f"{where}: [schedule]")


def _build(kind: type[T], document: Any, where: str, at: str) -> T:
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: {at or 'the file'} must be a table")
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind) if f.metadata.get("is_key", True)}  # type: ignore[arg-type]
    for key in document:
        if key not in known:
            hint = nearest(key, known) or f"; known are {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key '{at + '.' if at else ''}{key}'{hint}")
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name in document:
            values[name] = _value(hints[name], document[name], where, f"{at}.{name}" if at else name)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{where}: {at or 'the file'} lacks '{name}'")
    return kind(**values)


def _value(hint: Any, value: Any, where: str, at: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _build(hint, value, where, at)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: '{at}' must be a list")
        return tuple(_value(args[0], item, where, f"{at}[{n}]") for n, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: '{at}' must be a table{MAP_FILE if at.endswith('.map') else ''}")
        return {k: _value(args[1], v, where, f"{at}.{k}") for k, v in value.items()}
    if type(None) in args:
        return _value(args[0], value, where, at)
    return _scalar(hint, value, where, at)


def _scalar(hint: Any, value: Any, where: str, at: str) -> Any:
    if hint is Any:
        return value
    value = as_kind(value, hint, f"{where}: '{at}'")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: '{at}' must be a finite number, not {value}")
    return value
