"""Printed figures: half up, units, prefixes, and what is unknown."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import printed

NB = printed.NBSP


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(2734.5, 0, "2,735"), (2733.5, 0, "2,734"), (-2734.5, 0, "−2,735"), (1.005, 2, "1.01"), (0.0, 0, "0"),
     (1_234_567, 0, "1,234,567"), (0.125, 2, "0.13"), (-0.001, 0, "0")],
)  # fmt: skip
def test_rounds_half_up(value: float, digits: int, text: str) -> None:
    assert printed.rounded(value, digits) == text


@given(st.integers(-(10**9), 10**9))
def test_a_half_goes_away_from_zero(whole: int) -> None:
    up = whole + 1 if whole >= 0 else whole
    assert printed.rounded(whole + 0.5) == f"{up:,}".replace("-", "−")


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (printed.gib, 2**30, "1.00 GiB"),
        (printed.gib, 4096 * 131_072, "0.50 GiB"),
        (printed.gib, 15 * 131_072, "1.88 MiB"),
        (printed.gib_s, 46.08 * 2**30, "46.1 GiB·s"),
        (printed.gib_s, 2.42e8 * 2**30, "242 M GiB·s"),
        (printed.compact, 412_332, "412 k"),
        (printed.compact, 999_600, "1.00 M"),
        (printed.compact, 9_999, "9,999"),
        (printed.percent, 0.314, "31 %"),
        (printed.percent, 0.0042, "0.42 %"),
        (printed.percent, 0.0, "0 %"),
        (printed.change, 0.184, "+18 %"),
        (printed.change, -0.031, "−3.1 %"),
        (printed.change, 0.0, "0 %"),
        (printed.seconds, 0.0312, "31.2 ms"),
        (printed.seconds, 1.234, "1.23 s"),
        (printed.seconds, 610, "10.2 min"),
        (printed.seconds, 8200, "2.28 h"),
        (printed.window, 300, "5 min"),
        (printed.window, 10, "10 s"),
        (printed.usd_per_hour, 47.84, "$47.84/h"),
        (printed.usd, 0.0187, "$0.0187"),
    ],
)
def test_units(show: object, value: float, text: str) -> None:
    assert callable(show)
    assert show(value).replace(NB, " ") == text


@pytest.mark.parametrize(
    "show",
    [printed.whole, printed.figure, printed.compact, printed.gib, printed.gib_s, printed.percent, printed.change,
     printed.seconds, printed.window, printed.usd, printed.usd_per_hour, printed.moment, printed.yes_no],
)  # fmt: skip
def test_unknown_is_a_dash(show: object) -> None:
    assert callable(show)
    assert show(None) == printed.UNKNOWN


def test_interval_is_whole_or_none_at_all() -> None:
    assert printed.interval(20, 26) == "20–26"
    assert printed.interval(2, 2) == "2"
    assert printed.interval(20, None) == "no interval"
    assert printed.interval(None, None) == "no interval"


def test_moments_without_zone_are_utc() -> None:
    assert printed.moment(datetime(2026, 11, 17, 14, 5)) == "Tue 17 Nov 14:05 UTC"  # noqa: DTZ001


@pytest.mark.parametrize(
    ("week", "days"), [("2026-W47", "16 Nov – 22 Nov 2026"), ("2020-W53", "28 Dec – 3 Jan 2021")]
)  # fmt: skip
def test_days_of_a_week(week: str, days: str) -> None:
    assert printed.week_days(week) == days


@given(st.text(max_size=300), st.integers(5, 60))
def test_shortened_keeps_both_ends(name: str, length: int) -> None:
    short = printed.shortened(name, length)
    assert len(short) <= max(length, 0) or short == name
    if short != name:
        assert name.startswith(short.split("…")[0])
        assert len(short) == length


def test_a_sum_of_money_below_zero_has_its_sign_before_the_dollar() -> None:
    assert printed.usd_per_hour(-13.3) == "−$13.30/h"
    assert printed.usd(-0.04) == "−$0.0400"


def test_differences_gpu_time_and_days_are_printed_with_sign_unit_and_weekday() -> None:
    assert [printed.signed(value) for value in (2.314, -0.5, 0.0, None)] == ["+2.31", "−0.50", "0", "–"]
    assert printed.gpu_hours(144_000) == f"40.0{printed.NBSP}GPU·h"
    assert printed.day(date(2026, 12, 14)) == "Mon 14 Dec 2026"
    assert printed.day(None) == "–"
