"""Rooms keep to their rules: what may be imported and called where."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = ("transforms", "reports")
FORBIDDEN_NAMES = {"open", "Path", "eval", "exec", "__import__"}
FORBIDDEN_MODULES = {"os", "pathlib", "io", "time", "random", "shutil", "tempfile", "subprocess", "socket", "pickle"}
FORBIDDEN_PREFIXES = ("read_", "scan_", "write_", "sink_")
SEEDED = ("default_rng", "Generator", "SeedSequence", "PCG64")
FORBIDDEN_CALLS = {"now", "utcnow", "today", "time", "perf_counter", "monotonic"}


def python_files(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def impurities(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            yield f"from {node.module}"
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr.startswith(FORBIDDEN_PREFIXES):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from impure_calls(node, node.func)


def impure_calls(call: ast.Call, method: ast.Attribute) -> Iterator[str]:
    """Calls of a clock or of a random generator without a seed."""
    if method.attr in FORBIDDEN_CALLS:
        yield f".{method.attr}()"
    elif method.attr == "default_rng" and not (call.args or call.keywords):
        yield "default_rng() without a seed"
    elif ast.unparse(method.value) == "np.random" and method.attr not in SEEDED:
        yield f"np.random.{method.attr}"


@pytest.mark.parametrize("path", list(python_files(*PURE)), ids=lambda p: str(p.relative_to(ROOT)))
def test_transforms_and_reports_are_pure(path: Path) -> None:
    assert list(impurities(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "code",
    ["open('x')", "import os", "from pathlib import Path", "pl.scan_parquet('x')", "datetime.now()",
     "np.random.rand(3)", "np.random.default_rng()", "frame.write_csv('x')"],
)  # fmt: skip
def test_the_purity_check_sees(code: str) -> None:
    assert list(impurities(ast.parse(code)))


def importers(*modules: str, rooms: tuple[str, ...] = ("flows", "transforms", "reports")) -> set[str]:
    found = set()
    for path in python_files(*rooms):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in modules for name in names):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_each_heavy_package_stays_in_its_room() -> None:
    assert importers("prefect") <= {"flows/orchestration.py"}
    assert all(path.startswith("flows/") for path in importers("duckdb"))
    assert all(path.startswith("reports/") for path in importers("altair", "vl_convert"))
    assert all(path.startswith("transforms/planner/kernel/") for path in importers("numba"))
    assert len(importers("sqlglot")) <= 1
    assert importers("pickle", "shelve", "marshal", "dill", "cloudpickle") == set()


def test_layers_by_import_linter() -> None:
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool, "import-linter is part of the dev extra"
    ran = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]


def test_importing_the_command_line_is_light() -> None:
    heavy = "prefect altair polars numba duckdb pyarrow numpy"
    code = f"import flows.cli, sys; print([m for m in '{heavy}'.split() if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
