"""The warehouse as a file: built from a lake, audited, published whole or not at all, and read while it changes."""

from __future__ import annotations

import json
import os
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from lakes import FLEET, MONDAY, no_progress, random_rows, row, write_fleet, write_lake

from flows.build import EVERY_DAY, build, build_facts, rebuild_marts
from flows.catalog import load_catalog
from flows.dictionary import dictionary
from flows.facts_id import facts_due
from flows.home import Home, open_home
from flows.lake import Commit, requests_path
from flows.query import asked
from flows.warehouse import Limits, drafting, published
from transforms.errors import ConfigError, DataError, HomeError
from transforms.planner.sizing.plan_tables import PLAN_TABLES, plan_rows

REJECTS = [
    {"day": "2026-11-17", "source": "kvledger", "source_file": "a.jsonl", "source_position": n, "reason": "no arrival"}
    for n in range(3)
]


def built(home: Home) -> Path:
    return build(home, write_fleet(home), load_catalog(home), no_progress)


def rows_of(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def everything(path: Path) -> dict[str, list[str]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return {name: sorted(map(repr, connection.execute(f"from {name}").fetchall())) for name in dictionary()}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return random_rows(seed=7, sessions=400)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> Home:
    place = write_lake(tmp_path_factory.mktemp("home"), rows, REJECTS)
    built(place)
    return place


def test_the_file_holds_every_table_of_the_dictionary_with_its_comments(home: Home) -> None:
    found = rows_of(
        home.warehouse,
        "select table_name, column_name, lower(data_type), comment from duckdb_columns() "
        "where not internal and schema_name = 'main' order by table_name, column_index",
    )
    wanted = [(t.name, c.name, c.type, c.comment) for t in dictionary().values() for c in t.columns]
    assert sorted(found) == sorted(wanted)
    tables = dict(rows_of(home.warehouse, "select table_name, comment from duckdb_tables()"))
    assert tables == {t.name: f"{t.text}. Grain: {', '.join(t.grain)}" for t in dictionary().values()}
    assert rows_of(home.warehouse, "select count(*) from duckdb_views() where not internal") == [(0,)]
    assert [path.name for path in home.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_rows_are_conserved(home: Home, rows: list[dict[str, Any]]) -> None:
    assert rows_of(home.warehouse, "select count(*) from stg_requests") == [(len(rows),)]
    assert rows_of(home.warehouse, "select count(*) from fct_requests") == [(len({r["request_id"] for r in rows}),)]
    backend = sum(r["served_by"] == "backend" and r["status"] != "rejected" for r in rows)
    assert rows_of(home.warehouse, "select count(*) from fct_attempts") == [(backend,)]
    assert rows_of(home.warehouse, "select week, reason, rejected_rows from mart_rejects") == [
        ("2026-W47", "no arrival", 3)
    ]


def test_the_grain_of_every_table_is_unique(home: Home) -> None:
    for table in dictionary().values():
        grain = ", ".join(table.grain)
        doubled = rows_of(home.warehouse, f"select {grain} from {table.name} group by all having count(*) > 1")  # noqa: S608
        assert doubled == [], table.name


def test_models_and_hours_follow_the_fleet_file(home: Home) -> None:
    served = rows_of(home.warehouse, "select distinct deployment_id, model from stg_requests order by all")
    assert served == [("chat", "chat-model"), ("rest", "other"), ("rest", None)]
    shifted = rows_of(
        home.warehouse,
        "select count(*) from (select week, cast(floor(epoch(arrived_at + interval '5 hours 30 minutes' "
        "- date_trunc('week', arrived_at + interval '5 hours 30 minutes')) / 3600) as integer) as hour_of_week, "
        "count(*) as n from fct_requests where served_by <> 'gateway_cache' group by all) as counted "
        "full join (from dist_hours where deployment_id = '(all)') as hours using (week, hour_of_week) "
        "where counted.n is distinct from hours.requests",
    )
    assert shifted == [(0,)]


def test_the_same_rows_come_out_whatever_the_order_of_the_lake(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    shuffled = random.Random(1).sample(rows, len(rows))
    one, other = write_lake(tmp_path / "one", rows, REJECTS), write_lake(tmp_path / "other", shuffled, REJECTS)
    first = everything(built(one))
    with drafting(other, limits=Limits(memory_bytes=2**30, spill_bytes=2**30, threads=1)) as draft:
        fleet, catalog = write_fleet(other), load_catalog(other)
        build_facts(draft, other, fleet, catalog, no_progress, facts_due(other, fleet, catalog, EVERY_DAY))
        for name in (n for n in dictionary() if n.startswith(("fct_", "dist_"))):
            found = sorted(map(repr, draft.connection.execute(f"from {name}").fetchall()))
            assert found == first[name], name
    second = everything(built(other))
    assert first.pop("dim_lake_days") != second.pop("dim_lake_days")  # the files of the lake do differ
    assert second == first


def test_a_failed_audit_names_the_rows_and_leaves_the_old_file(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1), row(2)])
    before = built(place).read_bytes()
    write_lake(tmp_path, [row(1), row(2), row(2)])
    with pytest.raises(DataError, match=r"audit_attempts_unique found rows.*old warehouse stands.*request_id r0000002"):
        built(place)
    assert place.warehouse.read_bytes() == before
    assert [path.name for path in place.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_a_reader_keeps_the_old_file_while_a_new_one_is_published(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1)])
    built(place)
    with published(place) as reader:
        write_lake(tmp_path, [row(1), row(2)])
        built(place)
        assert reader.execute("select count(*) from fct_requests").fetchall() == [(1,)]
    with published(place) as reader:
        assert reader.execute("select count(*) from fct_requests").fetchall() == [(2,)]


def write_plans(place: Home, week: str, needed_gpus: int) -> None:
    keys = {"run_id": "abc", "week": week, "deployment_id": "chat", "scenario_id": "today"}
    common = {"needed_gpus": needed_gpus, "needed_replicas": needed_gpus, "now_gpus": 2, "now_replicas": 2}
    common["is_slo_reachable"] = True
    demands = [("kv", 1.2, 2, True), ("compute", 0.4, 1, False), ("latency", 0.9, 1, False)]
    replicas = [
        {"demand": d, "demand_replicas": n, "replicas_replicas": r, "is_binding": b, "provenance": "modelled", **common}
        | {"busiest_hour_at": datetime(2026, 11, 17, 12, tzinfo=UTC), "headroom_ratio": 0.3, "is_censored": False}
        | {"residency_peak_bytes": 2.0**30, "kv_capacity_bytes": 2**30, "utilization_factor": 0.6}
        for d, n, r, b in demands
    ]
    folder = place.plans / f"week={week}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLAN_TABLES:
        plan_rows(name, keys, replicas if name == "plan_replicas" else []).write_parquet(folder / f"{name}.parquet")


def test_plans_are_loaded_and_only_marts_are_rebuilt(tmp_path: Path) -> None:
    place = write_lake(tmp_path, random_rows(seed=3, sessions=300))
    path = built(place)
    facts = {name: rows for name, rows in everything(path).items() if name.startswith(("stg_", "fct_", "dist_"))}
    assert rows_of(path, "select count(*) from mart_decision") == [(0,)]
    write_plans(place, "2026-W47", 2)
    write_plans(place, "2026-W48", 3)
    rebuild_marts(place, no_progress)
    decided = rows_of(
        path, "select week, action_text, gpus_change_gpus, busiest_hour_at, previous_week from mart_decision order by 1"
    )
    noon = datetime(2026, 11, 17, 12)  # noqa: DTZ001 -- the warehouse keeps UTC without a zone
    assert decided == [
        ("2026-W47", "keep", None, noon, None),
        ("2026-W48", "add 1 GPU", 1, noon, "2026-W47"),
    ]
    assert {name: rows for name, rows in everything(path).items() if name in facts} == facts
    built(place)
    assert len(rows_of(path, "from plan_replicas")) == 6


def test_a_plan_that_contradicts_itself_is_not_published(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1)])
    before = built(place).read_bytes()
    write_plans(place, "2026-W47", 1)
    with pytest.raises(DataError, match="audit_plan_binding"):
        rebuild_marts(place, no_progress)
    assert place.warehouse.read_bytes() == before
    write_plans(place, "2026-W47", 2)
    plan = place.plans / "week=2026-W47" / "plan_replicas.parquet"
    pl.read_parquet(plan).with_columns(step_s=pl.lit(float("inf"))).write_parquet(plan)
    with pytest.raises(
        DataError, match=r"audit_columns found rows of plan_replicas whose step_s .*warehouse stands: week"
    ):
        rebuild_marts(place, no_progress)
    assert place.warehouse.read_bytes() == before


