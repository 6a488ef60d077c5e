"""Tables of the warehouse made from models: typed as the dictionary says, commented, whole or a part of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.dictionary import Table, dictionary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from flows.models import Model
    from flows.progress import Advance


def create_tables(connection: duckdb.DuckDBPyConnection, found: Sequence[Model], advance: Advance) -> None:
    """Make the table of each of `found` anew, in the order given."""
    for model in found:
        create_table(connection, model)
        advance()


def create_table(connection: duckdb.DuckDBPyConnection, model: Model) -> int:
    """Rows of the table of `model`, made anew."""
    made = connection.execute(f"create or replace table {model.name} as {typed(model)}").fetchall()
    comment(connection, dictionary()[model.name])
    return int(made[0][0])


def typed(model: Model) -> str:
    """The SELECT of `model` with the columns and types of the dictionary."""
    listed = ", ".join(f"cast({c.name} as {c.type}) as {c.name}" for c in dictionary()[model.name].columns)
    return f"select {listed} from ({model.sql})"  # noqa: S608


def comment(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Put the dictionary's words on `table` and its columns."""
    text = f"{table.text}. Grain: {', '.join(table.grain)}"
    statements = [f"comment on table {table.name} is {quoted(text)}"]
    statements += [f"comment on column {table.name}.{c.name} is {quoted(c.comment)}" for c in table.columns]
    connection.execute(f"begin; {'; '.join(statements)}; commit")


def columns(table: Table) -> str:
    """The columns of `table` as CREATE TABLE lists them."""
    return ", ".join(f"{column.name} {column.type}" for column in table.columns)


def quoted(text: str) -> str:
    """`text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
