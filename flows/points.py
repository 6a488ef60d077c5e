"""Points of a benchmark on disk: the CSV read, each point placed on its model and GPU from catalog and configs."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.errors import CapacityError, CatalogError, ConfigError, InputError, KvledgerError
from transforms.fleet import Engine
from transforms.planner.memory.budget import is_divisible, smallest_tensor_parallel_size
from transforms.planner.model.expert_layout import expert_layout
from transforms.planner.model.parameters import parameters
from transforms.planner.model.weight_dtypes import kv_dtype, with_weights
from transforms.planner.model.weights import weights
from transforms.planner.steps.points import Placed, missing_columns, parse_point, readings, resident_requests
from transforms.planner.steps.step_work import step_work, widened

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.catalog import Catalog
    from transforms.catalog import Gpu
    from transforms.planner.model.parameters import Parameters
    from transforms.planner.steps.points import Point, Reading
    from transforms.planner.steps.step_work import Layout, StepWork

USABLE_RATIO = 0.93
"""Share of a GPU's memory that benchmarks give the engine: public recipes set 0.9 to 0.95; none is recorded."""
RUNTIME_BYTES = 2 << 30
"""Activations, libraries and graphs on each GPU, roughly as in start-up logs of vLLM on data-centre GPUs."""


def read_points(path: Path, more: tuple[str, ...] = ()) -> list[dict[str, str | None]]:
    """Rows of the CSV at `path` as texts; InputError names columns (those of a point, and `more`) that lack."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            columns = list(reader.fieldnames or ())
            rows: list[dict[str, str | None]] = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    missing = missing_columns(columns) + [name for name in more if name not in columns]
    if missing:
        raise InputError(f"{path}: lacks the columns {', '.join(missing)}; a points file names them in its first line")
    if not rows:
        raise InputError(f"{path}: has no points below its first line")
    return rows


@dataclass
class Placing:
    """Places points, remembering what several of them share."""

    catalog: Catalog
    configs: Path | None
    _models: dict[tuple[str, str], tuple[Mapping[str, Any], Parameters]] = field(default_factory=dict)
    _held: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _works: dict[tuple[Any, ...], StepWork] = field(default_factory=dict)
    _refused: dict[tuple[Any, ...], KvledgerError] = field(default_factory=dict)

    def placed(self, row: Mapping[str, str | None]) -> tuple[Point, Placed, Gpu]:
        """The point of `row` on its replica; KvledgerError says why it cannot be."""
        point = parse_point(row)
        gpu = self.catalog.gpu(point.gpu)
        config, counted = self._model(point)
        trouble: KvledgerError | None = None
        for reading in readings(point, has_experts=counted.routed_experts > 0):
            try:
                return point, self._on(point, reading, config, gpu), gpu
            except KvledgerError as error:
                trouble = error
        assert trouble is not None
        raise trouble

    def _model(self, point: Point) -> tuple[Mapping[str, Any], Parameters]:
        """Config of the point's model in its weights' dtype, and its parameters counted."""
        key = (point.config_file, point.weights)
        if key not in self._models:
            config = with_weights(self._config(point.config_file), point.weights, point.config_file)
            self._models[key] = config, parameters(config, point.config_file)
        return self._models[key]

    def _config(self, name: str) -> Mapping[str, Any]:
        """The config NAME.json of the configs folder, else the catalog's model of this id or path."""
        if self.configs is None:
            return self.catalog.model(name).config
        path = self.configs / f"{name}.json"
        if not path.is_file():
            raise CatalogError(f"config_file '{name}': there is no {name}.json in {self.configs}")
        return self.catalog.model(str(path)).config

    def _on(self, point: Point, reading: Reading, config: Mapping[str, Any], gpu: Gpu) -> Placed:
        layout = reading.layout
        key = (point.config_file, point.weights, gpu.name, layout, point.engine)
        if key in self._refused:
            raise self._refused[key]
        try:
            if key not in self._works:
                self._works[key] = self._work(point, layout, config, gpu)
        except KvledgerError as error:
            self._refused[key] = error
            raise
        held = self._weights(point, layout, config, gpu)
        free_bytes = layout.gpus * (USABLE_RATIO * gpu.memory_bytes - RUNTIME_BYTES - held)
        work = self._works[key]
        return Placed(reading, work, resident_requests(point, work, free_bytes, reading.concurrency))

    def _work(self, point: Point, layout: Layout, config: Mapping[str, Any], gpu: Gpu) -> StepWork:
        """Work of a step; ConfigError where the layout does not divide the model, CapacityError where it cannot be."""
        where, (_, counted) = point.config_file, self._model(point)
        if not is_divisible(config, where, layout.tensor):
            raise ConfigError(f"tp {layout.tensor} does not divide the heads or the vocabulary of {where}")
        if layout.pipeline > len(counted.layers):
            raise ConfigError(f"pp {layout.pipeline} is more than the {len(counted.layers)} layers of {where}")
        held = self._weights(point, layout, config, gpu)
        if held + RUNTIME_BYTES >= USABLE_RATIO * gpu.memory_bytes:
            smallest = smallest_tensor_parallel_size(config, gpu, Engine(name=point.engine), where)
            raise CapacityError(
                f"weights do not fit: {held / 2**30:.1f} GiB on each {gpu.name} of {gpu.memory_bytes / 2**30:.1f} GiB; "
                + (f"the smallest tensor-parallel size that fits is {smallest}" if smallest else "no size fits")
            )
        return step_work(
            config,
            where,
            gpu,
            layout,
            engine_name=point.engine,
            kv_cache_dtype=kv_dtype(point.weights, point.engine, is_fp4_gpu="fp4" in gpu.peak_flop_per_s),
            dtype=widened(point.weights if point.weights in ("fp8", "fp4") else "bf16", gpu),
            counted=counted,
        )

    def _weights(self, point: Point, layout: Layout, config: Mapping[str, Any], gpu: Gpu) -> int:
        """Weight bytes on the fullest GPU."""
        experts = expert_layout(point.engine, gpu)
        key = (point.config_file, point.weights, layout.tensor, layout.pipeline, layout.data, experts)
        if key not in self._held:
            counted = weights(
                config,
                point.config_file,
                tensor=layout.tensor,
                pipeline=layout.pipeline,
                data=layout.data,
                layout=experts,
            )
            self._held[key] = counted.per_gpu_bytes
        return self._held[key]


def whole_or_nan(row: Mapping[str, str | None], name: str) -> float:
    """Number of column `name` above zero, NaN where it is none."""
    try:
        value = float(row.get(name) or "nan")
    except ValueError:
        return math.nan
    return value if value > 0 else math.nan
