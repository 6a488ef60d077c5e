"""The catalog's records: decoded GPU, price and model documents become checked values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transforms.errors import CatalogError, nearest

_DATA_CENTRE_BLACKWELL, _CONSUMER = 10.0, 11.0
PEAK_DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8", "fp4", "int4")


@dataclass(frozen=True)
class Gpu:
    """One GPU. Peaks are dense (no 2:4 sparsity); `link_bytes_per_s` is one direction, all links of a GPU together."""

    name: str
    memory_bytes: int
    """What the driver reports (the total of cudaMemGetInfo), not what the label says."""
    bandwidth_bytes_per_s: float
    peak_flop_per_s: Mapping[str, float]
    sources: Mapping[str, str]
    """Where the facts come from, by the section of the GPU's file."""
    vendor: str = "NVIDIA"
    link_bytes_per_s: float | None = None
    host_bytes_per_s: float | None = None
    """To the memory of its host, one direction; None where `link_bytes_per_s` is that of PCIe."""
    gpus_per_node: int | None = None
    is_whole_node: bool = False
    """Whether it is bought or rented by the whole node only."""
    compute_capability: float | None = None
    """NVIDIA's number of the GPU's generation, which engines choose kernels by; None on others."""
    is_sampling_sorted: bool = False
    """Whether a measured run on this GPU sampled by sorting the logits, where others have a kernel for it."""

    @property
    def is_data_centre_blackwell(self) -> bool:
        """Whether the GPU is one of compute capability 10.x: B200, B300, GB200, GB300."""
        return self.compute_capability is not None and _DATA_CENTRE_BLACKWELL <= self.compute_capability < _CONSUMER

    @property
    def offload_bytes_per_s(self) -> float | None:
        """Bytes per second to the memory of the host, one direction; None where nobody says."""
        return self.host_bytes_per_s or self.link_bytes_per_s

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s at `dtype`; CatalogError names the dtypes this GPU has."""
        found = self.peak_flop_per_s.get(dtype)
        if found is None:
            known = ", ".join(self.peak_flop_per_s)
            raise CatalogError(f"GPU {self.name} has no peak for '{dtype}'; its entry has {known}")
        return found


@dataclass(frozen=True)
class Prices:
    """USD per GPU-hour by GPU name, each with its source; `provenance` says how far to trust them."""

    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    provenance: str = "assumed"

    def of(self, gpu: str, overrides: Mapping[str, float] | None = None) -> float | None:
        """USD per hour of one `gpu`, the fleet file's `[prices]` first; None where nobody named a price."""
        return (overrides or {}).get(gpu, self.usd_per_hour.get(gpu))


@dataclass(frozen=True)
class CatalogModel:
    """A model: its id, the facts of its Hugging Face config.json, and where they come from."""

    model_id: str
    config: Mapping[str, Any]
    where: str
    source: str


_GPU_SECTIONS: dict[str, tuple[str, ...]] = {
    "memory": ("memory_bytes",),
    "peak": tuple(f"{dtype}_flop_per_s" for dtype in PEAK_DTYPES),
    "bandwidth": ("bandwidth_bytes_per_s",),
    "link": ("link_bytes_per_s",),
    "host": ("host_bytes_per_s",),
    "node": ("gpus_per_node", "is_whole_node"),
    "architecture": ("compute_capability",),
    "start_up": ("is_sampling_sorted",),
}
_NEEDED_SECTIONS = ("memory", "peak", "bandwidth")


