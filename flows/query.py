"""One SELECT on the published warehouse, read only: its columns and rows, or one line that says what is wrong."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from flows.dictionary import dictionary
from flows.macros import macros
from flows.warehouse import published
from transforms.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flows.home import Home

BATCH_ROWS = 10_000
ALLOWED = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
LARGEST_INT = 2**63 - 1
"""Largest whole number JSON readers are sure to take; larger ones become floats."""

KEYWORDS = ("select", "from", "where", "group", "order", "having", "limit", "with", "join", "union", "describe")
"""Words of SQL that a misspelt one may have meant."""
SHORTEST_WORD = 3
"""Letters of a word that may be a misspelt keyword."""

OLDER = ": it was built by an older kvledger; run kvledger build"
CLOSED = "query: reads the tables of the warehouse and nothing else: files, addresses and extensions are closed to it"

_CLOSED = re.compile(r"Permission Error|required extension|exists in the \w+ extension")
_NEAR = re.compile(r'at or near "(.+)"')
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
_UNKNOWN_TABLE = re.compile(r"Table with name \"?([^\"\s]+?)\"? does not exist")
_UNKNOWN_FUNCTION = re.compile(r"Function with name \"?([^\"\s]+?)\"? does not exist")
_UNKNOWN_COLUMN = re.compile(
    r"(?:Referenced column|a column named) \"?([^\"\s]+?)\"?(?: not found| was not found|$)", re.MULTILINE
)


@dataclass(frozen=True)
class Answer:
    """Columns with their DuckDB types, and the rows as they are asked for."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def asked(home: Home, sql: str, version: int | None = None) -> Iterator[Answer]:
    """The answer to `sql` on the published warehouse, or on an earlier `version` of it.

    ConfigError for what is no single SELECT, DataError otherwise.
    """
    with reading(home, sql, version) as connection:
        result = connection.execute(sql)
        described = result.description or []
        yield Answer(
            columns=tuple(unique_names([str(column[0]) for column in described])),
            types=tuple(str(column[1]).lower() for column in described),
            rows=_rows(result),
        )


