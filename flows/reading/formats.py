"""The log formats by name: modules of transforms/sources, and mapping files for the flat ones."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flows.shipped import shipped
from transforms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from transforms.fleet import Source

AUTO = "auto"
"""In place of a format: the one that is recognised."""
MAPPED = "mapped"
"""The format that a mapping of the user's describes."""


@functools.cache
def python_formats() -> tuple[str, ...]:
    """Names of the formats with a module of their own, as written on the command line."""
    import transforms.sources

    modules = pkgutil.iter_modules(transforms.sources.__path__)
    names = (m.name.replace("_", "-") for m in modules if not m.name.startswith("_"))
    return tuple(sorted(names))


def mapping_files(catalog: Path | None = None) -> dict[str, Path]:
    """Mapping file of each flat format; those of `catalog` (HOME/catalog) lie over the shipped ones."""
    folders = [shipped("data", "catalog", "formats")] + ([catalog / "formats"] if catalog else [])
    return {path.stem: path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.toml"))}


def format_names(catalog: Path | None = None) -> tuple[str, ...]:
    """Every format name, sorted."""
    return tuple(sorted({*python_formats(), *mapping_files(catalog)}))


def module_of(name: str, catalog: Path | None = None) -> ModuleType:
    """The module that reads format `name`; ConfigError with the nearest known name where there is none."""
    if name in python_formats():
        return importlib.import_module(f"transforms.sources.{name.replace('-', '_')}")
    if name in mapping_files(catalog):
        return importlib.import_module("transforms.sources.mapped")
    known = format_names(catalog)
    raise ConfigError(f"format '{name}' is unknown{nearest(name, known)} (known: {', '.join(known)}, auto)")


def read_mapping(path: Path) -> dict[str, Any]:
    """A mapping file as a dict; ConfigError where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"mapping file {path} cannot be read ({error.strerror}); name one that exists") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"mapping file {path} is no TOML: {error}") from error


def with_defaults(source: Source, catalog: Path | None = None) -> Source:
    """`source` with the format's own settings (and, for a flat format, its mapping) where the user gave none."""
    module = module_of(source.format, catalog)
    defaults: dict[str, Any] = dict(module.DEFAULTS)
    mapping = mapping_files(catalog).get(source.format)
    if mapping is not None and source.map is None:
        document = read_mapping(mapping)
        defaults |= document.pop("settings", {})
        defaults["map"] = document
    elif source.map is not None:
        defaults |= source.map.get("settings", {})
    given = {k: v for k, v in defaults.items() if getattr(source, k) is None}
    return replace(source, **given)
