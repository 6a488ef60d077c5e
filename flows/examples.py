"""The worked questions in sql/examples/: a SELECT each, under a first line that asks the question."""

from __future__ import annotations

from functools import cache

from flows.shipped import shipped
from transforms.errors import ConfigError, nearest

NO_ROWS = "-- no rows: "


@cache
def examples() -> dict[str, str]:
    """Name of each worked question, in order, to its SQL."""
    found = sorted(shipped("sql", "examples").glob("*.sql"))
    return {path.stem: path.read_text(encoding="utf-8") for path in found}


def question_of(sql: str) -> str:
    """The question in words: the first line of a worked one."""
    return sql.splitlines()[0].removeprefix("-- ")


def without_rows(sql: str) -> str:
    """What it means where a worked question has no rows: its line that begins so."""
    (line,) = (line for line in sql.splitlines() if line.startswith(NO_ROWS))
    return line.removeprefix(NO_ROWS)


def example_sql(name: str) -> str:
    """SQL of the worked question `name`; ConfigError names the nearest and all there are."""
    known = examples()
    if name not in known:
        raise ConfigError(f"--example {name}: no such question{nearest(name, known)} (known: {', '.join(known)})")
    return known[name]
