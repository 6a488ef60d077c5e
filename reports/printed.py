"""How figures are printed: unit prefix and rounding half up, nothing else. HTML, Markdown and terminal share it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal

import polars as pl

UNKNOWN = "–"
"""What stands where a figure is unknown (NULL)."""

NO_INTERVAL = "no interval"
NBSP = "\u00a0"
MINUS = "\u2212"

GIB_BYTES = 2**30
MIB_BYTES = 2**20

_BYTE_STEPS = ((GIB_BYTES / 10, GIB_BYTES, "GiB"), (0.0, MIB_BYTES, "MiB"))
_SECOND_STEPS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (0.0, 0.001, "ms"))
_WINDOW_STEPS = ((3600.0, 3600.0, "h"), (60.0, 60.0, "min"), (0.0, 1.0, "s"))
_COUNT_STEPS = ((999_500_000.0, 1e9, "G"), (999_500.0, 1e6, "M"), (9_999.5, 1e3, "k"), (0.0, 1.0, ""))

_FIGURE_DIGITS = ((99.95, 0), (9.995, 1), (0.0995, 2), (0.0, 3))
_PERCENT_DIGITS = ((0.0995, 0), (0.00995, 1), (0.0, 2))
_PRICE_DIGITS = ((1000.0, 0), (0.0, 2))
_COST_DIGITS = ((0.1, 2), (0.0, 4))


def rounded(value: float, digits: int = 0) -> str:
    """`value` with `digits` decimals, half up (2,734.5 → 2,735), thousands apart by commas."""
    exact = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    text = f"{abs(exact):,}"
    return MINUS + text if exact < 0 else text


def whole(value: float | None) -> str:
    """A count or a number of tokens as a whole number, half up; "–" if unknown."""
    return UNKNOWN if value is None else rounded(value)


def figure(value: float | None) -> str:
    """Three significant digits, at most three decimals: 0.25, 3.14, 27.4, 1,204; "–" if unknown."""
    return UNKNOWN if value is None else rounded(value, _digits(value, _FIGURE_DIGITS))


def compact(value: float | None) -> str:
    """A large count with k, M or G: 412332 → "412 k"; below ten thousand the whole number."""
    if value is None:
        return UNKNOWN
    _from, size, prefix = _step(value, _COUNT_STEPS)
    return f"{figure(value / size)}{NBSP}{prefix}" if prefix else rounded(value, 0 if value == int(value) else 1)


def gib(value_bytes: float | None) -> str:
    """Bytes as GiB (2^30), or MiB below a tenth of a GiB."""
    if value_bytes is None:
        return UNKNOWN
    _from, size, unit = _step(value_bytes, _BYTE_STEPS)
    return f"{figure(value_bytes / size)}{NBSP}{unit}"


def gib_column(name: str, alias: str) -> pl.Expr:
    """Column `name` (bytes or byte·s) in GiB or GiB·s under `alias`, for the axis of a chart."""
    return (pl.col(name) / GIB_BYTES).alias(alias)


def ms_column(name: str, alias: str) -> pl.Expr:
    """Column `name` (seconds) in ms under `alias`, for the axis of a chart."""
    return (pl.col(name) * 1000).alias(alias)


def gib_s(value_byte_s: float | None) -> str:
    """KV·time in byte·s as GiB·s, with k or M where large."""
    return UNKNOWN if value_byte_s is None else with_prefix(value_byte_s / GIB_BYTES, "GiB·s")


def with_prefix(value: float | None, unit: str) -> str:
    """`value` with three digits and the prefix k, M or G before `unit`: (48000, "tokens/s") → "48.0 k tokens/s"."""
    if value is None:
        return UNKNOWN
    _from, size, prefix = _step(value, _COUNT_STEPS)
    return f"{figure(value / size)}{NBSP}{prefix}{NBSP if prefix else ''}{unit}"


def percent(ratio: float | None, digits: int | None = None) -> str:
    """A ratio as percent: 0.314 → "31 %"; below one percent two digits, so that a small share is not zero."""
    if ratio is None:
        return UNKNOWN
    if digits is None:
        digits = _digits(ratio, _PERCENT_DIGITS)
    return f"{rounded(ratio * 100, digits)}{NBSP}%"


def change(ratio: float | None) -> str:
    """A relative change with its sign: 0.31 → "+31 %"."""
    if ratio is None:
        return UNKNOWN
    return f"+{percent(ratio)}" if ratio > 0 else percent(ratio)


def signed(value: float | None) -> str:
    """A difference with its sign, three significant digits: 2.31 → "+2.31"; "–" if unknown."""
    return f"+{figure(value)}" if value is not None and value > 0 else figure(value)


def seconds(value_s: float | None) -> str:
    """A duration in the unit that suits it: ms, s, min or h."""
    if value_s is None:
        return UNKNOWN
    if value_s == 0:
        return f"0{NBSP}s"
    _from, size, unit = _step(value_s, _SECOND_STEPS)
    return f"{figure(value_s / size)}{NBSP}{unit}"


def window(value_s: float | None) -> str:
    """The length of a counting window, a whole number of its unit: "10 s", "5 min", "1 h"."""
    if value_s is None:
        return UNKNOWN
    _from, size, unit = _step(value_s, _WINDOW_STEPS)
    return f"{figure(value_s / size).removesuffix('.00').removesuffix('.0')}{NBSP}{unit}"


def usd_per_hour(value_usd: float | None) -> str:
    """USD per hour: "$38.40/h"; whole dollars from a thousand on."""
    return UNKNOWN if value_usd is None else f"{_dollars(value_usd, _PRICE_DIGITS)}/h"


def usd(value_usd: float | None) -> str:
    """USD: "$0.82", four decimals below ten cents."""
    return UNKNOWN if value_usd is None else _dollars(value_usd, _COST_DIGITS)


def gpu_hours(value_gpu_s: float | None) -> str:
    """GPU time as GPU hours: "40.0 GPU·h"; "–" if unknown."""
    return UNKNOWN if value_gpu_s is None else f"{figure(value_gpu_s / 3600)}{NBSP}GPU·h"


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval: "20–26"; the one count, "2", where they are the same; "no interval" unless known."""
    if low is None or high is None:
        return NO_INTERVAL
    return whole(low) if whole(low) == whole(high) else f"{whole(low)}–{whole(high)}"


