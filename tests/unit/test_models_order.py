"""SQL models: what they read, their order, and the files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from flows.models import Model, models, ordered, read_model, tables_read

ROWS = {"raw_requests", "stg_requests", "fct_requests", "fct_attempts", "fct_tool_waits", "fct_sessions"}
"""Relations with a row a request, attempt, wait or session: millions."""


def model(name: str, *reads: str) -> Model:
    return Model(name, "core", "One row per x", ("x",), "", frozenset(reads))


def test_models_come_after_what_they_read() -> None:
    place = {m.name: n for n, m in enumerate(models())}
    for one in models():
        for read in one.reads & place.keys():
            assert place[read] < place[one.name], f"{one.name} before {read}"


def test_the_order_does_not_depend_on_how_the_files_are_found() -> None:
    found = list(models())
    assert [m.name for m in ordered(found[::-1])] == [m.name for m in ordered(found)]


def test_a_folder_reads_only_what_comes_before_it() -> None:
    folder = {m.name: m.folder for m in models()}
    allowed = {
        "staging": set(),
        "core": {"staging", "core"},
        "distributions": {"staging", "core", "distributions"},
        "marts": {"core", "distributions", "marts"},
        "audits": {"staging", "core", "distributions", "marts"},
    }
    for one in models():
        assert {folder[read] for read in one.reads if read in folder} <= allowed[one.folder], one.name
        if any(read.startswith("plan_") for read in one.reads):
            assert one.folder in ("marts", "audits"), f"{one.name}: only marts and audits read plans"
        if any(read.startswith("raw_") for read in one.reads):
            assert one.folder not in ("marts", "audits"), f"{one.name}: raw inputs are gone when marts are rebuilt"


def test_what_is_read_twice_of_millions_of_rows_says_whether_it_is_kept() -> None:
    """DuckDB keeps such a CTE where it is told nothing: tens of gigabytes on their way through the disk."""
    silent, told = [], 0
    for one in models():
        tree = sqlglot.parse_one(one.sql, read="duckdb")
        reads = [table.name for table in tree.find_all(exp.Table)]
        for cte in tree.find_all(exp.CTE):
            if (
                one.folder != "audits"
                and ROWS & {t.name for t in cte.this.find_all(exp.Table)}
                and reads.count(cte.alias) > 1
            ):
                told += 1
                silent += [f"{one.name}: {cte.alias}"] if cte.args.get("materialized") is None else []
    assert (silent, told > 3) == ([], True)


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("select 1 as x", set()),
        ("select * from a join s.b on true", {"a", "b"}),
        ("with a as (select * from b) select * from a", {"b"}),
        ("with a as (select * from a) select * from a", {"a"}),
        ("with a as (select * from b), b as (select * from c) select * from a join b on true", {"b", "c"}),
        ("select * from a where exists (select 1 from b where b.x = a.x)", {"a", "b"}),
        ("select * from a union all by name select * from b order by 1", {"a", "b"}),
        ("select (select max(x) from a) as y, unnest([1, 2]) as z from b", {"a", "b"}),
        ("select * from a asof left join b on a.x >= b.x cross join (values (1), (2)) as v (w)", {"a", "b"}),
        ("with recursive t as (select 1 as n union all select n + 1 from t where n < 3) select * from t, a", {"a"}),
    ],
)
def test_tables_read(sql: str, reads: set[str]) -> None:
    assert tables_read(sql, "m.sql") == reads


@pytest.mark.parametrize("sql", ["create table a as select 1", "select 1; select 2", "drop table a", ""])
def test_anything_but_one_select_is_no_model(sql: str) -> None:
    with pytest.raises(ValueError, match=r"m\.sql: must be exactly one SELECT"):
        tables_read(sql, "m.sql")


def test_a_model_without_its_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fct_x.sql"
    path.write_text("select 1 as x\n")
    with pytest.raises(ValueError, match=r"fct_x\.sql: must start with '-- One row per"):
        read_model(path)


def test_a_relation_that_nobody_makes_is_named() -> None:
    with pytest.raises(ValueError, match="fct_a reads fct_b, which no model makes"):
        ordered([model("fct_a", "fct_b", "raw_x", "plan_y")])


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match=r"in a circle: .*fct_a"):
        ordered([model("fct_a", "fct_b"), model("fct_b", "fct_a")])


def test_models_hold_no_templates_and_no_ddl() -> None:
    for one in models():
        text = one.sql.lower()
        assert not [word for word in ("{{", "{%", "create table", "insert into", "attach ") if word in text], one.name


def test_how_a_model_is_brought_up_to_date_is_declared_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "dist_x.sql"
    path.write_text("-- One row per x.\n-- grain: x\n-- incremental: month\nselect 1 as x\n")
    with pytest.raises(ValueError, match="incremental must be session or week, not month"):
        read_model(path)
    path.write_text("-- One row per x.\n-- grain: x\n-- incremental: week\nselect 1 as x\n")
    with pytest.raises(ValueError, match="dist_x is incremental by week, which is not in its grain"):
        ordered([read_model(path)])
    path.write_text("-- One row per x.\n-- grain: x\n-- incremental: session\nselect * from dim_y\n")
    with pytest.raises(ValueError, match="dist_x is incremental by session and reads dim_y, which is not"):
        ordered([read_model(path), model("dim_y")])
    by_session = {m.name for m in models() if m.incremental == "session"}
    assert by_session == {"stg_requests", "fct_requests", "fct_attempts", "fct_tool_waits", "fct_sessions"}