@contextmanager
def reading(home: Home, sql: str, version: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for one SELECT, which is looked at first; what goes wrong with it is said in one line."""
    with published(home, version) as connection:
        check_statement(connection, sql)
        try:
            yield connection
        except duckdb.Error as error:
            raise DataError(explain(connection, error, sql)) from error


def check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Nothing, if `sql` is one statement that reads; ConfigError says what it is instead."""
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise ConfigError(unreadable(error)) from error
    if len(statements) != 1:
        raise ConfigError(f"query: give one SELECT, not {len(statements)} statements")
    if statements[0].type == duckdb.StatementType.MULTI:  # PIVOT makes a type of the values that it finds
        raise ConfigError("query: PIVOT has to say its values here, as in ON reason IN ('aborted', 'none')")
    if statements[0].type not in ALLOWED:
        raise ConfigError(
            f"query: only reads, and this is {statements[0].type.name}; the warehouse is never written here"
        )


def unreadable(error: duckdb.Error) -> str:
    """One line for SQL that DuckDB cannot parse: what, in which line of it, and the keyword that was meant or help."""
    what = _first_line(error).removeprefix("Parser Error: ")
    place = _LINE.search(str(error))
    where = f" in line {place[1]}" if place else ""
    at = _NEAR.search(what)
    word = at[1].lower() if at else ""
    is_misspelt = len(word) >= SHORTEST_WORD and word not in KEYWORDS
    hint = (is_misspelt and nearest(word, KEYWORDS)) or "; correct it there, or start from one of --example NAME"
    return f"query: the SQL cannot be read{where}: {what}{hint}"


def explain(connection: duckdb.DuckDBPyConnection, error: duckdb.Error, sql: str = "") -> str:
    """One line for a query that failed; an unknown table, macro, function or column names the nearest there is.

    A column is looked for in the tables that `sql` reads; one of other tables only is named with a table that has it.
    """
    text = str(error)
    found = _UNKNOWN_TABLE.search(text)
    if found and found[1] in dictionary():
        return f"query: no table '{found[1]}' yet in this warehouse{OLDER}"
    if found:
        tables = [
            str(row[0]) for row in connection.cursor().execute("select table_name from duckdb_tables()").fetchall()
        ]
        hint = nearest(found[1], tables) or "; kvledger dictionary lists them all"
        return f"query: no table '{found[1]}'{hint}"
    found = _UNKNOWN_FUNCTION.search(text)
    if found:
        return f"query: no macro or function '{found[1]}'{_function_hint(connection, found[1])}"
    found = _UNKNOWN_COLUMN.search(text)
    if found:
        where = _elsewhere(connection, found[1], sql)
        return f"query: no column '{found[1]}'{where}{'' if where.endswith(OLDER) else '; see kvledger dictionary'}"
    if _CLOSED.search(text):
        return CLOSED
    return f"query: {_first_line(error)}"


def _function_hint(connection: duckdb.DuckDBPyConnection, function: str) -> str:
    """What an unknown `function` may have meant: a macro of the warehouse or a function of DuckDB."""
    name = function.rsplit(".", 1)[-1].lower()
    if any(macro.name == name for macro in macros()):
        return f" yet in this warehouse{OLDER}"
    found = connection.cursor().execute("select distinct function_name from duckdb_functions()").fetchall()
    return nearest(name, (str(row[0]) for row in found)) or "; kvledger dictionary lists the macros"


def _elsewhere(connection: duckdb.DuckDBPyConnection, column: str, sql: str) -> str:
    """Where a column is, or what it may have meant: in the tables `sql` reads, else in any."""
    named = "select table_name, column_name from duckdb_columns() where not internal order by all"
    columns = [(str(table), str(name)) for table, name in connection.cursor().execute(named).fetchall()]
    read = _tables_read(connection, sql)
    here = [name for table, name in columns if table in read]
    wanted = column.rsplit(".", 1)[-1].lower()
    now = dictionary()
    if any(wanted in now[table].types for table in read & now.keys()):
        return f" yet in this warehouse{OLDER}"
    there = [table for table, name in columns if name.lower() == wanted and table not in read]
    if not here:
        return nearest(wanted, (name for _table, name in columns))
    place = f" in {', '.join(sorted(read))}"
    return f"{place}; {there[0]} has it" if there else f"{place}{nearest(wanted, here)}"


def _tables_read(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """Names of the tables in `sql`; none where it cannot be read."""
    try:
        return {name.rsplit(".", 1)[-1] for name in connection.get_table_names(sql)}
    except duckdb.Error:
        return set()


def plain_rows(rows: Sequence[tuple[Any, ...]], convert: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    """`rows` with each value through `convert`, but for columns of values that JSON and CSV both know as they are."""
    for start in range(0, len(rows), BATCH_ROWS):
        columns = zip(*rows[start : start + BATCH_ROWS], strict=True)
        yield from zip(*(column if _is_known(column) else map(convert, column) for column in columns), strict=True)


def _is_known(column: Sequence[Any]) -> bool:
    """Whether a column has texts, floats and whole numbers that are not huge alone, or NULL."""
    types = set(map(type, column))
    if int in types and max(abs(value) for value in column if type(value) is int) > LARGEST_INT:
        return False
    return types <= {str, float, int, type(None)}


def plain(value: Any) -> Any:
    """`value` as JSON knows it: decimals and huge numbers as floats, moments as ISO text, durations in seconds."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    is_huge = isinstance(value, int) and abs(value) > LARGEST_INT
    return float(value) if is_huge else _PLAIN.get(type(value), _same)(value)


def _same(value: Any) -> Any:
    return value


_PLAIN: dict[type, Callable[[Any], Any]] = {
    Decimal: float,
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: dt.timedelta.total_seconds,
    bytes: bytes.hex,
}


def unique_names(names: list[str]) -> list[str]:
    """`names` with _2, _3, … behind those that came before."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def _rows(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := result.fetchmany(BATCH_ROWS):
        yield from batch


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]