def test_columns_that_an_old_lake_or_plan_lacks_are_null(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1), row(90_000)])
    day = requests_path(place, "2026-11-16")
    pl.read_parquet(day).drop("choices", "reasoning_tokens").write_parquet(day)
    write_plans(place, "2026-W47", 2)
    plan = place.plans / "week=2026-W47" / "plan_replicas.parquet"
    pl.read_parquet(plan).drop("note", "step_s").write_parquet(plan)
    path = built(place)
    assert rows_of(path, "select distinct choices, reasoning_tokens from stg_requests") == [(None, None)]
    assert rows_of(path, "select distinct note, step_s from plan_replicas") == [(None, None)]


def test_a_lake_commit_that_was_cut_short_is_finished_first(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1)])
    target = requests_path(place, "2026-11-16")
    commit = Commit(place)
    aside = commit.aside(target)
    target.replace(aside)
    (place.lake / "journal.json").write_text(
        json.dumps({"moves": [[str(path.relative_to(place.root)) for path in (aside, target)]], "removals": []})
    )
    assert rows_of(built(place), "select count(*) from fct_requests") == [(1,)]


def test_limits_are_set_and_the_storage_version_is_ours(tmp_path: Path) -> None:
    place = open_home(tmp_path)
    with drafting(place, limits=Limits(memory_bytes=2**28, spill_bytes=2**30, threads=1)) as draft:
        settings = ("memory_limit", "threads", "max_temp_directory_size", "TimeZone", "preserve_insertion_order")
        named = ", ".join(f"current_setting('{name}')" for name in settings)
        assert draft.connection.execute(f"select {named}").fetchall() == [("256.0 MiB", 1, "1.0 GiB", "UTC", False)]
        found = draft.connection.execute("select tags from duckdb_databases() where database_name = 'kvledger'")
        assert "v1.4.0" in str(found.fetchall())  # DuckDB's command line from PyPI is 1.5


