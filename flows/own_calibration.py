"""A deployment's own calibration on disk: fitted to results files, written as TOML, read for a replay."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.calibrations import calibration_document, held_out_error, parameter_table, rounded, write_calibrations
from flows.home import open_home
from flows.kernel_cache import use_kernel_cache
from flows.printing import print_note
from flows.reading.rows import read_rows
from flows.replay_site import replay_site
from transforms.errors import ConfigError, InputError
from transforms.planner.provenance import ASSUMED, CALIBRATED
from transforms.planner.replay.own_calibration import fit_document, identity, parse_carried, parse_own
from transforms.planner.replay.replay_fit import MEASURES, Run, fitted
from transforms.planner.replay.replay_settings import replay_settings
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.steps.parameter_space import merged_overheads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.replay_flags import Asked
    from flows.replay_site import ReplaySite
    from transforms.fleet import Source


def read_calibration(path: Path, site: ReplaySite, *, is_carried: bool = False) -> ReplaySite:
    """`site` under the calibration in the file at `path`; ConfigError where it is of another model, GPU or layout.

    `is_carried`: of whatever it is, what it changed against its catalog's values is changed in those of `site`.
    """
    if not path.is_file():
        raise ConfigError(f"calibration {path} does not exist; kvledger calibrate RESULTS --output {path} makes one")
    wanted = identity(site.model.model_id, site.gpu.name, site.engine, site.work)
    document = calibration_document(path)
    if is_carried:
        parameters = parse_carried(document, str(path), site.parameters, site.work)
        source = f"{path}, of {document.get('model')} on {document.get('gpu')}, carried over"
        return replace(site, parameters=parameters, provenance=ASSUMED, source=source)
    parameters = parse_own(document, str(path), wanted)
    return replace(
        site,
        parameters=parameters,
        provenance=CALIBRATED,
        source=str(path),
        tpot_error_ratio=held_out_error(document, "tpot_s", site.tpot_error_ratio),
        ttft_error_ratio=held_out_error(document, "ttft_s", site.ttft_error_ratio),
    )


def calibrate_results(
    paths: Sequence[Path], form: str, asked: Asked, output: Path | None, home: Path
) -> dict[str, Any]:
    """JSON of the fit to the results files at `paths`, all of one deployment; writes the calibration to `output`.

    Without `output` it goes to HOME/calibrations, by the names of model and GPU and the tensor-parallel size.
    """
    use_kernel_cache(print_note)
    site = replay_site(asked.site, home)
    sources = [asked.source(form, str(path)) for path in paths]
    runs = [_run(source, asked, site) for source in sources]
    try:
        fit = fitted(runs, site.work, site.parameters, site.engine.speculative_tokens, site.engine.data_parallel_size)
    except InputError as error:
        raise InputError(f"{', '.join(map(str, paths))}: {error}") from None
    document = identity(site.model.model_id, site.gpu.name, site.engine, site.work)
    document |= {"engine_version": site.engine.version or "newest", "start": site.source, "seed": asked.options.seed}
    document |= fit_document(fit) | {"parameters": parameter_table(fit.parameters.step)}
    document["start_parameters"] = parameter_table(merged_overheads(site.parameters, site.work).step)
    document["sources"] = [
        {"file": path.name, "format": source.format, "sha256": _sha256(path)}
        for path, source in zip(paths, sources, strict=True)
    ]
    output = output or _usual_path(site, home)
    write_calibrations(document, output)
    table = document["parameters"] | document["replay"]
    return {
        "fitted": {name: rounded(table[name]) for name in fit.fitted},
        "fit_requests": fit.fit_requests,
        "holdout_requests": fit.holdout_requests,
        "holdout_error_ratio": {name: fit.holdout_error_ratio[name] for name in MEASURES},
        "provenance": CALIBRATED,
        "output": str(output),
    }


def _usual_path(site: ReplaySite, home: Path) -> Path:
    folder = open_home(home).root / "calibrations"
    folder.mkdir(exist_ok=True)
    names = (site.model.model_id.replace("/", "__"), site.gpu.name, f"tp{site.engine.tensor_parallel_size}")
    return folder / ("--".join(names) + ".toml")


def _run(source: Source, asked: Asked, site: ReplaySite) -> Run:
    """The load of one results file as it arrived, with its logged times."""
    reading = read_rows(Path(source.path), source)
    trace = replay_trace(reading.rows, source.path, asked.options.seed, is_causal=False)
    return Run(trace, replay_settings(site.engine, asked.options, site.pool.pool, site.max_model_len, trace))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