def parse_gpu(document: Mapping[str, Any], where: str) -> Gpu:
    """The GPU in a decoded TOML `document`; every section must name its source. CatalogError names what is amiss."""
    _known_keys(document, ("name", "vendor", *_GPU_SECTIONS), where)
    for section in _NEEDED_SECTIONS:
        if section not in document:
            raise CatalogError(f"{where}: section [{section}] is missing; a GPU needs memory, peak and bandwidth")
    facts: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for section in (s for s in _GPU_SECTIONS if s in document):
        facts |= _section(document[section], section, where)
        sources[section] = facts.pop("source")
    peaks = {d: _positive(facts.pop(f"{d}_flop_per_s"), where) for d in PEAK_DTYPES if f"{d}_flop_per_s" in facts}
    if not peaks:
        raise CatalogError(f"{where}: [peak] names no dtype; it knows {', '.join(_GPU_SECTIONS['peak'])}")
    return Gpu(
        name=_text(document.get("name"), "name", where),
        vendor=_text(document.get("vendor", "NVIDIA"), "vendor", where),
        memory_bytes=_positive(facts.pop("memory_bytes", None), where),
        bandwidth_bytes_per_s=_positive(facts.pop("bandwidth_bytes_per_s", None), where),
        peak_flop_per_s=peaks,
        sources=sources,
        **facts,
    )


def parse_prices(document: Mapping[str, Any], where: str) -> Prices:
    """The prices in a decoded TOML `document`: `[usd_per_hour.<GPU>]` tables of `usd_per_hour` and `source`."""
    _known_keys(document, ("provenance", "usd_per_hour"), where)
    prices: dict[str, float] = {}
    sources: dict[str, str] = {}
    for gpu, entry in document.get("usd_per_hour", {}).items():
        _known_keys(entry, ("usd_per_hour", "source"), f"{where}: {gpu}")
        prices[gpu] = float(_positive(entry.get("usd_per_hour"), f"{where}: {gpu}"))
        sources[gpu] = _text(entry.get("source"), "source", f"{where}: {gpu}")
    return Prices(prices, sources, _text(document.get("provenance", "assumed"), "provenance", where))


def parse_model(document: Mapping[str, Any], model_id: str, where: str) -> CatalogModel:
    """The model in a decoded config.json; a shipped one says its `source`, a user's own file is its own source."""
    if not isinstance(document, Mapping):
        raise CatalogError(f"{where}: a model is a JSON object as in Hugging Face's config.json")
    return CatalogModel(model_id, document, where, str(document.get("source", where)))


def model_named_in(document: Any) -> str | None:
    """Id of the one model that LLMServingSim's description of a cluster serves; None where `document` is none."""
    nodes = document.get("nodes") if isinstance(document, Mapping) else None
    if not isinstance(nodes, list) or not all(isinstance(node, Mapping) for node in nodes):
        return None
    lists = [node.get("instances") for node in nodes]
    instances = [instance for found in lists if isinstance(found, list) for instance in found]
    names = [instance.get("model_name") for instance in instances if isinstance(instance, Mapping)]
    is_one = bool(names) and all(isinstance(name, str) and name == names[0] for name in names)
    return names[0] if is_one else None


def _section(table: Any, section: str, where: str) -> dict[str, Any]:
    """Facts of one section with its source, checked for unknown keys and wrong kinds."""
    _known_keys(table, (*_GPU_SECTIONS[section], "source"), f"{where}: [{section}]")
    _text(table.get("source"), f"{section}.source", where)
    check: dict[str, Callable[[Any, str], Any]] = {
        "is_whole_node": _flag,
        "is_sampling_sorted": _flag,
        "source": lambda value, _: value,
    }
    return {key: check.get(key, _positive)(value, f"{where}: [{section}] {key}") for key, value in table.items()}


def _known_keys(table: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(table, Mapping):
        raise CatalogError(f"{where} must be a table")
    for key in table:
        if key not in known:
            raise CatalogError(f"{where}: unknown key '{key}'{nearest(key, known)}")


def _positive(value: Any, where: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise CatalogError(f"{where}: must be a number above zero, not {value!r}")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise CatalogError(f"{where}: must be true or false, not {value!r}")
    return value


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise CatalogError(f"{where}: '{key}' must be text and say something")
    return value
