"""Audits that every table has, from the dictionary: a row doubled, or outside what is said of its column, is named."""

from __future__ import annotations

import duckdb
import pytest

from flows.column_rules import audit_columns, rules_of
from flows.dictionary import dictionary
from flows.grains import COUNTED_ELSEWHERE, audit_grains
from flows.models import of_folders
from flows.tables import columns
from transforms.errors import DataError


def empty() -> duckdb.DuckDBPyConnection:
    connected = duckdb.connect()
    for table in dictionary().values():
        connected.execute(f"create table {table.name} ({columns(table)})")
    return connected


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    return empty()


def test_every_table_has_an_audit() -> None:
    read = frozenset().union(*(audit.reads for audit in of_folders("audits")))
    counted = set(dictionary()) - set(COUNTED_ELSEWHERE)
    assert set(dictionary()) - counted - read == set()
    assert set(COUNTED_ELSEWHERE) <= set(dictionary())


@pytest.mark.parametrize("name", ["mart_hours", "plan_kv_time", "dist_length_histogram", "dim_deployments"])
def test_two_rows_of_one_grain_are_named(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    grain = dictionary()[name].grain
    marks = ", ".join("null" if column == "tenant" else "1" for column in grain)
    connection.execute(f"insert into {name} ({', '.join(grain)}) values ({marks})")  # noqa: S608
    audit_grains(connection)
    connection.execute(f"insert into {name} ({', '.join(grain)}) values ({marks})")  # noqa: S608
    with pytest.raises(DataError, match=f"audit_grains found rows of {name} that are not one each of .*: 1"):
        audit_grains(connection)


ROWS = {
    "dim_deployments": [{"deployment_id": "chat", "gpu_memory_utilization_ratio": 0.9}],
    "fct_attempts": [
        {"request_id": "r1", "deployment_id": None, "ttft_s": None},
        {"request_id": "r2", "deployment_id": "chat", "ttft_s": 0.0, "prompt_tokens": 0},
    ],
    "fct_tool_waits": [{"request_id": "r2", "deployment_id": "chat", "wait_s": 0.0, "stamped_wait_s": -2.0}],
    "dist_joint_lengths": [{"week": "W", "prompt_bin_low_tokens": 1, "prompt_bin_high_tokens": 2}],
    "dist_group_length_tails": [
        {"week": "W", "grouping_name": "deployment", "member": "(all)", "hill_factor": -3.0},
        {"week": "W", "grouping_name": "tenant", "member": "somebody"},
    ],
    "dist_prompt_tokens": [
        {"week": "W", "deployment_id": "(all)", "prompt_min_tokens": 1, "prompt_p50_tokens": 1, "prompt_p75_tokens": 3}
        | {"prompt_mean_tokens": 7.0000000001, "prompt_p99_tokens": 7, "prompt_p999_tokens": 7, "prompt_max_tokens": 7},
        {"week": "W", "deployment_id": "chat", "prompt_p50_tokens": None, "prompt_p75_tokens": 7},
    ],
    "plan_replicas": [{"week": "W", "deployment_id": "gone", "low_gpus": 2, "high_gpus": 2, "headroom_ratio": 1.5}],
    "mart_latency": [{"week": "W", "deployment_id": "gone", "measure": "ttft", "attainment_ratio": 1.0}],
    "mart_scenarios": [{"week": "W", "deployment_id": "chat", "scenario_id": "s", "attainment_change_ratio": -1.0}],
}
"""Rows that break no rule: unknown figures, ends that meet, numbers that [bounds] lets be, a plan of an older fleet."""

BROKEN = [
    ("fct_attempts", "ttft_s", -0.5, "ttft_s is below 0 or infinite or NaN.*: .*request_id r1.*ttft_s -0.5"),
    ("fct_attempts", "ttft_s", float("nan"), "ttft_s is below 0 or infinite or NaN"),
    ("fct_attempts", "e2e_s", float("inf"), "e2e_s is below 0 or infinite or NaN"),
    ("fct_attempts", "prompt_tokens", -1, "prompt_tokens is below 0, so"),
    ("fct_tool_waits", "stamped_wait_s", float("-inf"), "stamped_wait_s is infinite or NaN"),
    ("mart_latency", "attainment_ratio", 1.1, "attainment_ratio is below 0 or above 1 or infinite or NaN"),
    ("mart_scenarios", "attainment_change_ratio", -1.1, "attainment_change_ratio is below -1 or above 1"),
    ("plan_replicas", "headroom_ratio", -0.1, "headroom_ratio is below 0 or infinite or NaN"),
    ("fct_attempts", "deployment_id", "gone", "deployment_id is no deployment of the fleet"),
    (
        "mart_latency",
        "deployment_id",
        "else",
        "deployment_id is no deployment of the fleet.*: week W, deployment_id else",
    ),
    ("dist_group_length_tails", "grouping_name", "hour", "grouping_name is none of model, tenant, deployment"),
    ("dist_group_length_tails", "member", "gone", "member is no deployment of the fleet"),
    ("dist_prompt_tokens", "prompt_p50_tokens", 8.0, "prompt_p50_tokens is above prompt_p75_tokens"),
    ("dist_prompt_tokens", "prompt_max_tokens", 5, "prompt_p999_tokens is above prompt_max_tokens"),
    ("dist_prompt_tokens", "prompt_mean_tokens", 0.5, "prompt_min_tokens is above prompt_mean_tokens"),
    ("dist_prompt_tokens", "prompt_mean_tokens", 7.1, "prompt_mean_tokens is above prompt_max_tokens"),
    ("dist_joint_lengths", "prompt_bin_low_tokens", 2, "prompt_bin_low_tokens is not below prompt_bin_high_tokens"),
    ("plan_replicas", "low_gpus", 3, "low_gpus is above high_gpus"),
]


@pytest.fixture(scope="module")
def filled() -> duckdb.DuckDBPyConnection:
    connected = empty()
    for name, rows in ROWS.items():
        for row in rows:
            marks = ", ".join("?" for _ in row)
            connected.execute(f"insert into {name} ({', '.join(row)}) values ({marks})", list(row.values()))  # noqa: S608
    audit_columns(connected)
    return connected


@pytest.mark.parametrize(("name", "column", "value", "words"), BROKEN)
def test_a_column_that_is_not_as_the_dictionary_says_is_named(
    filled: duckdb.DuckDBPyConnection, name: str, column: str, value: object, words: str
) -> None:
    filled.begin()
    filled.execute(f"update {name} set {column} = ?", [value])  # noqa: S608
    with pytest.raises(DataError, match=f"audit_columns found rows of {name} whose {words}"):
        audit_columns(filled)
    filled.rollback()


def test_every_number_has_a_rule_and_every_rule_can_be_asked(filled: duckdb.DuckDBPyConnection) -> None:
    for table in dictionary().values():
        rules = rules_of(table, ["it's"])
        ruled = {column for rule in rules for column in rule.columns}
        left = [column for column in table.columns if column.bounds and column.name not in ruled]
        assert all(column.is_signed and column.type != "double" for column in left), table.name
        for rule in rules:
            filled.execute(f"select bool_or({rule.broken}) from {table.name}")  # noqa: S608
