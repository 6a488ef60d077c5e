"""The section on step times: every comparison of the catalog, those of this fleet's GPUs first."""

from __future__ import annotations

from typing import Any

from report_week import drawing_code, full_week, page_of

from reports.accuracy import LARGEST_ERROR, accuracy_section
from reports.html import html
from reports.review import review_page


def group(gpu: str, tpot: float, model: str = "Qwen--Qwen3-32B") -> dict[str, Any]:
    errors = {"tpot_median_ratio": tpot, "tpot_p90_ratio": 2 * tpot, "ttft_median_ratio": 0.2}
    return {"engine": "vllm", "gpu": gpu, "model": model, "weights": "fp8", "points": 34, "fit": errors,
            "left_out": errors}  # fmt: skip


def test_gpus_of_this_fleet_stand_first() -> None:
    section = accuracy_section(full_week(), [group("B200-SXM-180GB", 0.1), group("H100-SXM-80GB", 0.0325)])
    assert section is not None
    rows = section.tables[0].rows
    assert [row[1:4] for row in rows] == [
        ("H100-SXM-80GB", "yes", "Qwen/Qwen3-32B"), ("B200-SXM-180GB", "no", "Qwen/Qwen3-32B")
    ]  # fmt: skip
    assert rows[0][6:9] == ("3.3\u00a0%", "3.3\u00a0%", "6.5\u00a0%")


def test_an_error_beyond_the_axis_stands_at_its_end_and_whole_in_the_table() -> None:
    section = accuracy_section(full_week(), [group("H100-SXM-80GB", 7.38)])
    assert section is not None
    assert section.charts[0].rows["error"].to_list() == [LARGEST_ERROR]
    assert "738\u00a0%" in section.tables[0].rows[0]


def test_without_comparisons_there_is_no_section() -> None:
    assert accuracy_section(full_week(), []) is None
    assert "How far to trust step times" not in html(page_of(full_week(2)), drawing_code())
    page = review_page(full_week(2), "2026-W47", {}, [], [group("H100-SXM-80GB", 0.1)])
    assert "How far to trust step times" in html(page, drawing_code())
