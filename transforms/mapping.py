"""A mapping: which field of a log is which canonical column, as written in TOML."""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import field as field_of
from typing import TYPE_CHECKING, Any

from transforms.canonical import OPERATIONS, SERVED_BY, STATUSES
from transforms.errors import ConfigError, nearest
from transforms.fields.kinds import operation_of, server_of
from transforms.fields.numbers import PER_SECOND
from transforms.fields.outcome import outcome
from transforms.finish import FORMAT_SCHEMA
from transforms.fleet import Source
from transforms.plausible import COUNTS
from transforms.source_settings import check_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SET_BY_INGEST = frozenset({"source", "source_file", "source_position", "precedence"})
TARGETS = tuple(name for name in FORMAT_SCHEMA if name not in SET_BY_INGEST)
SETTINGS = tuple(f.name for f in fields(Source) if f.name not in ("format", "path", "name", "map"))
"""Settings of a source that a mapping may set for all files it is used for."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "settings": SETTINGS,
    "recognise": ("columns", "keys"),
    "ignore": ("present", "absent"),
}
"""Tables of a mapping file that are no columns, and their keys."""
WHOLE = frozenset((*COUNTS, "attempt", "turn", "prefix_block_tokens"))
"""Columns of whole numbers."""
PICK_KEYS: Mapping[str, tuple[type, str]] = {
    "field": (str, "the name of a field"),
    "unit": (str, "a unit of time"),
    "value": (object, "a constant"),
    "words": (dict, "a table of texts"),
    "only_words": (bool, "true or false"),
    "missing": (list, "a list of texts"),
    "relative": (bool, "true or false"),
}
"""Keys of a column's table, and what each must be."""


@dataclass(frozen=True)
class Pick:
    """Where one column comes from: a field, or a constant `value`.

    `unit` is the field's ("ms"); `words` replaces texts of the field (where `is_words_only`, all other texts mean
    unknown), `missing` lists texts that mean unknown; `is_relative` stamps count from the source's origin.
    """

    field: str = ""
    unit: str | None = None
    value: Any = None
    words: Mapping[str, str] = field_of(default_factory=dict)
    is_words_only: bool = False
    missing: tuple[str, ...] = ()
    is_relative: bool = False


@dataclass(frozen=True)
class FieldMap:
    """The columns of a mapping, each with the picks that are tried in turn.

    A record with one of the fields `ignored_if`, or with none of `ignored_unless`, is no request.
    """

    picks: Mapping[str, tuple[Pick, ...]]
    ignored_if: tuple[str, ...] = ()
    ignored_unless: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field the mapping reads, each once."""
        named = [pick.field for picks in self.picks.values() for pick in picks if pick.field]
        return tuple(dict.fromkeys([*named, *self.ignored_if, *self.ignored_unless]))

    @property
    def whole_fields(self) -> frozenset[str]:
        """Fields that are read as whole numbers and as nothing else."""
        others = {
            pick.field
            for target, picks in self.picks.items()
            for pick in picks
            if target not in WHOLE or pick.words or pick.missing
        }
        return frozenset(self.fields) - others - {*self.ignored_if, *self.ignored_unless}


def parse_mapping(document: Mapping[str, Any] | None, where: str = "mapping") -> FieldMap:
    """The mapping in a decoded TOML document, which `where` names in errors.

    ConfigError where a column or key is unknown, has no meaning, or none says the arrival.
    """
    if not document:
        raise ConfigError("format mapped needs a mapping: --map FILE.toml, or [sources.map] in the fleet file")
    picks = {}
    for target, entry in document.items():
        if target in BESIDE:
            _check_table(where, target, entry)
            continue
        if target not in TARGETS:
            raise ConfigError(f"{where}: unknown column '{target}'{nearest(target, TARGETS)}")
        entries = entry if isinstance(entry, list) else [entry]
        picks[target] = tuple(_pick(where, target, item) for item in entries)
    if not picks.get("arrived_at"):
        raise ConfigError(f'{where}: needs arrived_at, as in arrived_at = "timestamp"')
    required = document.get("recognise", {}).get("columns")
    every = tuple(pick.field for entries in picks.values() for pick in entries if pick.field)
    ignored_if, ignored_unless = (tuple(document.get("ignore", {}).get(key, ())) for key in BESIDE["ignore"])
    return FieldMap(picks, ignored_if, ignored_unless, every if required is None else tuple(required))


def _check_table(where: str, name: str, table: Any) -> None:
    """ConfigError where `[ignore]`, `[recognise]` or `[settings]` is no table, or has a key that it does not know."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: '{name}' must be a table, as in [{name}]")
    if name == "settings":
        check_settings(table, f"{where}: [settings]")
    for key, value in table.items():
        if key not in BESIDE[name]:
            raise ConfigError(f"{where}: unknown key '{key}' in [{name}]{nearest(key, BESIDE[name])}")
        if name != "settings" and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise ConfigError(f"{where}: '{key}' in [{name}] must be a list of field names")


def _pick(where: str, target: str, entry: Any) -> Pick:
    if isinstance(entry, str):
        return Pick(entry)
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: '{target}' must be a field's name or a table such as {{ field = \"latency_ms\" }}")
    for key, value in entry.items():
        if key not in PICK_KEYS:
            raise ConfigError(f"{where}: unknown key '{key}' in '{target}'{nearest(key, PICK_KEYS)}")
        kind, words = PICK_KEYS[key]
        if not isinstance(value, kind):
            raise ConfigError(f"{where}: '{key}' of '{target}' must be {words}, not {value!r}")
    unit = entry.get("unit")
    if unit is not None and unit not in PER_SECOND:
        raise ConfigError(f"{where}: unit '{unit}' in '{target}' must be one of {', '.join(PER_SECOND)}")
    if ("field" in entry) == ("value" in entry):
        raise ConfigError(f"{where}: '{target}' needs either field or value")
    given = [*entry.get("words", {}).values(), *([entry["value"]] if "value" in entry else [])]
    _check_words(where, target, given)
    return Pick(
        field=entry.get("field", ""),
        unit=unit,
        value=entry.get("value"),
        words={str(k): str(v) for k, v in entry.get("words", {}).items()},
        is_words_only=bool(entry.get("only_words", False)),
        missing=tuple(str(text) for text in entry.get("missing", ())),
        is_relative=bool(entry.get("relative", False)),
    )


MEANINGS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], str | None]]] = {
    "status": (STATUSES, lambda word: outcome(word, "")),
    "served_by": (SERVED_BY, server_of),
    "operation": (OPERATIONS, operation_of),
}


def _check_words(where: str, target: str, given: Sequence[Any]) -> None:
    """ConfigError where the mapping itself brings a word that means nothing in its column."""
    if target not in MEANINGS:
        return
    known, meaning = MEANINGS[target]
    for word in given:
        try:
            found = meaning(word)
        except ValueError:
            found = ""
        if found == "":
            raise ConfigError(f"{where}: '{word}' in '{target}' must be one of {', '.join(known)}")
