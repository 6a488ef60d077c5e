"""`kvledger build`, `query` and `dictionary` as a user types them: what reaches stdout, stderr and the exit code."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from lakes import random_rows, write_fleet, write_lake

from flows.commands.build import build
from flows.examples import without_rows
from flows.shipped import shipped
from transforms.errors import ConfigError

KVLEDGER = Path(sys.executable).parent / "kvledger"


def kvledger(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([KVLEDGER, *words], capture_output=True, text=True, check=False, input=stdin)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_lake(tmp_path_factory.mktemp("home"), random_rows(seed=11, sessions=60))
    write_fleet(place)
    ran = kvledger("build", "--home", place.root, "--no-prefect")
    assert ran.returncode == 0, ran.stderr
    assert "requests in 2 weeks, 2026-W47 to 2026-W48" in ran.stdout
    assert str(place.warehouse) in ran.stdout
    assert ran.stderr == ""
    return place.root


def test_build_says_what_it_built_as_one_json_object(home: Path) -> None:
    ran = kvledger("build", "--home", home, "--no-prefect", "--json")
    answer = json.loads(ran.stdout)
    assert [week["week"] for week in answer["weeks"]] == ["2026-W47", "2026-W48"]
    assert answer["warehouse"] == str(home / "warehouse" / "kvledger.duckdb")


@pytest.mark.parametrize(("option", "day"), [("--from", "2026-13-01"), ("--to", "20261116"), ("--to", "monday")])
def test_a_day_that_is_none_is_told_in_one_line(option: str, day: str) -> None:
    name = {"--from": "first", "--to": "last"}[option]
    said = f"{option} {day}: no day of the calendar; write it as YEAR-MONTH-DAY, 2026-11-16"
    with pytest.raises(ConfigError, match=f"^{said}$"):
        build(Path("nowhere"), **{name: day})


def test_a_table_is_aligned_and_cut_with_a_note(home: Path) -> None:
    ran = kvledger("query", "select week, requests, null as nothing from mart_coverage order by week", "--home", home)
    head, rule, *rows = ran.stdout.splitlines()
    assert head.split() == ["week", "requests", "nothing"]
    assert set(rule) == {"-", " "}
    assert [line.split()[0] for line in rows] == ["2026-W47", "2026-W48"]
    assert all(line.endswith("NULL") for line in rows)
    ran = kvledger("query", "from mart_hours", "--home", home, "--limit", "2")
    assert len(ran.stdout.splitlines()) == 4
    assert ran.stderr == "only the first 2 rows are shown; --limit N shows more\n"


def test_csv_and_json_hold_the_same_rows(home: Path) -> None:
    sql = "select week, deployment_id, window_s, peak_at, gap_cv_factor, arrival_step_s from mart_arrivals order by all"
    as_csv = list(csv.DictReader(kvledger("query", sql, "--home", home, "--format", "csv").stdout.splitlines()))
    answer = json.loads(kvledger("query", sql, "--home", home, "--json").stdout)
    assert [column["type"] for column in answer["columns"]][:3] == ["varchar", "varchar", "integer"]
    assert as_csv == [{k: "" if v is None else str(v) for k, v in row.items()} for row in answer["rows"]]
    assert len(as_csv) > 10


def test_a_refused_query_is_one_line_and_exit_2(home: Path) -> None:
    for sql, says in (
        ("drop table mart_hours", "only reads"),
        ("from mart_hour", "did you mean 'mart_hours'?"),
        ("select kv_byte('chat', 1)", "no macro or function 'kv_byte'; did you mean 'kv_bytes'?"),
        ("select countif_(1)", "no macro or function 'countif_'; did you mean 'countif'?"),
        ("selct 1", "cannot be read in line 1: syntax error at or near \"selct\"; did you mean 'select'?"),
        ("select 1\nfrom mart_hours wher 'a", "cannot be read in line 2: unterminated"),
    ):
        ran = kvledger("query", sql, "--home", home)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.count("\n") == 1
        assert says in ran.stderr
    ran = kvledger("query", "select 1", "--home", home, "--format", "cvs")
    assert ran.returncode == 2
    assert "did you mean 'csv'?" in ran.stderr


def test_a_worked_question_is_asked_by_its_name(home: Path) -> None:
    ran = kvledger("query", "--example", "limit_16k", "--home", home, "--json")
    assert json.loads(ran.stdout)["rows"][0]["week"] == "2026-W47"
    unknown, neither = kvledger("query", "--example", "limit_16", "--home", home), kvledger("query", "--home", home)
    assert (unknown.returncode, neither.returncode) == (2, 2)
    assert "did you mean 'limit_16k'?" in unknown.stderr
    assert "give one SELECT, --file FILE, one of busiest_five_minutes, data_gaps" in neither.stderr
    both = kvledger("query", "select 1", "--example", "limit_16k", "--home", home)
    assert both.returncode == 2
    assert "query: SQL and --example exclude each other; give one of SQL, --file, --example, --versions" in both.stderr


def test_a_question_comes_from_a_file_or_stdin_and_says_why_it_has_no_rows(home: Path, tmp_path: Path) -> None:
    sql = shipped("sql", "examples", "ttft_split.sql").read_text()
    (tmp_path / "mine.sql").write_text(sql)
    ran = [
        kvledger("query", "--file", tmp_path / "mine.sql", "--home", home),
        kvledger("query", "--file", "-", "--home", home, stdin=sql),
        kvledger("query", "--example", "ttft_split", "--home", home),
    ]
    assert [each.returncode for each in ran] == [0, 0, 0]
    assert len({each.stdout for each in ran}) == 1
    assert len(ran[0].stdout.splitlines()) == 2
    assert [each.stderr for each in ran] == ["", "", f"no rows: {without_rows(sql)}\n"]
    typed = kvledger("query", sql, "--home", home)
    assert (typed.returncode, typed.stderr.count("\n")) == (2, 1)
    assert "begins with a comment goes in with --file FILE" in typed.stderr
    assert "cannot be read (No such file" in kvledger("query", "--file", tmp_path / "no.sql", "--home", home).stderr


def test_the_dictionary_lists_tables_and_explains_columns() -> None:
    assert "fct_tool_waits" in kvledger("dictionary").stdout
    one = kvledger("dictionary", "fct_tool_waits").stdout
    assert "prior_context_tokens" in one
    assert "[seconds]" in one
    answer = json.loads(kvledger("dictionary", "dim_kv_groups", "--json").stdout)
    assert [c["name"] for c in answer["tables"][0]["columns"]][:2] == ["deployment_id", "kv_group"]
    assert kvledger("dictionary", "gib").stdout.splitlines()[1] == "  select gib(1073741824)"
    ran = kvledger("dictionary", "fct_tool_wait")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "did you mean 'fct_tool_waits'?" in ran.stderr
