"""Publishing a warehouse: readers of the old one, earlier versions, Parquet of answers and marts."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from lakes import FLEET, no_progress, random_rows, row, write_fleet, write_lake

from flows.build import build, rebuild_marts
from flows.catalog import load_catalog
from flows.commands.query import query
from flows.dictionary import dictionary
from flows.home import Home
from flows.query import asked, explain
from flows.versions import versions
from flows.warehouse import published
from transforms.errors import ConfigError, DataError, HomeError

COUNT = "select count(*) from fct_requests"


def built(home: Home, text: str = FLEET) -> Path:
    return build(home, write_fleet(home, text), load_catalog(home), no_progress)


def answer(home: Home, sql: str, version: int | None = None) -> list[tuple[Any, ...]]:
    with asked(home, sql, version) as found:
        return list(found.rows)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    place = write_lake(tmp_path_factory.mktemp("home"), random_rows(seed=2, sessions=60))
    built(place)
    return place


READER = """
import sys, duckdb
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    print(connection.execute(sys.argv[2]).fetchall(), flush=True)
    sys.stdin.readline()
    print(connection.execute(sys.argv[2]).fetchall(), connection.execute("from mart_coverage").fetchall()[0][0])
"""


def test_an_analyst_reads_on_in_the_old_file_while_a_new_one_is_published(tmp_path: Path) -> None:
    """Another process with a plain DuckDB: it neither blocks the publish nor sees any of it."""
    place = write_lake(tmp_path, [row(1)])
    built(place)
    command = [sys.executable, "-c", READER, str(place.warehouse), COUNT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as analyst:  # type: ignore[call-overload]
        assert analyst.stdout.readline() == "[(1,)]\n"
        write_lake(tmp_path, [row(1), row(2)])
        built(place)
        with published(place) as fresh:
            assert fresh.execute(COUNT).fetchall() == [(2,)]
        told, _ = analyst.communicate("go on\n")
    assert told == "[(1,)] 2026-W47\n"


def test_earlier_warehouses_are_kept_listed_opened_and_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write_lake(tmp_path, [row(1)])
    kept = FLEET + "[warehouse]\nkeep_versions = 2\n"
    for rows in range(1, 5):
        write_lake(tmp_path, [row(n) for n in range(rows)])
        built(place, kept)
    assert [version.number for version in versions(place)] == [2, 3]
    assert [answer(place, COUNT, number) for number in (2, 3, None)] == [[(2,)], [(3,)], [(4,)]]
    with pytest.raises(DataError, match=r"no earlier warehouse 1 at .*; kept are 2, 3"):
        answer(place, COUNT, 1)
    query(home=tmp_path, versions=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["2", "2", "2026-W47"],
        ["3", "3", "2026-W47"],
        ["published", "4", "2026-W47"],
    ]
    query(home=tmp_path, versions=True, json=True)
    listed = json.loads(capsys.readouterr().out)["versions"]
    assert [(one["version"], one["requests"]) for one in listed] == [(2, 2), (3, 3), (None, 4)]
    with duckdb.connect(listed[0]["path"], read_only=True) as connection:  # a warehouse like any other
        assert connection.execute(COUNT).fetchall() == [(2,)]
    rebuild_marts(place, no_progress, keep_versions=0)
    assert [path.name for path in place.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_a_publish_cut_short_before_its_rename_keeps_no_version_twice(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1)])
    built(place)
    folder = place.warehouse.parent / "versions"
    folder.mkdir()
    (folder / "kvledger-0007.duckdb").hardlink_to(place.warehouse)
    rebuild_marts(place, no_progress)
    assert [version.number for version in versions(place)] == [7]


@pytest.mark.parametrize(
    "sql",
    [
        "from read_csv('/etc/passwd')",
        "from read_parquet('x.parquet')",
        "from 'x.parquet'",
        "from read_text('/etc/passwd')",
        "from glob('*')",
        "from read_csv('https://example.com/a.csv')",
        "from sqlite_scan('a', 'b')",
    ],
)
def test_files_addresses_and_extensions_are_closed_to_a_query(home: Home, sql: str) -> None:
    with pytest.raises(DataError) as raised:
        answer(home, sql)
    assert str(raised.value).startswith("query: reads the tables of the warehouse and nothing else: files, addresses")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("install httpfs", "LOAD"),
        ("load httpfs", "LOAD"),
        ("attach ':memory:' as m", "ATTACH"),
        ("copy mart_hours to 'x.csv'", "COPY"),
        ("export database 'x'", "EXPORT"),
        ("create temp table x as select 1", "CREATE"),
        ("set threads = 1", "SET"),
        ("with x as (select 1) delete from dim_settings", "DELETE"),
    ],
)
def test_what_is_no_reading_is_refused_by_its_name(home: Home, sql: str, kind: str) -> None:
    with pytest.raises(
        ConfigError, match=f"query: only reads, and this is {kind}; the warehouse is never written here"
    ):
        answer(home, sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("from mart_hours", "no table 'mart_hours' yet in this warehouse"),
        ("select d.NEEDED_GPUS from mart_decision d", "no column 'NEEDED_GPUS' yet in this warehouse"),
        ("select needed_gpu from mart_decision", "no column 'needed_gpu' in mart_decision; see kvledger dictionary"),
    ],
)
def test_what_only_a_newer_warehouse_has_is_no_misspelling(sql: str, says: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("create table mart_decision (week varchar)")
        with pytest.raises(duckdb.Error) as raised:
            connection.execute(sql)
        told = explain(connection, raised.value, sql)
    is_newer = "yet" in says
    assert told == f"query: {says}{': it was built by an older kvledger; run kvledger build' if is_newer else ''}"


def test_a_pivot_is_asked_for_its_values(home: Home) -> None:
    pivot = "pivot dist_output_limits on reason{} using sum(requests) group by week"
    with pytest.raises(ConfigError, match="PIVOT has to say its values here"):
        answer(home, pivot.format(""))
    assert answer(home, pivot.format(" in ('none')"))


def test_parquet_of_an_answer_has_its_types_and_is_there_whole_or_not_at_all(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answer.parquet"
    sql = "select request_id, arrived_at, arrival_date, prompt_tokens, e2e_s, week, week from fct_requests order by 1"
    query(sql, home=home.root, chosen="parquet", output=path)
    found = pl.read_parquet(path)
    assert capsys.readouterr().out == f"written: {len(found):,} rows to {path}\n"
    assert found.schema == {
        "request_id": pl.String(),
        "arrived_at": pl.Datetime("us"),
        "arrival_date": pl.Date(),
        "prompt_tokens": pl.Int64(),
        "e2e_s": pl.Float64(),
        "week": pl.String(),
        "week_2": pl.String(),
    }
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        assert found.rename({"week_2": "week_1"}).rows() == connection.execute(sql).fetchall()
        assert connection.sql("from mart_coverage order by week").pl()["week"].to_list() == ["2026-W47", "2026-W48"]
    query(sql, home=home.root, chosen="parquet", output=path, limit=3, json=True)
    assert json.loads(capsys.readouterr().out) == {"output": str(path), "rows": 3}
    assert pl.read_parquet(path).rows() == found.head(3).rows()
    before = path.read_bytes()
    with pytest.raises(DataError, match="no table 'fct_reqests'; did you mean 'fct_requests'"):
        query("from fct_reqests", home=home.root, chosen="parquet", output=path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["answer.parquet"]
    with pytest.raises(HomeError, match="cannot be written"):
        query(sql, home=home.root, chosen="parquet", output=tmp_path / "no" / "folder.parquet")
    with pytest.raises(ConfigError, match="--format parquet goes with --output FILE"):
        query(sql, home=home.root, chosen="parquet")


def test_all_marts_go_to_parquet_in_one_folder(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "marts"
    marts = sorted(name for name in dictionary() if name.startswith("mart_"))
    for _ in range(2):  # an earlier export is replaced
        query(home=home.root, export_marts=folder)
        assert capsys.readouterr().out == f"written: {len(marts)} marts to {folder}\n"
    assert sorted(path.stem for path in folder.iterdir()) == marts
    assert pl.read_parquet(folder / "mart_coverage.parquet")["covered_from_at"].dt.date().min() == date(2026, 11, 16)
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        for name in marts:
            counted = connection.execute(f"select count(*) from {name}").fetchall()  # noqa: S608
            assert counted == [(len(pl.read_parquet(folder / f"{name}.parquet")),)]
    (tmp_path / "link").symlink_to(folder)
    (folder / "mart_of_an_older_kvledger.parquet").touch()
    query(home=home.root, export_marts=tmp_path / "link")
    assert sorted(path.stem for path in folder.iterdir()) == marts
    for mine in ("mine.txt", "mine.parquet"):
        (folder / mine).write_text("x")
        with pytest.raises(ConfigError, match=rf"holds {mine}; name a new folder"):
            query(home=home.root, export_marts=folder)
        (folder / mine).unlink()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=r"--export-marts \.: is the folder you are in; name a new folder"):
        query(home=home.root, export_marts=Path())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "marts"]
    with pytest.raises(ConfigError, match="SQL and --export-marts exclude each other; give one of SQL, --file"):
        query("select 1", home=home.root, export_marts=folder)
