"""`kvledger query`: one SELECT on the published warehouse, as a table, CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.home import Home
from flows.printing import print_json, print_line, print_note, write_out
from transforms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flows.query import Answer

FORMATS = ("table", "csv", "json")
TABLE_ROWS = 100
"""Rows a table shows unless `--limit` says otherwise."""

SqlArgument = Annotated[
    str | None, typer.Argument(metavar="SQL", help="One SELECT; see kvledger dictionary for the tables.")
]
ExampleOption = Annotated[str | None, typer.Option("--example", help="A worked question of sql/examples by its name.")]
FormatOption = Annotated[str, typer.Option("--format", help="table, csv or json.")]
LimitOption = Annotated[int | None, typer.Option("--limit", help="Most rows; a table shows 100 otherwise.", min=1)]


def query(
    sql: SqlArgument = None,
    example: ExampleOption = None,
    home: HomeOption = DEFAULT_HOME,
    output: FormatOption = "table",
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Ask the warehouse one question in SQL; nothing can be changed."""
    if output not in FORMATS:
        raise ConfigError(f"--format {output}: must be one of {', '.join(FORMATS)}{nearest(output, FORMATS)}")
    chosen = "json" if json else output
    from flows.query import asked

    with asked(Home(home), _question(sql, example)) as answer:
        rows, is_cut = _taken(answer, limit or (TABLE_ROWS if chosen == "table" else None))
        _print(chosen, answer, rows)
    if is_cut:
        print_note(f"only the first {len(rows):,} rows are shown; --limit N shows more")


def _question(sql: str | None, example: str | None) -> str:
    """The SQL to ask: typed, or that of a worked question."""
    from flows.examples import example_sql, examples

    if example is not None and sql is None:
        return example_sql(example)
    if sql is None or example is not None:
        raise ConfigError(f"query: give one SELECT, or one of {', '.join(examples())} as --example NAME")
    return sql


def _taken(answer: Answer, limit: int | None) -> tuple[list[tuple[Any, ...]], bool]:
    """The first `limit` rows, and whether there are more."""
    rows: list[tuple[Any, ...]] = []
    for row in answer.rows:
        if limit is not None and len(rows) == limit:
            return rows, True
        rows.append(row)
    return rows, False


def _print(chosen: str, answer: Answer, rows: Sequence[tuple[Any, ...]]) -> None:
    from flows.query import plain

    if chosen == "json":
        columns = [{"name": n, "type": t} for n, t in zip(answer.columns, answer.types, strict=True)]
        objects = [dict(zip(answer.columns, map(plain, row), strict=True)) for row in rows]
        print_json({"columns": columns, "rows": objects})
    elif chosen == "csv":
        _print_csv([answer.columns, *([_cell(value, "") for value in row] for row in rows)])
    else:
        for line in table_lines(answer.columns, rows):
            print_line(line)


def _print_csv(rows: Iterable[Sequence[str]]) -> None:
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_out(text.getvalue())


def table_lines(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Lines of a plain table: names, a rule, then rows; numbers to the right, NULL spelled out."""
    cells = [[_cell(value, "NULL") for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [
        all(value is None or isinstance(value, int | float) for value in column) for column in zip(*rows, strict=True)
    ]
    right = right or [False] * len(columns)

    def line(values: Sequence[str]) -> str:
        placed = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(placed).rstrip()

    return [line(columns), line(["-" * width for width in widths]), *map(line, cells)]


def _cell(value: Any, null: str) -> str:
    from flows.query import plain

    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    return str(plain(value))
