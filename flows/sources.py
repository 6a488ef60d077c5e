"""Mistakes in how a source is described, found before anything is read, started or written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.reading.formats import AUTO, MAPPED, mapping_files, module_of, read_mapping
from transforms.errors import ConfigError
from transforms.mapping import parse_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from transforms.fleet import Source


def check_sources(sources: Iterable[Source], catalog: Path, fleet: Path) -> None:
    """Nothing, if every format of the fleet file `fleet` exists and every mapping can be used; else ConfigError."""
    for source in sources:
        where = f"{fleet}: source '{source.name or source.path}'"
        try:
            check_format(source.format, catalog)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if source.map is not None:
            parse_mapping(source.map, f"{where}: [sources.map]")
        elif source.format == MAPPED:
            raise ConfigError(f"{where}: format mapped needs [sources.map], which says which field is which column")


def check_format(name: str, catalog: Path) -> None:
    """Nothing, if the format exists and its mapping file, where it is one, can be used; else ConfigError."""
    if name == AUTO:
        return
    module_of(name, catalog)
    path = mapping_files(catalog).get(name)
    if path is not None:
        parse_mapping(read_mapping(path), f"mapping file {path}")
