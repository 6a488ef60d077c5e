"""What SECURITY.md promises: no code from data, no names from logs as paths or SQL, archives read in bounded memory."""

from __future__ import annotations

import ast
import gzip
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import zstandard
from ingesting import ingested, lake
from lakes import FLEET, no_progress, row, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.reading.streams import ByteStream

ROOT = Path(__file__).resolve().parents[2]
PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
RUNS_SHELL = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
UNSAFE = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp", "np.load", "numpy.load"}
BOMB_BYTES = 400 << 20
PEAK_BYTES = 700 << 20
"""Most that a process may hold that reads the bomb: packages, one line's limit of 64 MiB, and copies of it."""


def dangers(tree: ast.AST) -> Iterator[str]:
    """What in a module could run, or be made to run, what a file says."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name.split(".")[0] in PICKLES)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in RUNS_TEXT | RUNS_SHELL | UNSAFE:
                yield called
            for keyword in node.keywords:
                is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                if keyword.arg in ("shell", "allow_pickle") and is_true:
                    yield f"{called}({keyword.arg}=True)"


def test_nothing_runs_what_a_file_says() -> None:
    found = {}
    for room in ("flows", "transforms", "reports"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if seen := list(dangers(ast.parse(path.read_text()))):
                found[str(path.relative_to(ROOT))] = seen
    assert found == {}


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from dill import loads", "eval(x)", "exec(x)", "yaml.load(x)", "subprocess.run(x, shell=True)",
     "np.load(x, allow_pickle=True)", "os.system(x)"],
)  # fmt: skip
def test_the_check_sees(code: str) -> None:
    assert list(dangers(ast.parse(code)))


@pytest.mark.parametrize("name", ["bomb.jsonl.gz", "bomb.jsonl.zst"])
def test_an_archive_bomb_is_read_in_bounded_memory(name: str, tmp_path: Path) -> None:
    """One line of 400 MiB in less than two megabytes: counted as a reject, never held whole."""
    path = tmp_path / name
    piece = b"a" * (1 << 20)
    with gzip.open(path, "wb", compresslevel=1) if name.endswith("gz") else zstandard.open(path, "wb") as file:
        file.write(b'{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{"x": "')
        for _ in range(BOMB_BYTES >> 20):
            file.write(piece)
        file.write(b'"}\n{"timestamp": 2, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n')
    assert path.stat().st_size < BOMB_BYTES // 100
    code = (
        "import sys; sys.path.insert(0, 'tests'); from ingesting import counts, ingested; "
        "print(*counts(ingested(sys.argv[1], sys.argv[2], form='mooncake')), "
        "*(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )  # ru_maxrss of a process may be that of the one that started it
    command = [sys.executable, "-c", code, str(tmp_path / "home"), str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    read, loaded, duplicates, rejected, peak_bytes = map(int, ran.stdout.split())
    assert (read, loaded, duplicates, rejected) == (3, 2, 0, 1)
    assert peak_bytes < PEAK_BYTES


def test_a_framed_message_that_expands_beyond_measure_comes_in_pieces(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor().compress(b"a" * (200 << 20))
    (tmp_path / "framed").write_bytes(len(packed).to_bytes(4, "big") + packed)
    lengths = [len(chunk) for chunk in ByteStream(tmp_path / "framed", "framed")]
    assert sum(lengths) == (200 << 20) + 1
    assert max(lengths) <= 128 << 20


HOSTILE = ("x'); drop table fct_requests; --", 'a"b; attach', "../../../etc/passwd", "$(touch pwned)", "{{ 7*7 }}\\")


def test_names_from_logs_and_fleet_are_values_and_nothing_else(tmp_path: Path) -> None:
    rows = [row(n, model=name, tenant=name, session_id=name, source_file=name) for n, name in enumerate(HOSTILE * 3)]
    home = write_lake(tmp_path / "home", rows)
    text = FLEET.replace('name = "rest"', 'name = "y\'; drop table fct_attempts; --"')
    build(home, write_fleet(home, text), load_catalog(home), no_progress)
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        kept = connection.sql("select distinct model from fct_attempts order by all").fetchall()
        owners = connection.sql("select distinct deployment_id from fct_requests").fetchall()
    assert kept == [(name,) for name in sorted(HOSTILE)]
    assert owners == [("y'; drop table fct_attempts; --",)]
    assert not list(tmp_path.rglob("*pwned*"))


def test_a_name_in_a_log_is_no_path(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(
        '{"request_id": "../../evil", "arrived_at": "2026-11-16T00:00:00Z", "model": "/etc/passwd", '
        '"prompt_tokens": 1, "output_tokens": 1, "tenant": "../t", "session_id": "../../s"}\n'
    )
    ingested(tmp_path / "deep" / "home", log, form="kvledger")
    assert lake(tmp_path / "deep" / "home")["model"].to_list() == ["/etc/passwd"]
    outside = {path.name for path in tmp_path.iterdir()} | {path.name for path in (tmp_path / "deep").iterdir()}
    assert outside == {"a.jsonl", "deep", "home"}
