"""The dictionary against the warehouse itself: every column named, typed, with its unit; DICTIONARY.md is current."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import polars as pl
import pytest

from flows.build import load_plans
from flows.deployments import DEPLOYMENTS, KV_GROUPS, MEMORY, SETTINGS
from flows.dictionary import UNITLESS_TYPES, dictionary, markdown, unit_of
from flows.home import Home
from flows.lake_days import LAKE_DAYS
from flows.macros import macros
from flows.models import Model, of_folders
from flows.raw_inputs import FILES, HOURS, REJECTS, REQUESTS, SERVES
from transforms.planner.sizing.plan_tables import PLAN_GRAINS, PLAN_TABLES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = tomllib.loads((ROOT / "sql/dictionary.toml").read_text(encoding="utf-8"))
MODELS = of_folders("staging", "core", "distributions", "marts")
POLARS_TYPES = {
    pl.String(): "varchar",
    pl.Int32(): "integer",
    pl.Int64(): "bigint",
    pl.Float64(): "double",
    pl.Boolean(): "boolean",
    pl.Datetime("us"): "timestamp",
    pl.Datetime("us", "UTC"): "timestamp",
    pl.Date(): "date",
}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Relation -> column -> DuckDB type, as the models themselves give them on empty inputs."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    empty = {"raw_requests": REQUESTS, "raw_rejects": REJECTS, "raw_files": FILES}
    polars = {
        "raw_deployments": DEPLOYMENTS,
        "raw_kv_groups": KV_GROUPS,
        "raw_memory": MEMORY,
        "raw_settings": SETTINGS,
        "raw_serves": SERVES,
        "raw_hours": HOURS,
        "raw_lake_days": LAKE_DAYS,
    }
    empty |= {name: {c: POLARS_TYPES[t] for c, t in schema.items()} for name, schema in polars.items()}
    for name, types in empty.items():
        connection.execute(f"create table {name} ({', '.join(f'{c} {t}' for c, t in types.items())})")
    load_plans(connection, Home(tmp_path_factory.mktemp("home")))
    found = {}
    for model in MODELS:
        for macro in macros():
            if f"{macro.name}(" in model.sql:
                connection.execute(macro.sql)
        connection.execute(f"create table {model.name} as {model.sql}")
        rows = connection.execute(f"select column_name, column_type from (describe {model.name})").fetchall()  # noqa: S608
        found[model.name] = {str(name): str(type_).lower() for name, type_ in rows}
    return found


@pytest.mark.parametrize("model", MODELS, ids=[model.name for model in MODELS])
def test_the_dictionary_has_every_column_of_a_model_and_no_other(
    model: Model, described: dict[str, dict[str, str]]
) -> None:
    assert set(described[model.name]) == set(dictionary()[model.name].types)


@pytest.mark.parametrize("model", MODELS, ids=[model.name for model in MODELS])
def test_a_model_gives_values_of_the_type_the_dictionary_says(
    model: Model, described: dict[str, dict[str, str]]
) -> None:
    kinds = {"hugeint": "whole", "bigint": "whole", "integer": "whole", '"null"': "null"}
    for column, type_ in dictionary()[model.name].types.items():
        found = described[model.name][column].split("(")[0]
        found, wanted = kinds.get(found, found), kinds.get(type_, type_)
        if wanted == "double" and found in ("decimal", "whole"):
            continue
        assert found == wanted, column


def test_the_dictionary_names_no_relation_that_nobody_makes() -> None:
    assert set(dictionary()) == {model.name for model in MODELS} | set(PLAN_TABLES)


@pytest.mark.parametrize("name", PLAN_TABLES)
def test_plan_tables_are_those_the_planner_writes(name: str) -> None:
    table = dictionary()[name]
    assert table.types == {column: POLARS_TYPES[type_] for column, type_ in PLAN_TABLES[name].items()}
    assert table.grain == PLAN_GRAINS[name]


@pytest.mark.parametrize("name", dictionary())
def test_the_grain_is_made_of_columns(name: str) -> None:
    table = dictionary()[name]
    assert set(table.grain) <= set(table.types)
    assert table.text.startswith("One row per ")


def test_every_number_ends_in_its_unit_and_no_text_does() -> None:
    units = DOCUMENT["units"]
    for name, (type_, text) in DOCUMENT["columns"].items():
        assert text, name
        unit_of(name, type_, units, DOCUMENT["plain"])
        ends_in_unit = any(name == unit or name.endswith(f"_{unit}") for unit in units if unit not in ("at", "date"))
        if type_ in UNITLESS_TYPES:
            assert not ends_in_unit, f"{name} is {type_} but its name ends in a unit"
        if type_ == "boolean":
            assert name.startswith(("is_", "has_")), name
        if type_ == "timestamp":
            assert name.endswith("_at"), name


def test_units_are_tried_longest_first() -> None:
    units = list(DOCUMENT["units"])
    for place, unit in enumerate(units):
        assert not any(unit.endswith(f"_{earlier}") for earlier in units[:place]), unit


def test_nothing_in_the_dictionary_is_unused() -> None:
    used = {column for table in DOCUMENT["tables"].values() for column in table["columns"]}
    assert set(DOCUMENT["columns"]) == used
    assert set(DOCUMENT["plain"]) <= used
    for name in (*DOCUMENT["bounds"]["signed"], *DOCUMENT["bounds"]["above_one"]):
        *table, column = name.split(".")
        assert column in (DOCUMENT["tables"][table[0]]["columns"] if table else used), name


def test_a_number_without_a_unit_is_an_error() -> None:
    with pytest.raises(KeyError, match="weight"):
        unit_of("weight", "double", DOCUMENT["units"], DOCUMENT["plain"])


def test_dictionary_md_is_current() -> None:
    text = (ROOT / "sql/DICTIONARY.md").read_text(encoding="utf-8")
    assert text == markdown(dictionary().values()), "run: kvledger dictionary --markdown > sql/DICTIONARY.md"
