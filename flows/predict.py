"""What closed-loop benchmarks would show: a file of points answered one by one, and how far to trust the answers."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.calibrations import calibration_document, calibration_files, load_calibrations
from flows.points import Placing, read_points
from flows.whole_file import whole_file
from transforms.errors import CatalogError, ConfigError, InputError, KvledgerError
from transforms.planner.steps.calibration_choice import chosen
from transforms.planner.steps.points import predicted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.catalog import Catalog
    from transforms.planner.steps.step_calibration import Calibration

COLUMNS = ("id", "status", "ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu", "provenance")
ANSWERED = "ok"


@dataclass(frozen=True)
class Answer:
    """A point answered: times in milliseconds, throughput of one GPU, and what they rest on."""

    point_id: str
    status: str
    ttft_ms: float
    tpot_ms: float | None
    """None where a request has one output token: then there is no time between tokens."""
    output_tokens_per_s_per_gpu: float
    calibration: Calibration

    def row(self) -> dict[str, Any]:
        """Columns of the output file."""
        return {
            "id": self.point_id,
            "status": self.status,
            "ttft_ms": round(self.ttft_ms, 4),
            "tpot_ms": None if self.tpot_ms is None else round(self.tpot_ms, 4),
            "output_tokens_per_s_per_gpu": round(self.output_tokens_per_s_per_gpu, 4),
            "provenance": self.calibration.provenance,
        }


def predict_file(points: Path, configs: Path, output: Path, catalog: Catalog) -> dict[str, Any]:
    """Answers of the points in a CSV written to `output`; how many were answered and why others were not.

    InputError where columns are missing or there are no points; a point that cannot be answered says why in `status`.
    """
    if not configs.is_dir():
        raise ConfigError(f"--configs {configs} is not a folder; name the one with the points' config files")
    rows = read_points(points)
    placing, calibrations = Placing(catalog, configs), load_calibrations(catalog)
    answers, refused = [], Counter[str]()
    for row in rows:
        try:
            answers.append(answer(row, placing, calibrations).row())
        except KvledgerError as error:
            reason = " ".join(str(error).split())
            refused[reason] += 1
            answers.append({"id": row["id"], "status": reason})
    _write(answers, output)
    return {
        "points": len(rows),
        "answered": len(rows) - refused.total(),
        "refused": dict(refused.most_common()),
        "output": str(output),
    }


def answer(row: Mapping[str, str | None], placing: Placing, calibrations: tuple[Calibration, ...]) -> Answer:
    """What a benchmark of the point in `row` would show; KvledgerError says why it cannot be said."""
    point, placed, gpu = placing.placed(row)
    calibration = chosen(calibrations, point.engine, gpu)
    found = predicted(point, placed, calibration)
    has_gaps = point.output_tokens > 1
    notes = (placed.reading.note, "" if has_gaps else "one output token has no time per output token")
    return Answer(
        point_id=point.point_id,
        status="; ".join(filter(None, (ANSWERED, *notes))),
        ttft_ms=1000 * found.ttft_s,
        tpot_ms=1000 * found.tpot_s if has_gaps else None,
        output_tokens_per_s_per_gpu=found.output_tokens_per_s / placed.reading.layout.gpus,
        calibration=calibration,
    )


def accuracy(catalog: Catalog) -> list[dict[str, Any]]:
    """Predicted against measured, a row for each engine, GPU, model and weight dtype of the catalog's calibrations."""
    rows = [row for path in calibration_files(catalog) for row in calibration_document(path).get("groups", [])]
    if not rows:
        raise CatalogError("the catalog's calibrations hold no comparison; make one with kvledger calibrate --points")
    return rows


def _write(rows: list[dict[str, Any]], output: Path) -> None:
    with whole_file(output) as aside, aside.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def one_point(settings: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Answer of one point given by flags, with the calibration it rests on; InputError names flags that lack."""
    missing = [name for name in ("gpu", "config_file", "concurrency", "isl", "osl") if settings[name] is None]
    if missing:
        flags = ", ".join("--" + {"config_file": "model"}.get(name, name) for name in missing)
        raise InputError(f"predict needs POINTS.csv, or one point by flags; {flags} lack")
    row = {name: None if value is None else str(value) for name, value in settings.items()}
    found = answer({"id": "point", **row}, Placing(catalog, None), load_calibrations(catalog))
    calibration = found.calibration
    return {
        **found.row(),
        "tpot_error_ratio": calibration.tpot_error_ratio,
        "ttft_error_ratio": calibration.ttft_error_ratio,
        "calibration": calibration.source,
    }
