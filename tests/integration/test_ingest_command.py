"""`kvledger ingest` from a terminal: its one JSON object, its lines, and its one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

KEYS = {"source_file", "sha256", "status", "read", "loaded", "duplicates", "rejected", "ignored"}


@pytest.fixture
def kvledger(tmp_path):
    def run(*words):
        command = [
            sys.executable,
            "-m",
            "flows.cli",
            "ingest",
            *words,
            "--home",
            str(tmp_path / "home"),
            "--no-prefect",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    return run


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00,10,1\n2026-03-01 10:00:01,x,1\n")
    return path


def test_json_is_one_object_with_the_counts(kvledger, log):
    first = kvledger(str(log), "--format", "azure", "--timezone", "UTC", "--json")
    assert first.returncode == 0
    document = json.loads(first.stdout)
    assert {name: document[name] for name in ("read", "loaded", "duplicates", "rejected")} == {
        "read": 2, "loaded": 1, "duplicates": 0, "rejected": 1,
    }  # fmt: skip
    assert document["files"][0].keys() >= KEYS
    again = json.loads(kvledger("a.csv", "--format", "auto", "--timezone", "UTC", "--json").stdout)
    assert (again["loaded"], again["files"][0]["status"]) == (0, "unchanged")


def test_lines_for_people(kvledger, log):
    said = kvledger(str(log), "--format", "azure", "--timezone", "UTC").stdout.splitlines()
    assert said == [
        "a.csv: complete (azure): 1 loaded, 0 duplicates, 1 rejected of 2",
        "2 read = 1 loaded + 0 duplicates + 1 rejected",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.csv", "--format", "azure"], "none.csv: no such file"),
        (["a.csv", "--format", "azur"], "format 'azur' is unknown; did you mean 'azure'?"),
        (["a.csv", "--format", "azure"], "say which with --timezone"),
        (["a.csv", "--format", "azure", "--timezone", "Mars"], "timezone 'Mars' is unknown"),
        (["a.csv", "--format", "azure", "--zero-usage", "mising"], "did you mean 'missing'?"),
        (["a.csv", "--format", "mapped"], "--format mapped needs --map FILE.toml"),
        (["a.csv", "--format", "mapped", "--map", "none.toml"], "none.toml cannot be read"),
        (["a.csv", "--format", "burstgpt"], "it looks like azure; use --format azure"),
    ],
)
def test_expected_failures_are_one_line_and_exit_2(kvledger, log, words, said):
    run = kvledger(*words)
    assert run.returncode == 2
    assert run.stdout == ""
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_mapping_errors_name_the_nearest_column(kvledger, log, tmp_path):
    (tmp_path / "m.toml").write_text('arrived_at = "TIMESTAMP"\nprompt_token = "ContextTokens"\n')
    run = kvledger("a.csv", "--format", "mapped", "--map", "m.toml")
    assert run.returncode == 2
    assert "unknown column 'prompt_token'; did you mean 'prompt_tokens'?" in run.stderr


def test_a_folder_says_which_of_its_files_were_left_out(kvledger, log):
    folder = log.parent / "logs"
    folder.mkdir()
    log = log.rename(folder / "a.csv")
    (folder / "notes.txt").write_text("hello world\nthis is nothing\n")
    (folder / "empty.csv").touch()
    done = kvledger("logs", "--format", "auto", "--timezone", "UTC")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "left out of 3 files: 1 refused (notes.txt), 1 empty (empty.csv)"
    log.unlink()
    done = kvledger("logs", "--format", "auto", "--timezone", "UTC")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing could be ingested; one of 2 files" in done.stderr
