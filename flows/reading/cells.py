"""The cells of chosen fields of JSON lines, as the JSON texts they are written with: fast where lines are plain."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from flows.reading.nested import look_up
from transforms.batches import Reject
from transforms.fields.decode import NOT_AN_OBJECT, NOT_JSON, parse_slowly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass
class DecodedCells:
    """Cells by field (JSON texts; NULL where absent or null), row by row positions and flags, and rejects."""

    cells: pl.DataFrame
    positions: list[int]
    flags: list[tuple[str, ...]]
    rejects: list[Reject] = field(default_factory=list)


class CellDecoder:
    """Finds the cells of `fields` in JSON lines.

    A field is a key as it is written, dots and all, or a path of keys, which goes into texts of JSON too; the key wins
    where both are there. Of a key that stands twice the last one counts, and the record is flagged.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        """Make the struct that decodes just these fields."""
        self.fields = tuple(fields)
        leaves = {name.rpartition(".")[2] for name in fields} | set(fields)
        self._marks = [json.dumps(leaf, ensure_ascii=False).encode() + b":" for leaf in sorted(leaves)]
        tree: dict[str, Any] = {}
        self._paths = {name: [p for p in _paths(name) if _plant(tree, p)] for name in fields}
        is_plain = all(len(self._paths[name]) == len(_paths(name)) for name in fields)
        self._decoder: msgspec.json.Decoder[Any] | None = msgspec.json.Decoder(_struct(tree)) if is_plain else None
        self._getters = [_getter(tree, self._paths[name]) for name in fields] if is_plain else []

    def decode(self, lines: Sequence[bytes], positions: Sequence[int]) -> DecodedCells:
        """The cells of all lines that are JSON objects."""
        rows: list[list[bytes | None]] = []
        kept: list[int] = []
        flags: list[tuple[str, ...]] = []
        rejects: list[Reject] = []
        is_doubtful = self._may_repeat(lines)
        for line, position in zip(lines, positions, strict=True):
            try:
                row, odd = self._row(line, is_doubtful=is_doubtful)
            except ValueError as error:
                rejects.append(Reject(position, str(error)))
                continue
            kept.append(position)
            flags.append(odd)
            rows.append(row)
        columns = zip(*rows, strict=True) if rows else ([] for _ in self.fields)
        cells = {name: _texts(name, list(column)) for name, column in zip(self.fields, columns, strict=True)}
        return DecodedCells(pl.DataFrame(cells), kept, flags, rejects)

    def _row(self, line: bytes, *, is_doubtful: bool) -> tuple[list[bytes | None], tuple[str, ...]]:
        if self._decoder is None or (is_doubtful and any(line.count(mark) > 1 for mark in self._marks)):
            return self._slow_row(line)
        try:
            value = self._decoder.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return self._slow_row(line)
        return [getter(value) for getter in self._getters], ()

    def _slow_row(self, line: bytes) -> tuple[list[bytes | None], tuple[str, ...]]:
        try:
            value, flags = parse_slowly(line)
        except (ValueError, RecursionError):
            raise ValueError(NOT_JSON) from None
        if not isinstance(value, dict):
            raise ValueError(NOT_AN_OBJECT)  # noqa: TRY004 - one class for every unusable record
        found = (look_up(value, name) for name in self.fields)
        return [None if cell is None else json.dumps(cell).encode() for cell in found], flags

    def _may_repeat(self, lines: Sequence[bytes]) -> bool:
        """Whether a line may hold one of the keys twice: never wrong about one that does."""
        block = b"\n".join(lines)
        return any(block.count(mark) > 1 for mark in self._marks) and any(
            max(map(line.count, self._marks)) > 1 for line in lines
        )


def _paths(name: str) -> list[tuple[str, ...]]:
    """The key itself, then the path of keys it may stand for."""
    path = tuple(name.split("."))
    return [(name,)] if len(path) == 1 else [(name,), path]


def _plant(tree: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Whether `path` could be put into the tree of keys: not where a key would be both a value and an object."""
    branch: Any = tree
    for key in path[:-1]:
        branch = branch.setdefault(key, {})
        if branch is None:
            return False
    return branch.setdefault(path[-1], None) is None


def _struct(tree: dict[str, Any]) -> type:
    members = [
        (f"k{n}", msgspec.Raw if branch is None else _struct(branch), None) for n, branch in enumerate(tree.values())
    ]
    names = {f"k{n}": key for n, key in enumerate(tree)}
    return msgspec.defstruct("Fields", members, rename=names)


def _getter(tree: dict[str, Any], paths: Sequence[tuple[str, ...]]) -> Callable[[Any], bytes | None]:
    attributes = [_attributes(tree, path) for path in paths]

    def get(value: Any) -> bytes | None:
        for path in attributes:
            found = value
            for name in path:
                found = None if found is None else getattr(found, name)
            if found is not None and (cell := bytes(found)) != b"null":
                return cell
        return None

    return get


def _attributes(tree: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    names = []
    for key in path:
        names.append(f"k{list(tree).index(key)}")
        tree = tree[key] or {}
    return names


def _texts(name: str, column: list[bytes | None]) -> pl.Series:
    try:
        return pl.Series(name, column, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.PolarsError:
        texts = [None if cell is None else cell.decode("utf-8", errors="replace") for cell in column]
        return pl.Series(name, texts, dtype=pl.String)
