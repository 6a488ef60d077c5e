"""Instants as logs write them: epoch numbers in any unit, ISO texts with or without a zone, offsets from an origin."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from transforms.errors import ConfigError, InputError
from transforms.fields.numbers import NOT_A_NUMBER, PER_SECOND

if TYPE_CHECKING:
    from transforms.fleet import Source

DEFAULT_ORIGIN = "1970-01-05T00:00:00Z"
ASSUMED_ORIGIN = "assumed_origin"
AMBIGUOUS = "dst_ambiguous"
NONEXISTENT = "dst_gap"
MIXED_UNITS = "mixed_time_units"
FLOAT_PRECISION = "float_precision"
NOT_A_TIME = "not a time"
OUT_OF_RANGE = "time out of range"

# The unit of an epoch number from its size: seconds until the year 5138, then ms, us, ns (log_formats.md case 36).
UNIT_BELOW = ((1e11, "s"), (1e14, "ms"), (1e16, "us"))
LATEST_US = 4_102_444_800_000_000  # 2100-01-01: later stamps are damage, not logs
EXACT_FLOAT = 2**53

ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?\s*(Z|z|UTC|[+-]\d\d:?\d\d|[+-]\d\d)?)?"
)
NO_ZONE = "its time stamps have no zone; say which with --timezone (or timezone = in [[sources]])"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock arithmetic before the zone is known
_US = timedelta(microseconds=1)


@dataclass
class Clock:
    """Turns one file's stamps into microseconds UTC.

    `unit` fixes the unit of epoch numbers (None: by their size). In a file in order of arrival (`in_order`) an hour
    that the local clock shows twice is settled by the step back. `carry` is the batch's: the clock runs on.
    """

    zone: ZoneInfo | None = None
    unit: str | None = None
    in_order: bool = False
    carry: dict[str, Any] = field(default_factory=dict)

    def instant_us(self, value: Any, flags: list[str]) -> int | None:
        """Microseconds UTC of `value`; None for null and "". ValueError with a fixed reason where it is no time."""
        if value is None or isinstance(value, bool):
            if value is None:
                return None
            raise ValueError(NOT_A_TIME)
        if isinstance(value, str):
            text = value.strip()
            if not text:
                return None
            match = ISO.fullmatch(text)
            if match:
                return in_range(self._iso_us(match, flags))
            value = _number(text)
        if not isinstance(value, int | float):
            raise ValueError(NOT_A_TIME)  # noqa: TRY004 - one class for every unusable field
        return in_range(self._epoch_us(value, flags))

    def _epoch_us(self, value: float, flags: list[str]) -> int:
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            raise ValueError(NOT_A_TIME)
        unit = self.unit or unit_of(value)
        if self.carry.setdefault("time_unit", unit) != unit:
            flags.append(MIXED_UNITS)
        if isinstance(value, int):
            return value * 1_000_000 // PER_SECOND[unit]
        if abs(value) >= EXACT_FLOAT:
            flags.append(FLOAT_PRECISION)
            return int(value) * 1_000_000 // PER_SECOND[unit]
        return round(value * (1_000_000 / PER_SECOND[unit]))

    def _iso_us(self, match: re.Match[str], flags: list[str]) -> int:
        year, month, day, hour, minute = (int(match[n] or 0) for n in range(1, 6))
        fraction_us = int((match[7] or "")[:6].ljust(6, "0"))
        try:
            naive = datetime(year, month, day, hour, minute, int(match[6] or 0), fraction_us)  # noqa: DTZ001
        except ValueError:
            raise ValueError(NOT_A_TIME) from None
        naive_us = (naive - _NAIVE_EPOCH) // _US
        if match[8]:
            return naive_us - _offset_us(match[8])
        if self.zone is None:
            raise InputError(NO_ZONE)
        return self.local_us(naive, naive_us, flags)

    def local_us(self, naive: datetime, naive_us: int, flags: list[str]) -> int:
        """Microseconds UTC of the wall-clock time `naive`, of which `naive_us` is the count since 1970."""
        assert self.zone is not None
        first = naive.replace(tzinfo=self.zone).utcoffset() or timedelta()
        second = naive.replace(tzinfo=self.zone, fold=1).utcoffset() or timedelta()
        if first == second:
            self.carry.pop("ambiguous_us", None)
            self.carry.pop("fold", None)
            return naive_us - first // _US
        if first < second:
            flags.append(NONEXISTENT)
            return naive_us - first // _US
        if not self.in_order:
            flags.append(AMBIGUOUS)
            return naive_us - first // _US
        if naive_us < self.carry.get("ambiguous_us", naive_us):
            self.carry["fold"] = 1
        self.carry["ambiguous_us"] = naive_us
        return naive_us - (second if self.carry.get("fold") else first) // _US


def in_range(us: float) -> int:
    """`us` as whole microseconds UTC; ValueError where no log can be that old or that young."""
    if not 0 <= us < LATEST_US:
        raise ValueError(OUT_OF_RANGE)
    return round(us)


def clock_of(source: Source, carry: dict[str, Any], unit: str | None = None) -> Clock:
    """The clock for `source`'s settings; `unit` (the format's own) is overridden by the source's `time_unit`."""
    return Clock(zone_of(source.timezone), source.time_unit or unit, source.file_order == "arrival", carry)


def zone_of(name: str | None) -> ZoneInfo | None:
    """The time zone of that IANA name; None for None; ConfigError where there is no such zone."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"timezone '{name}' is unknown; use an IANA name such as UTC or Europe/Berlin") from None


def origin_us(source: Source, flags: list[str]) -> int:
    """Microseconds UTC that relative stamps count from; the default origin adds the flag `assumed_origin`."""
    if source.origin is None:
        flags.append(ASSUMED_ORIGIN)
    try:
        us = Clock(zone_of(source.timezone or "UTC")).instant_us(source.origin or DEFAULT_ORIGIN, [])
    except ValueError:
        us = None
    if us is None:
        raise ConfigError(f"origin '{source.origin}' is no time; write it as 2026-03-01T00:00:00Z")
    return us


def unit_of(value: float) -> str:
    """Unit of an epoch number, from its size: "s", "ms", "us" or "ns"."""
    size = abs(value)
    return next((unit for below, unit in UNIT_BELOW if size < below), "ns")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(NOT_A_TIME if not text[:1].isdigit() else NOT_A_NUMBER) from None


def _offset_us(text: str) -> int:
    if text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return minutes * 60_000_000 * (-1 if text[0] == "-" else 1)
