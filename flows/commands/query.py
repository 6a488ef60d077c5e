"""`kvledger query`: one SELECT on the published warehouse, as a table, CSV, JSON or Parquet; its marts as Parquet."""

from __future__ import annotations

import shutil
import sys
from functools import partial
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
STDIN = "-"
TABLE_ROWS = 100
"""Rows a table shows unless `--limit` says otherwise."""
VERSION_SQL = (
    "select (select sum(requests) from mart_coverage), (select min(week) from mart_coverage), "
    "(select max(week) from mart_coverage), (select value_text from dim_settings where name = 'kvledger_version')"
)

SqlArgument = Annotated[
    str | None, typer.Argument(metavar="SQL", help="One SELECT; see kvledger dictionary for the tables.")
]
FileOption = Annotated[
    Path | None, typer.Option("--file", help="A file with the SELECT; - reads stdin.", allow_dash=True)
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
    file: FileOption = None,
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
    if (chosen == "parquet") != (output is not None) or str(output) == STDIN:
        raise ConfigError("--format parquet goes with --output FILE, and only that; the others print to stdout")
    ways = {
        "SQL": sql is not None, "--file": file is not None, "--example": example is not None,
        "--versions": versions, "--export-marts": export_marts is not None,
    }  # fmt: skip
    _check_one([name for name, is_given in ways.items() if is_given], tuple(ways))
    place = Home(home)
    if versions:
        _print_versions(place, as_json=json)
    elif export_marts is not None:
        _export_marts(place, export_marts, version, as_json=json)
    elif output is not None:
        rows = _write_parquet(place, _question(sql, file, example), output, version, limit, as_json=json)
        _note_none(example, rows)
    else:
        rows = _ask(place, _question(sql, file, example), "json" if json else chosen, version, limit)
        _note_none(example, rows)


def _check_one(given: list[str], known: tuple[str, ...]) -> None:
    """Nothing, if exactly one of the `known` ways to ask was `given`."""
    if len(given) > 1:
        raise ConfigError(
            f"query: {' and '.join(given)} exclude each other; give one of {', '.join(known[:-1])} and {known[-1]}"
        )
    if not given:
        from flows.examples import examples

        named = ", ".join(examples())
        raise ConfigError(
            f"query: give one SELECT, --file FILE, one of {named} as --example NAME, --versions or --export-marts DIR"
        )


def _question(sql: str | None, file: Path | None, example: str | None) -> str:
    """The SQL to ask: typed, in a file, or that of a worked question."""
    from flows.examples import example_sql

    if file is not None:
        return _read(file)
    return example_sql(example) if example is not None else sql or ""


def _read(file: Path) -> str:
    """Text of `file`, or of stdin; ConfigError where there is none."""
    try:
        return sys.stdin.buffer.read().decode() if str(file) == STDIN else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, AttributeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        raise ConfigError(f"--file {file}: cannot be read ({why}); name a file with one SELECT") from error


def _ask(home: Home, sql: str, chosen: str, version: int | None, limit: int | None) -> int:
    """Rows that were printed."""
    from flows.query import asked

    with asked(home, sql, version) as answer:
        rows, is_cut = _taken(answer, limit or (TABLE_ROWS if chosen == "table" else None))
        _print(chosen, answer, rows)
    if is_cut:
        _note_cut(len(rows))
    return len(rows)


def _write_parquet(home: Home, sql: str, output: Path, version: int | None, limit: int | None, *, as_json: bool) -> int:
    """Rows that were written."""
    from flows.parquet_out import write_answer

    rows, is_cut = write_answer(home, sql, output, version, limit)
    if as_json:
        print_json({"output": str(output), "rows": rows})
    else:
        print_line(f"written: {rows:,} rows to {output}")
    if is_cut:
        _note_cut(rows)
    return rows


def _export_marts(home: Home, folder: Path, version: int | None, *, as_json: bool) -> None:
    from flows.parquet_out import write_marts

    rows = write_marts(home, folder, version)
    if as_json:
        print_json({"output": str(folder), "rows": rows})
    else:
        print_line(f"written: {len(rows)} marts to {folder}")


def _print_versions(home: Home, *, as_json: bool) -> None:
    """Print number, content and file of the warehouses there are, the published one last."""
    from flows.answer_text import table_lines
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
    first = "first row is" if rows == 1 else f"first {rows:,} rows are"
    print_note(f"only the {first} shown; --limit N shows more")


def _note_none(example: str | None, rows: int) -> None:
    """Say why a worked question has no answer here, where it has none."""
    from flows.examples import example_sql, without_rows

    if example is not None and rows == 0:
        print_note(f"no rows: {without_rows(example_sql(example))}")


def _taken(answer: Answer, limit: int | None) -> tuple[list[tuple[Any, ...]], bool]:
    """The first `limit` rows, and whether there are more."""
    rows: list[tuple[Any, ...]] = []
    for row in answer.rows:
        if limit is not None and len(rows) == limit:
            return rows, True
        rows.append(row)
    return rows, False


def _print(chosen: str, answer: Answer, rows: Sequence[tuple[Any, ...]]) -> None:
    from flows.answer_text import cell, text_lines
    from flows.query import plain, plain_rows

    if chosen == "json":
        columns = [{"name": n, "type": t} for n, t in zip(answer.columns, answer.types, strict=True)]
        objects = [dict(zip(answer.columns, row, strict=True)) for row in plain_rows(rows, plain)]
        print_json({"columns": columns, "rows": objects})
    elif chosen == "csv":
        _print_csv(answer.columns, plain_rows(rows, partial(cell, null="")))
    else:
        columns_wide = shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
        for line in text_lines(answer.columns, rows, columns_wide):
            print_line(line)


def _print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_out(text.getvalue())