def test_a_warehouse_of_a_newer_file_format_gets_its_plans_all_the_same(tmp_path: Path) -> None:
    place = write_lake(tmp_path, random_rows(seed=5, sessions=3))
    older = built(place).rename(tmp_path / "older.duckdb")
    with duckdb.connect() as connection:
        connection.execute(f"attach '{older}' as older (read_only)")
        connection.execute(f"attach '{place.warehouse}' as newer (storage_version 'v2.0.0')")
        connection.execute("copy from database older to newer")
    rebuild_marts(place, no_progress)
    assert rows_of(place.warehouse, "select count(*) from fct_requests") != [(0,)]


def test_a_build_that_finds_no_room_says_so_and_leaves_the_old_file(tmp_path: Path) -> None:
    place = write_lake(tmp_path, random_rows(seed=5, sessions=6000))
    before = built(place).read_bytes()
    tight = Limits(memory_bytes=6 * 2**20, spill_bytes=2**10, threads=1)
    fleet, catalog = write_fleet(place), load_catalog(place)
    due = facts_due(place, fleet, catalog, EVERY_DAY, is_anew=True)
    with (
        pytest.raises(HomeError, match=r"could not be written .* the old one stands"),
        drafting(place, limits=tight) as draft,
    ):
        build_facts(draft, place, fleet, catalog, no_progress, due)
    assert place.warehouse.read_bytes() == before
    assert [path.name for path in place.warehouse.parent.iterdir()] == ["kvledger.duckdb"]


def test_an_empty_lake_and_a_missing_warehouse_say_what_to_do(tmp_path: Path) -> None:
    place = open_home(tmp_path)
    with pytest.raises(DataError, match="holds no requests; run kvledger ingest"):
        built(place)
    with pytest.raises(DataError, match=r"no warehouse at .*; run kvledger review"), published(place):
        pass
    with pytest.raises(DataError, match="no warehouse at"):
        rebuild_marts(place, no_progress)