def moment(value: datetime | None) -> str:
    """A moment as "Tue 14 Nov 15:05 UTC"; one without a zone, as the warehouse has them, is UTC."""
    if value is None:
        return UNKNOWN
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return f"{utc:%a} {utc.day} {utc:%b %H:%M} UTC"


def day(value: date | None) -> str:
    """A date as "Tue 14 Nov 2026"; "–" if unknown."""
    return UNKNOWN if value is None else f"{value:%a} {value.day} {value:%b %Y}"


def week_days(week: str) -> str:
    """First and last day of an ISO week: "2026-W47" → "16 Nov – 22 Nov 2026"."""
    year, number = week.split("-W")
    first, last = (date.fromisocalendar(int(year), int(number), day) for day in (1, 7))
    return f"{first.day} {first:%b} – {last.day} {last:%b %Y}"


def gpus(count: float | None) -> str:
    """A count of GPUs with its noun: "1 GPU", "32 GPUs"; "–" if unknown."""
    return UNKNOWN if count is None else f"{whole(count)}{NBSP}GPU{'' if count == 1 else 's'}"


def yes_no(flag: bool | None) -> str:
    """A flag as "yes" or "no"; "–" if unknown."""
    return UNKNOWN if flag is None else "yes" if flag else "no"


def sentence(words: str) -> str:
    """`words` with a capital first letter."""
    return words[:1].upper() + words[1:]


def shortened(name: str, length: int = 40) -> str:
    """`name`, its middle replaced by "…" where longer than `length` characters."""
    if len(name) <= length:
        return name
    head = (length - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"


def _dollars(value_usd: float, steps: tuple[tuple[float, int], ...]) -> str:
    """USD with its sign before the dollar: "−$13.30"."""
    text = f"${rounded(abs(value_usd), _digits(value_usd, steps))}"
    return MINUS + text if value_usd < 0 else text


def _digits(value: float, steps: tuple[tuple[float, int], ...]) -> int:
    """Decimals for `value` by the first step it reaches; none for zero."""
    return next(digits for least, digits in steps if abs(value) >= least) if value else 0


def _step(value: float, steps: tuple[tuple[float, float, str], ...]) -> tuple[float, float, str]:
    return next(step for step in steps if abs(value) >= step[0])
