"""Scenarios by name: today's, those of --set, those of files, and one for each point of a sweep."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.errors import ConfigError, nearest
from transforms.planner.sizing.plan_tables import TODAY
from transforms.planner.whatif.settings import NUMBERS, check_key, check_setting, kind_of, parse_setting
from transforms.setting_values import read_setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_POINTS = 500
SPELLINGS = "KEY=FIRST:LAST:xFACTOR, KEY=FIRST:LAST:+STEP or KEY=V1,V2,…"
"""How a sweep is written."""
FILE_KEYS = ("name", "why", "set")
_RANGE = re.compile(r"\s*([^:,\s]+):([^:,\s]+):([x+])([^:,\s]+)\s*")


@dataclass(frozen=True)
class Scenario:
    """What is changed, under a name of its own; `swept` is the setting whose curve it is a point of."""

    scenario_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    swept: str | None = None

    @property
    def settings_text(self) -> str:
        """The settings as they would be typed."""
        return ", ".join(f"{key}={shown(value)}" for key, value in self.settings.items())

    @property
    def swept_value(self) -> float | None:
        """Where on its curve it lies."""
        return None if self.swept is None else float(self.settings[self.swept])


def shown(value: Any) -> str:
    """A setting's value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_sets(texts: Sequence[str]) -> dict[str, Any]:
    """Settings of `--set key=value …`; ConfigError where one is wrong or said twice."""
    found: dict[str, Any] = {}
    for text in texts:
        where = f"--set {text}"
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"{where}: must be KEY=VALUE")
        key = key.strip()
        if key in found:
            raise ConfigError(f"{where}: {key} is set twice; one scenario has one value (a --sweep has many)")
        found[key] = parse_setting(key, value.strip(), where)
    return found


def parse_scenario(document: Mapping[str, Any], where: str) -> Scenario:
    """Scenario of a decoded scenario file: `name`, `why` and the table `set`; ConfigError names what is wrong."""
    for key in document:
        if key not in FILE_KEYS:
            raise ConfigError(f"{where}: unknown key '{key}'{nearest(key, FILE_KEYS)} (known: {', '.join(FILE_KEYS)})")
    name, table = document.get("name"), document.get("set")
    if not isinstance(name, str) or not name.strip() or name == TODAY:
        raise ConfigError(f"{where}: lacks name = \"…\" (any but '{TODAY}')")
    if not isinstance(table, dict) or not table:
        raise ConfigError(f"{where}: lacks a table [set] with at least one setting")
    settings = {key: check_setting(key, value, f"{where}: [set]") for key, value in table.items()}
    return Scenario(name.strip(), settings, str(document.get("why", "")))


def parse_sweep(text: str, base: Mapping[str, Any]) -> list[Scenario]:
    """One scenario for each point of KEY=A:B:xF, KEY=A:B:+S or KEY=v1,v2,…, each with the settings `base` too."""
    where = f"--sweep {text}"
    key, separator, points = text.partition("=")
    key = key.strip()
    if not separator:
        raise ConfigError(f"{where}: must be {SPELLINGS}")
    check_key(key, where)
    if kind_of(key) not in NUMBERS:
        raise ConfigError(f"{where}: {key} is no number; give its values as scenarios of their own")
    values = dict.fromkeys(check_setting(key, value, where) for value in _values(points, kind_of(key), where))
    return [
        Scenario(_named({**base, key: value}), {**base, key: value}, f"sweep of {key}", key) for value in sorted(values)
    ]


def scenarios_of(
    sets: Mapping[str, Any], files: Sequence[Scenario], sweeps: Sequence[Scenario]
) -> tuple[Scenario, ...]:
    """Today, then what was asked for; ConfigError where nothing was, or two have one name."""
    asked = [*files, *([Scenario(_named(sets), sets)] if sets else []), *sweeps]
    if not asked:
        raise ConfigError("whatif: nothing to change; name a setting with --set, --scenario, --sweep or --scale")
    found: dict[str, Scenario] = {TODAY: Scenario(TODAY)}
    for one in asked:
        if one.scenario_id in found and found[one.scenario_id].settings != one.settings:
            raise ConfigError(f"whatif: two scenarios are called '{one.scenario_id}'; give each its own name")
        if one.scenario_id not in found or one.swept is not None:
            found[one.scenario_id] = one
    return tuple(found.values())


def _named(settings: Mapping[str, Any]) -> str:
    return Scenario("", settings).settings_text


def _values(points: str, kind: type, where: str) -> list[Any]:
    """Points of a sweep, those of a range with both ends where the steps meet the last one."""
    found = _RANGE.fullmatch(points)
    if found is None:
        texts = [text.strip() for text in points.split(",")]
        if ":" in points or not all(texts):
            raise ConfigError(f"{where}: must be {SPELLINGS}")
        return [_number(text, kind, where) for text in texts]
    first, last = (_number(found[n], kind, where) for n in (1, 2))
    step = _number(found[4], float, where)
    is_factor = found[3] == "x"
    if last < first or (is_factor and (step <= 1 or first <= 0)) or (not is_factor and step <= 0):
        raise ConfigError(f"{where}: must rise: FIRST at most LAST, a factor above 1 (FIRST above 0) or a step above 0")
    return _range(first, last, step, kind, where, is_factor=is_factor)


def _range(first: float, last: float, step: float, kind: type, where: str, *, is_factor: bool) -> list[Any]:
    span = math.log(last / first) / math.log(step) if is_factor else (last - first) / step
    count = math.floor(span * (1 + 1e-12) + 1e-9) + 1
    if count > MOST_POINTS:
        raise ConfigError(f"{where}: has {count:,} points; at most {MOST_POINTS} are compared at once")
    raw = [first * step**n if is_factor else first + step * n for n in range(count)]
    return [round(value) for value in raw] if kind is int else [float(f"{value:.12g}") for value in raw]


def _number(text: str, kind: type, where: str) -> Any:
    try:
        return read_setting(text, kind, f"{where}: a point")
    except ConfigError as error:
        raise ConfigError(f"{error}; a sweep is {SPELLINGS}") from None