def test_a_file_that_is_no_warehouse_is_refused(tmp_path: Path) -> None:
    place = open_home(tmp_path)
    place.warehouse.parent.mkdir()
    place.warehouse.write_text("not a database, but long enough to look like one\n" * 200)
    with pytest.raises(DataError, match="not a warehouse this version can open"), published(place):
        pass
    place.warehouse.unlink()
    with duckdb.connect(str(place.warehouse)) as connection:
        connection.execute("create table t as select 1 as x")
    with pytest.raises(DataError, match="is no warehouse of kvledger"), published(place):
        pass
    with duckdb.connect(str(place.warehouse)) as connection:
        connection.execute("create table dim_settings as select 'warehouse_version' as name, '99' as value_text")
    with pytest.raises(DataError, match=r"newer kvledger \(warehouse version 99"), published(place):
        pass


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        ("drop table fct_requests", ConfigError, "only reads, and this is DROP"),
        ("insert into mart_hours values (1)", ConfigError, "only reads, and this is INSERT"),
        ("copy mart_hours to 'x.csv'", ConfigError, "only reads, and this is COPY"),
        ("attach 'x.db'", ConfigError, "only reads, and this is ATTACH"),
        ("select 1; drop table fct_requests", ConfigError, "not 2 statements"),
        ("", ConfigError, "not 0 statements"),
        ("selekt 1", ConfigError, "syntax error"),
        ("from read_csv('/etc/passwd')", DataError, "reads the tables of the warehouse and nothing else"),
        ("from mart_decisoin", DataError, "no table 'mart_decisoin'; did you mean 'mart_decision'?"),
        ("select reqests from mart_hours", DataError, "no column 'reqests' in mart_hours; did you mean 'requests'?"),
        ("select m.reqests from mart_hours as m", DataError, "no column 'reqests' in mart_hours; did you mean"),
        ("select needed_gpus from mart_hours", DataError, "'needed_gpus' in mart_hours; mart_count_changes has it"),
        ("select * from mart_hours where text = 1", DataError, "no column 'text' in mart_hours; "),
        ("select cast('x' as integer)", DataError, "Conversion Error"),
    ],
)
def test_query_reads_and_nothing_else(home: Home, sql: str, error: type[Exception], says: str) -> None:
    before = home.warehouse.read_bytes()
    with pytest.raises(error) as raised, asked(home, sql) as answer:
        list(answer.rows)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert home.warehouse.read_bytes() == before


def test_query_answers_with_columns_types_and_rows(home: Home) -> None:
    sql = "select week, week, requests, covered_from_at from mart_coverage order by week"
    with asked(home, sql) as answer:
        assert answer.columns == ("week", "week_2", "requests", "covered_from_at")
        assert answer.types == ("varchar", "varchar", "bigint", "timestamp")
        assert [r[0] for r in answer.rows] == ["2026-W47", "2026-W48"]


def test_a_fleet_change_needs_no_new_ingest(tmp_path: Path) -> None:
    place = write_lake(tmp_path, [row(1), row(2, model="other")])
    built(place)
    fleet = write_fleet(place, FLEET.replace('serves = ["*"]', 'serves = ["o*"]').replace('"chat-model"', '"chat-*"'))
    path = build(place, fleet, load_catalog(place), no_progress)
    assert rows_of(path, "select deployment_id, model from dist_served_models order by 1") == [
        ("chat", "chat-model"),
        ("rest", "other"),
    ]


def test_the_week_is_iso_and_utc_whatever_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        edge = [row(1, arrived_at=datetime(2027, 1, 3, 23, 59, 59, 999_999, tzinfo=UTC))]
        edge += [row(2, arrived_at=datetime(2027, 1, 4, tzinfo=UTC))]
        path = built(write_lake(tmp_path, edge))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert rows_of(path, "select week, cast(arrived_at as varchar) from fct_requests order by 1") == [
        ("2026-W53", "2027-01-03 23:59:59.999999"),
        ("2027-W01", "2027-01-04 00:00:00"),
    ]
    assert MONDAY.tzinfo is UTC
    assert os.environ.get("TZ") != "America/Los_Angeles"
