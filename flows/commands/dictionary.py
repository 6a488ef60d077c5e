"""`kvledger dictionary`: every table and column of the warehouse, with type, unit and one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.printing import print_json, print_line
from transforms.errors import DataError, nearest

if TYPE_CHECKING:
    from flows.dictionary import Table

TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table or macro; without it all.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print all of it as Markdown (sql/DICTIONARY.md).")]


def dictionary(
    table: TableArgument = None,
    markdown: MarkdownOption = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Print the tables of the warehouse, or the columns of one of them, or how one macro is called."""
    del home  # every command takes it; the columns are the same in every home
    from flows.dictionary import dictionary as known_tables
    from flows.dictionary import markdown as as_markdown
    from flows.macros import macros

    tables = known_tables()
    asked_for = [macro for macro in macros() if table in {None, macro.name}]
    if table is not None and table not in tables and not asked_for:
        near = nearest(table, [*tables, *(macro.name for macro in macros())])
        raise DataError(f"no table or macro '{table}' in the warehouse{near}; kvledger dictionary lists all")
    chosen = [one for name, one in tables.items() if table in {None, name}]
    if json:
        known = [{"macro": m.signature, "unit": m.unit or None, "text": m.text} for m in asked_for]
        print_json({"tables": [_as_object(one) for one in chosen], "macros": known})
    elif markdown:
        print_line(as_markdown(chosen).rstrip("\n"))
    elif table is not None and asked_for:
        print_line(f"{asked_for[0].signature}: {asked_for[0].comment}")
        print_line(f"  {asked_for[0].example}")
    elif table is not None:
        _print_columns(chosen[0])
    else:
        width = max(len(one.name) for one in chosen)
        for one in chosen:
            print_line(f"{one.name.ljust(width)}  {one.text}")
        for macro in macros():
            print_line(f"{macro.signature}  {macro.comment}")
        print_line("kvledger dictionary TABLE says what its columns mean")


def _as_object(table: Table) -> dict[str, object]:
    columns = [{"name": c.name, "type": c.type, "unit": c.unit or None, "text": c.text} for c in table.columns]
    return {"table": table.name, "text": table.text, "grain": list(table.grain), "columns": columns}


def _print_columns(table: Table) -> None:
    print_line(f"{table.name}: {table.text}. Grain: {', '.join(table.grain)}")
    names = max(len(column.name) for column in table.columns)
    types = max(len(column.type) for column in table.columns)
    for column in table.columns:
        print_line(f"  {column.name.ljust(names)}  {column.type.ljust(types)}  {column.comment}")
