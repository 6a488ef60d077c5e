"""The catalog on disk: HOME/catalog laid over the shipped one, one file read per look-up."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.shipped import shipped
from transforms.catalog import CatalogModel, Gpu, Prices, model_named_in, parse_gpu, parse_model, parse_prices
from transforms.errors import CatalogError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.home import Home

_LARGEST_CONFIG_BYTES = 16 << 20


@dataclass(frozen=True)
class Catalog:
    """Look-ups in `folders`, the first that has a name wins. Nothing is read before it is asked for."""

    folders: tuple[Path, ...]

    def gpu(self, name: str) -> Gpu:
        """The GPU called `name`; CatalogError names the nearest and those that are known."""
        path = self._find("gpus", f"{name}.toml")
        if path is None:
            known = self.gpu_names()
            raise CatalogError(
                f"GPU '{name}' is not in the catalog{nearest(name, known)}; known are {', '.join(known)}"
            )
        gpu = parse_gpu(_toml(path), str(path))
        if gpu.name != name:
            raise CatalogError(f"{path}: the file calls itself '{gpu.name}'; name the file {gpu.name}.toml")
        return gpu

    def model(self, id_or_path: str, base: Path | None = None) -> CatalogModel:
        """The model with this catalog id, or of the config.json at this path (from `base`); else CatalogError."""
        found = self._find("models", f"{id_or_path.replace('/', '__')}.json")
        if found is not None:
            return parse_model(_json(found), id_or_path, str(found))
        path = (base or Path()) / id_or_path
        is_folder = _is(path, Path.is_dir)
        config = path / "config.json" if is_folder else path
        if _is(config, Path.is_file):
            document = _json(config)
            named = model_named_in(document)
            return self.model(named) if named is not None else parse_model(document, id_or_path, str(config))
        known = self.model_ids()
        if id_or_path.endswith(".json") and not is_folder:
            raise CatalogError(f"model config {config} does not exist; name a config.json or one of the catalog's ids")
        if is_folder:
            raise CatalogError(
                f"model folder {path} has no config.json; name a config.json or one of the catalog's ids"
            )
        raise CatalogError(
            f"model '{id_or_path}' is not in the catalog{nearest(id_or_path, known)}; "
            f"name a config.json, or one of: {', '.join(known)}"
        )

    def prices(self) -> Prices:
        """USD per GPU-hour: those of HOME/catalog/prices.toml over the shipped ones."""
        merged = Prices()
        for path in (folder / "prices.toml" for folder in reversed(self.folders)):
            if not path.is_file():
                continue
            prices = parse_prices(_toml(path), str(path))
            merged = Prices(
                {**merged.usd_per_hour, **prices.usd_per_hour},
                {**merged.sources, **prices.sources},
                prices.provenance,
            )
        return merged

    def gpu_names(self) -> list[str]:
        """Names of all GPUs, sorted."""
        return self._stems("gpus", ".toml")

    def model_ids(self) -> list[str]:
        """Ids of all models (`org/name`), sorted."""
        return [stem.replace("__", "/", 1) for stem in self._stems("models", ".json")]

    def sha256(self, gpus: list[str], models: list[str], base: Path | None = None) -> str:
        """Digest over the files these names resolve to (paths from `base`) and the price files."""
        import hashlib

        paths = [self._find("gpus", f"{name}.toml") for name in sorted(set(gpus))]
        for name in sorted(set(models)):
            path = (base or Path()) / name
            own = path / "config.json" if path.is_dir() else path
            paths.append(self._find("models", f"{name.replace('/', '__')}.json") or own)
        paths += [folder / "prices.toml" for folder in self.folders]
        digest = hashlib.sha256()
        for path in (p for p in paths if p is not None and p.is_file()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def _find(self, *parts: str) -> Path | None:
        paths = (folder.joinpath(*parts) for folder in self.folders)
        return next((path for path in paths if _is(path, Path.is_file)), None)

    def _stems(self, kind: str, suffix: str) -> list[str]:
        return sorted({p.name.removesuffix(suffix) for f in self.folders for p in (f / kind).glob(f"*{suffix}")})


def load_catalog(home: Home | None) -> Catalog:
    """The catalog of `home` laid over the shipped one (the shipped one alone without a home)."""
    own = (home.catalog,) if home is not None else ()
    return Catalog((*own, shipped("data", "catalog")))


def _is(path: Path, asked: Callable[[Path], bool]) -> bool:
    """Whether `path` is what `asked` asks; names that no file can have are of none."""
    try:
        return asked(path)
    except OSError:
        return False


@cache
def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{path} cannot be read as TOML: {error}") from error


@cache
def _json(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > _LARGEST_CONFIG_BYTES:
            raise CatalogError(
                f"{path} has {size:,} bytes, a model's config.json has some thousand; name the config, not the weights"
            )
        return json.loads(path.read_bytes())
    except RecursionError:
        raise CatalogError(f"{path} cannot be read as JSON: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path} cannot be read as JSON: {error}") from error
