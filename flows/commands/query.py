"""`kvledger query`: one SELECT on the published warehouse, as a table, CSV, JSON or Parquet; its marts as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.home import Home
from flows.printing import print_json, print_line, print_note, write_out
from transforms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flows.query import Answer

FORMATS = ("table", "csv", "json", "parquet")
TABLE_ROWS = 100
"""Rows a table shows unless `--limit` says otherwise."""
VERSION_SQL = (
    "select (select sum(requests) from mart_coverage), (select min(week) from mart_coverage), "
    "(select max(week) from mart_coverage), (select value_text from dim_settings where name = 'kvledger_version')"
)

SqlArgument = Annotated[
    str | None, typer.Argument(metavar="SQL", help="One SELECT; see kvledger dictionary for the tables.")
]
ExampleOption = Annotated[str | None, typer.Option("--example", help="A worked question of sql/examples by its name.")]
FormatOption = Annotated[str, typer.Option("--format", help="table, csv, json or parquet (to --output).")]
LimitOption = Annotated[int | None, typer.Option("--limit", help="Most rows; a table shows 100 otherwise.", min=1)]
OutputOption = Annotated[Path | None, typer.Option("--output", help="File for --format parquet.")]
VersionOption = Annotated[int | None, typer.Option("--version", help="Ask an earlier warehouse; see --versions.")]
VersionsOption = Annotated[bool, typer.Option("--versions", help="List the earlier warehouses that are kept.")]
MartsOption = Annotated[
    Path | None, typer.Option("--export-marts", metavar="DIR", help="Write every mart to DIR as Parquet.")
]


def query(
    sql: SqlArgument = None,
    example: ExampleOption = None,
    home: HomeOption = DEFAULT_HOME,
    chosen: FormatOption = "table",
    output: OutputOption = None,
    limit: LimitOption = None,
    version: VersionOption = None,
    versions: VersionsOption = False,
    export_marts: MartsOption = None,
    json: JsonOption = False,
) -> None:
    """Ask the warehouse one question in SQL; nothing can be changed."""
    if chosen not in FORMATS:
        raise ConfigError(f"--format {chosen}: must be one of {', '.join(FORMATS)}{nearest(chosen, FORMATS)}")
    if (chosen == "parquet") != (output is not None):
        raise ConfigError("--format parquet goes with --output FILE, and only that; the others print to stdout")
    if [sql is not None, example is not None, versions, export_marts is not None].count(True) != 1:
        from flows.examples import examples

        named = ", ".join(examples())
        raise ConfigError(f"query: give one SELECT, one of {named} as --example NAME, --versions or --export-marts DIR")
    place = Home(home)
    if versions:
        _print_versions(place, as_json=json)
    elif export_marts is not None:
        _export_marts(place, export_marts, version, as_json=json)
    elif output is not None:
        _write_parquet(place, _question(sql, example), output, version, limit, as_json=json)
    else:
        _ask(place, _question(sql, example), "json" if json else chosen, version, limit)


def _question(sql: str | None, example: str | None) -> str:
    """The SQL to ask: typed, or that of a worked question."""
    from flows.examples import example_sql

    return example_sql(example) if example is not None else sql or ""


def _ask(home: Home, sql: str, chosen: str, version: int | None, limit: int | None) -> None:
    from flows.query import asked

    with asked(home, sql, version) as answer:
        rows, is_cut = _taken(answer, limit or (TABLE_ROWS if chosen == "table" else None))
        _print(chosen, answer, rows)
    if is_cut:
        _note_cut(len(rows))


def _write_parquet(
    home: Home, sql: str, output: Path, version: int | None, limit: int | None, *, as_json: bool
) -> None:
    from flows.parquet_out import write_answer

    rows, is_cut = write_answer(home, sql, output, version, limit)
    if as_json:
        print_json({"output": str(output), "rows": rows})
    else:
        print_line(f"written: {rows:,} rows to {output}")
    if is_cut:
        _note_cut(rows)


def _export_marts(home: Home, folder: Path, version: int | None, *, as_json: bool) -> None:
    from flows.parquet_out import write_marts

    rows = write_marts(home, folder, version)
    if as_json:
        print_json({"output": str(folder), "rows": rows})
    else:
        print_line(f"written: {len(rows)} marts to {folder}")


def _print_versions(home: Home, *, as_json: bool) -> None:
    """Print number, content and file of the warehouses there are, the published one last."""
    from flows.query import asked
    from flows.versions import version_path
    from flows.versions import versions as kept

    lines: list[tuple[Any, ...]] = []
    for number in [*(version.number for version in kept(home)), None]:
        path = version_path(home, number)
        with asked(home, VERSION_SQL, number) as answer:
            lines += [(number, *row, path.stat().st_size, str(path)) for row in answer.rows]
    names = ("version", "requests", "first_week", "last_week", "kvledger_version", "bytes", "path")
    if as_json:
        print_json({"versions": [dict(zip(names, line, strict=True)) for line in lines]})
    else:
        shown = [("published" if line[0] is None else line[0], *line[1:]) for line in lines]
        for text in table_lines(names, shown):
            print_line(text)


def _note_cut(rows: int) -> None:
    print_note(f"only the first {rows:,} rows are shown; --limit N shows more")


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
