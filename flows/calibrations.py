"""Calibrations on disk: those of the catalog (HOME/catalog over the shipped one), read and written as TOML."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flows.whole_file import whole_file
from transforms.errors import CatalogError
from transforms.planner.provenance import CALIBRATED
from transforms.planner.steps.calibration_choice import chosen
from transforms.planner.steps.step_calibration import StepParameters, parse_calibrations

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.catalog import Catalog
    from flows.deployments import Placed
    from flows.fleet import LoadedFleet
    from transforms.planner.steps.step_calibration import Calibration

_DIGITS = 6
"""Significant digits that are written: a fit's own are more than its data are worth."""


def calibration_files(catalog: Catalog) -> list[Path]:
    """Calibration files of the catalog, one of each name, those of the home first."""
    found: dict[str, Path] = {}
    for folder in catalog.folders:
        for path in sorted((folder / "calibrations").glob("*.toml")):
            found.setdefault(path.name, path)
    return list(found.values())


def calibration_document(path: Path) -> Mapping[str, Any]:
    """Decoded TOML of the calibration file at `path`; CatalogError where it is none."""
    try:
        found = path.stat()
        return _decoded(path, found.st_mtime_ns, found.st_size)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{path} cannot be read as a calibration: {error}") from error


@lru_cache(maxsize=64)
def _decoded(path: Path, _changed_ns: int, _size_bytes: int) -> Mapping[str, Any]:
    """The file as it was at that moment: what-ifs read the same few files for every scenario."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def load_calibrations(catalog: Catalog) -> tuple[Calibration, ...]:
    """All calibrations of the catalog, those of the home first."""
    files = calibration_files(catalog)
    return tuple(one for path in files for one in parse_calibrations(calibration_document(path), str(path)))


def deployment_calibration(placed: Placed, fleet: LoadedFleet, catalog: Catalog) -> Calibration:
    """Calibration of a deployment: its own where the fleet names one, else the catalog's for its engine and GPU."""
    engine, gpu = placed.deployment.engine, placed.gpu
    usual = chosen(load_calibrations(catalog), engine.name, gpu)
    path = calibration_path(placed.deployment.calibration, fleet)
    if path is None:
        return usual
    from transforms.planner.replay.own_calibration import identity, parse_own
    from transforms.planner.steps.hardware import engine_work

    work = engine_work(placed.model.config, placed.model.where, gpu, engine)
    wanted = identity(placed.model.model_id, gpu.name, engine, work)
    document = calibration_document(path)
    fitted = parse_own(document, str(path), wanted)
    return replace(
        usual,
        parameters=fitted.step,
        mixed_context_factor=fitted.mixed_context_factor,
        provenance=CALIBRATED,
        source=f"calibration of this deployment, {path.name}",
        tpot_error_ratio=held_out_error(document, "tpot_s", usual.tpot_error_ratio),
        ttft_error_ratio=held_out_error(document, "ttft_s", usual.ttft_error_ratio),
    )


def held_out_error(document: Mapping[str, Any], measure: str, unknown: float) -> float:
    """Median error of `measure` on the requests that a deployment's own calibration held out; `unknown` without any."""
    return abs(float(document.get("holdout_error_ratio", {}).get(measure, unknown)))


def calibration_path(named: str | None, fleet: LoadedFleet) -> Path | None:
    """Path of the calibration a deployment names, from the fleet file's folder; None where it names none."""
    return None if named is None else fleet.base / named


def write_calibrations(document: Mapping[str, Any], path: Path) -> None:
    """Write a calibration `document` to `path` in one go; HomeError where that cannot be done."""
    with whole_file(path) as aside:
        aside.write_text("\n".join(toml_lines(document)) + "\n", encoding="utf-8")


def parameter_table(parameters: StepParameters) -> dict[str, float]:
    """Parameters by name, rounded as they are written."""
    return {f.name: rounded(getattr(parameters, f.name)) for f in fields(StepParameters)}


def rounded(value: float) -> float:
    """`value` to the digits that are written."""
    return float(f"{float(value):.{_DIGITS}g}")


def toml_lines(document: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines of `document` as TOML: values first, then tables, then arrays of tables."""
    lines = [f"{key} = {_value(value)}" for key, value in document.items() if not _is_table(value)]
    for key, value in document.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            lines += ["", f"[{name}]", *toml_lines(value, f"{name}.")]
        elif _is_table(value):
            for entry in value:
                lines += ["", f"[[{name}]]", *toml_lines(entry, f"{name}.")]
    return lines


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(rounded(value))
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
