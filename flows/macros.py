"""The SQL macros kept in the warehouse file itself, from sql/macros/: one CREATE MACRO each, under a short header."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from flows.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

_HEADER = re.compile(r"\A-- (?P<text>.+)\n(?:-- unit: (?P<unit>.+)\n)?-- example: (?P<example>.+)\n")
_HEAD = re.compile(r"create or replace macro (?P<name>\w+)\((?P<parameters>[^()]*)\) as ")


@dataclass(frozen=True)
class Macro:
    """One macro: how it is called, what it gives, in which unit (empty without one), and one call."""

    name: str
    parameters: str
    text: str
    unit: str
    example: str
    sql: str

    @property
    def signature(self) -> str:
        """Name and parameters, as in `kv_bytes(deployment_id, tokens)`."""
        return f"{self.name}({self.parameters})"

    @property
    def comment(self) -> str:
        """The text with the unit behind it."""
        return f"{self.text} [{self.unit}]" if self.unit else self.text


@cache
def macros() -> tuple[Macro, ...]:
    """All shipped macros by name; those that call another come after it."""
    found = [read_macro(path) for path in sorted(shipped("sql", "macros").glob("*.sql"))]
    return tuple(sorted(found, key=lambda macro: sum(f"{other.name}(" in macro.sql for other in found)))


def read_macro(path: Path) -> Macro:
    """The macro in the file at `path`; ValueError where it is not one CREATE MACRO of that name under its header."""
    sql = path.read_text(encoding="utf-8")
    header, head = _HEADER.match(sql), _HEAD.search(sql)
    if header is None or head is None or head["name"] != path.stem or sql.count("create ") != 1:
        raise ValueError(f"{path.name}: must be a header and one 'create or replace macro {path.stem}(…) as'")
    parameters = " ".join(head["parameters"].split())
    return Macro(path.stem, parameters, header["text"], header["unit"] or "", header["example"], sql)


def create_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Put every macro, with its comment, into the database that `connection` uses; its tables stand already."""
    for macro in macros():
        connection.execute(macro.sql)
        comment = macro.comment.replace("'", "''")
        connection.execute(f"comment on macro {macro.name} is '{comment}'")
