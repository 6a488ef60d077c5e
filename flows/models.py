"""The SQL models: found in sql/, read with their headers, and put in the order of the tables they read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from flows.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FOLDERS = ("staging", "core", "distributions", "marts", "audits")
"""Folders of models under sql/, in the order of the way of a row."""

OUTSIDE = ("raw_", "plan_")
"""Prefixes of relations that no model makes: the inputs of a build and the planner's tables."""

_HEADER = re.compile(r"\A-- (?P<text>.+)\n-- grain: (?P<grain>.+)\n(?:-- incremental: (?P<incremental>.+)\n)?")

INCREMENTAL = ("", "session", "week")
"""How a model is brought up to date, by a third line of its header: whole where it has none; `session`: a row follows
from the rows of its request and its session alone; `week`: a row follows from rows of its own week alone."""


@dataclass(frozen=True)
class Model:
    """One SELECT: its name (the relation), folder, header, text, the relations it reads, and how it is renewed."""

    name: str
    folder: str
    text: str
    grain: tuple[str, ...]
    sql: str
    reads: frozenset[str]
    incremental: str = ""


@cache
def models() -> tuple[Model, ...]:
    """All shipped models, each after the ones it reads; equals stand in alphabetical order."""
    paths = [path for folder in FOLDERS for path in sorted(shipped("sql", folder).glob("*.sql"))]
    return tuple(ordered([read_model(path) for path in paths]))


def read_model(path: Path) -> Model:
    """The model in the file at `path`; ValueError where it is not one SELECT under a header of two lines."""
    sql = path.read_text(encoding="utf-8")
    text, grain = read_header(path)
    found = _HEADER.match(sql)
    incremental = (found and found["incremental"]) or ""
    if incremental not in INCREMENTAL:
        raise ValueError(f"{path.name}: incremental must be session or week, not {incremental}")
    return Model(path.stem, path.parent.name, text, grain, sql, tables_read(sql, path.name), incremental)


def read_header(path: Path) -> tuple[str, tuple[str, ...]]:
    """What one row is, and the columns that name one, from the two lines that open the model at `path`."""
    header = _HEADER.match(path.read_text(encoding="utf-8"))
    if header is None:
        raise ValueError(f"{path.name}: must start with '-- One row per …' and '-- grain: …'")
    return header["text"].rstrip("."), tuple(column.strip() for column in header["grain"].split(","))


def tables_read(sql: str, where: str) -> frozenset[str]:
    """Names of the tables that `sql` reads, its own CTEs left out; ValueError unless it is one SELECT."""
    statements = [statement for statement in sqlglot.parse(sql, read="duckdb") if statement is not None]
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise ValueError(f"{where}: must be exactly one SELECT")
    return frozenset(
        source.name
        for scope in traverse_scope(statements[0])
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and source.name
    )


def ordered(found: Sequence[Model]) -> list[Model]:
    """`found` with each model after the ones it reads; ValueError on a cycle or a relation nobody makes."""
    by_name = {model.name: model for model in found}
    _check_incremental(by_name)
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for model in found:
        unknown = sorted(name for name in model.reads - by_name.keys() if not name.startswith(OUTSIDE))
        if unknown:
            raise ValueError(f"{model.name} reads {', '.join(unknown)}, which no model makes")
        sorter.add(model.name, *(model.reads & by_name.keys()))
    return [by_name[name] for name in _stable(sorter)]


def _check_incremental(by_name: Mapping[str, Model]) -> None:
    """ValueError where a model by session reads more than such models and raw rows, or one by week has no week."""
    for model in by_name.values():
        others = sorted(read for read in model.reads & by_name.keys() if by_name[read].incremental != "session")
        if model.incremental == "session" and others:
            raise ValueError(f"{model.name} is incremental by session and reads {others[0]}, which is not")
        if model.incremental == "week" and "week" not in model.grain:
            raise ValueError(f"{model.name} is incremental by week, which is not in its grain")


def _stable(sorter: TopologicalSorter[str]) -> Iterable[str]:
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"models read each other in a circle: {' -> '.join(error.args[1])}") from error
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        yield from ready
        sorter.done(*ready)


def readers(relations: Iterable[str]) -> frozenset[str]:
    """Names of the shipped models that read one of `relations`, or a model that does."""
    found = set(relations)
    for model in models():
        if model.reads & found:
            found.add(model.name)
    return frozenset(found & {model.name for model in models()})


def of_folders(*folders: str) -> list[Model]:
    """The shipped models of `folders`, in building order."""
    return [model for model in models() if model.folder in folders]
