"""STYLE's walls: functions, Python files and SQL files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "transforms", "reports")
FUNCTION_LINES, FUNCTION_WALL_LINES, PYTHON_LINES, SQL_LINES = 35, 60, 300, 60
SMALL_SHARE_RATIO = 0.9


def functions() -> Iterator[tuple[str, int]]:
    """Name and length in lines, without its docstring, of every function."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    body = node.body
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                        lines -= (body[0].end_lineno or 0) - body[0].lineno + 1
                    yield f"{path.relative_to(ROOT)}:{node.name}", lines


def test_functions_are_short() -> None:
    lengths = dict(functions())
    assert len(lengths) > 50
    assert {name: n for name, n in lengths.items() if n > FUNCTION_WALL_LINES} == {}
    small = sum(n <= FUNCTION_LINES for n in lengths.values())
    assert small >= SMALL_SHARE_RATIO * len(lengths)


def test_files_are_short() -> None:
    long = {}
    for room, pattern, wall in [*((r, "*.py", PYTHON_LINES) for r in ROOMS), ("sql", "*.sql", SQL_LINES)]:
        for path in (ROOT / room).rglob(pattern):
            lines = len(path.read_text().splitlines())
            if lines > wall:
                long[str(path.relative_to(ROOT))] = lines
    assert long == {}


def test_the_top_level_is_the_house() -> None:
    names = {p.name for p in ROOT.iterdir() if not p.name.startswith(".")}
    built = {"dist", "build"}
    assert names - built <= {
        "pyproject.toml", "flows", "transforms", "sql", "data", "reports", "tests",
        "README.md", "CHANGELOG.md", "LICENSE", "Makefile",
    }  # fmt: skip
    assert len(list(ROOT.glob("*.toml"))) == 1


def test_no_room_is_called_utils() -> None:
    bad = {"utils", "helpers", "common", "misc"}
    found = [str(p) for room in (*ROOMS, "sql") for p in (ROOT / room).rglob("*") if p.stem in bad]
    assert found == []


def test_the_only_skip_stands_in_conftest() -> None:
    words = ("pytest.sk" + "ip", "mark.sk" + "ip", "mark.xf" + "ail", "pytest.xf" + "ail", "importorsk" + "ip")
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if any(word in path.read_text() for word in words)
    ]
    assert found == ["tests/conftest.py"]
