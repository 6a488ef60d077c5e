"""The first line of a plan says whose step times nobody measured."""

from __future__ import annotations

import pytest
from report_week import frame

from reports.review import coverage


def line(**provenance: str) -> str:
    return coverage({
        "mart_coverage": frame("mart_coverage", [{"requests": 5, "coverage_text": "58 minutes of a week"}]),
        "mart_assumptions": frame("mart_assumptions", [
            {"deployment_id": name, "name": "step_overhead_s", "provenance": word} for name, word in provenance.items()
        ]),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"chat": "assumed"}, "5 requests · 58 minutes of a week · step times assumed: calibrate before you order"),
        ({"chat": "calibrated", "docs": "assumed"}, " · step times assumed for docs: calibrate before you order"),
        ({"chat": "calibrated"}, "5 requests · 58 minutes of a week"),
        ({}, "5 requests · 58 minutes of a week"),
    ],
)
def test_first_line(given: dict[str, str], said: str) -> None:
    assert line(**given).endswith(said)
