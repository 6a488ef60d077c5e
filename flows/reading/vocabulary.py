"""The names of fields that a format's reader knows: all others of a log are unknown to it."""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from typing import TYPE_CHECKING

from flows.reading.formats import module_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from transforms.fleet import Source

READERS = ("transforms.sources.", "transforms.fields.")


def vocabulary(source: Source, catalog: Path | None = None) -> frozenset[str]:
    """Names that may be fields of `source`'s format: those its mapping reads, or that its code names.

    A reader in Python names its fields as texts in its module and in the modules of its kind that this one imports; the
    words among them that are no fields do no harm here.
    """
    module = module_of(source.format, catalog)
    if hasattr(module, "fields_of"):
        fields = module.fields_of(source)
        named = (*fields.fields, *fields.required)
        return frozenset(part for name in named for part in (name, name.partition(".")[0]))
    return _named_in(module.__name__)


@cache
def _named_in(root: str) -> frozenset[str]:
    names: set[str] = set()
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        names.update(_words(tree))
        waiting += _readers(tree)
    return frozenset(names)


def _readers(tree: ast.Module) -> Iterator[str]:
    """Modules of formats and fields that this one imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(READERS):
            yield node.module or ""


def _words(tree: ast.Module) -> Iterator[str]:
    """Texts in the code that may be names: of one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) == 1:
            yield node.value
