"""The macros of the warehouse file and the ten worked questions, on a week that was planted for them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pytest
from lakes import FLEET, MONDAY, no_progress, row, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.deployments import place
from flows.examples import without_rows
from flows.home import Home
from flows.macros import macros
from flows.models import FOLDERS, tables_read
from flows.shipped import shipped
from transforms.planner.residency.block_rounding import block_bytes

EXAMPLES = sorted(shipped("sql", "examples").glob("*.sql"))
WINDOWED = """
[[deployments]]
name = "windowed"
serves = ["gemma"]
model = "google/gemma-3-12b-it"
gpu = "H100-SXM-80GB"
[deployments.engine]
version = "0.19.0"
max_model_len = 32768
"""
TOKENS = (0, 1, 16, 17, 1000, 1024, 1040, 8193, 30_000)
TOKEN_BYTES = 131_072


def planted() -> list[dict[str, Any]]:
    """Two weeks: this one with tools, limits, a long session, a burst, slow first tokens and a weekend."""
    rows: list[dict[str, Any]] = []

    def add(at_s: float, **values: Any) -> None:
        rows.append(row(len(rows), arrived_at=MONDAY + timedelta(seconds=at_s), **values))

    for number in range(30):  # the week before: thirty requests of 100 + 10 tokens, ten minutes apart
        add(-7 * 86_400 + 600 * number)
    for tenant, wait_s in (("a", 60), ("b", 20)):  # 5,900 + 100 tokens through one tool wait each
        calls = {"tenant": tenant, "session_id": f"tools-{tenant}", "cached_prompt_tokens": 0}
        add(100, **calls, prompt_tokens=5_900, output_tokens=100, e2e_s=2.0, tool_calls=1, finish_reason="tool_calls")
        cached = {"a": 3_000, "b": 0}[tenant]
        add(
            102 + wait_s, **(calls | {"cached_prompt_tokens": cached}),
            prompt_tokens=6_000, output_tokens=10, tool_results=1, finish_reason="stop",
        )  # fmt: skip
    for number, (prompt, requested) in enumerate([(16_384, 10), (20_000, None), (16_000, 500), (16_000, 384)]):
        add(10_000 + number, prompt_tokens=prompt, output_tokens=5, requested_output_tokens=requested)
    for number, status in enumerate(["length", "length", "timeout"]):
        failed = {"e2e_s": 9.0} if status == "timeout" else {"finish_reason": "length"}
        add(20_000 + number, output_tokens=50 + number, status=status, **failed)
    add(20_010, prompt_tokens=131_000, output_tokens=72, status="length", finish_reason="length")
    for turn in range(101):
        add(30_000 + 20 * turn, session_id="long", tenant="c", prompt_tokens=200, output_tokens=20)
    for number in range(50):  # a burst of another model: five minutes of 50 arrivals
        add(200_100 + number, model="other", prompt_tokens=10)
    for number in range(20):  # 1 in 20 waits 3 s in the queue, prefill takes 0.5 s
        queue_s = 3.0 if number == 0 else 0.1
        add(300_000 + 400 * number, queue_s=queue_s, ttft_s=queue_s + 0.5, e2e_s=5.0)
    for number in range(6):  # Sunday noon in India, the fleet's planning time zone
        add(6 * 86_400 + 6.5 * 3600 + number, source_file="weekend.jsonl", output_tokens=None)
    return rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    place_of = write_lake(tmp_path_factory.mktemp("home"), planted())
    build(place_of, write_fleet(place_of, FLEET + WINDOWED), load_catalog(place_of), no_progress)
    return place_of


def asked(home: Home, sql: str) -> list[dict[str, Any]]:
    """Rows of `sql` as an analyst gets them who opens the file with nothing but DuckDB."""
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        result = connection.execute(sql)
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, values, strict=True)) for values in result.fetchall()]


def example(home: Home, name: str) -> list[dict[str, Any]]:
    return asked(home, shipped("sql", "examples", f"{name}.sql").read_text(encoding="utf-8"))


def value(home: Home, sql: str) -> Any:
    return next(iter(asked(home, f"select {sql} as found")[0].values()))


@pytest.mark.parametrize("deployment", ["chat", "windowed"])
def test_kv_bytes_are_those_of_the_account(home: Home, deployment: str) -> None:
    loaded = write_fleet(home, FLEET + WINDOWED)
    (one,) = [d for d in loaded.fleet.deployments if d.name == deployment]
    wanted = block_bytes(place(one, loaded, load_catalog(home)).account.groups, np.array(TOKENS, dtype=float))
    assert [value(home, f"kv_bytes('{deployment}', {tokens})") for tokens in TOKENS] == wanted.tolist()


@pytest.mark.parametrize(("low", "high"), [(0, 800), (700, 5_000), (2_000, 4_096), (64, 64), (4_096, 4_096)])
def test_mean_kv_bytes_are_the_mean_of_the_bytes_not_rounded(home: Home, low: int, high: int) -> None:
    """Between multiples of a block the bytes in whole blocks are the bytes; the mean of those is the macro's."""
    loaded = write_fleet(home, FLEET + WINDOWED)
    (one,) = [d for d in loaded.fleet.deployments if d.name == "windowed"]
    groups = place(one, loaded, load_catalog(home)).account.groups
    assert any(group.max_blocks for group in groups)
    total = 0.0
    for group in groups:
        most = float("inf") if group.max_blocks is None else group.max_blocks * group.block_tokens
        held = np.minimum(np.linspace(low, high, 200_001), most)
        total += (
            group.fixed_bytes + float(np.trapezoid(held, dx=1 / 200_000)) / group.block_tokens * group.bytes_per_block
        )
    assert value(home, f"kv_mean_bytes('windowed', {low}, {high})") == pytest.approx(total, rel=1e-6)


def test_kv_time_is_the_closed_form(home: Home) -> None:
    assert value(home, "gib(kv_time('chat', 8192, 2048, 40.96))") == pytest.approx(46.08, rel=1e-12)
    with_prefill = value(home, "kv_time('chat', 1000, 100, 2.0, cached_tokens := 400, prefill_s := 0.5)")
    assert with_prefill == pytest.approx(TOKEN_BYTES * (700 * 0.5 + 1050 * 2.0), rel=1e-12)
    assert value(home, "kv_time('nobody', 8192, 2048, 40.96)") is None


@pytest.mark.parametrize("call", ["kv_bytes(d, t)", "kv_mean_bytes(d, t, 100)", "kv_mean_bytes(d, 100, t)"])
def test_unknown_and_impossible_tokens_have_no_bytes(home: Home, call: str) -> None:
    """least() takes no notice of NULL: a window's size would stand for what nobody knows."""
    rows = "(values ('windowed', null), ('chat', null), ('windowed', -50), (null, 5), ('nobody', 5)) as given (d, t)"
    assert value(home, f"(select count({call}) from {rows})") == 0  # noqa: S608
    assert value(home, "kv_time('chat', null, 100, 2.0)") is None
    assert value(home, "kv_time('windowed', 100, null, 2.0)") is None
    assert value(home, "kv_time('windowed', 100, 10, -2.0)") is None
    assert value(home, "kv_mean_bytes('windowed', 5000, 700)") == value(home, "kv_mean_bytes('windowed', 700, 5000)")


def test_a_week_is_that_of_the_instant_in_any_time_zone_of_the_session(home: Home) -> None:
    moments = ["timestamp '2026-11-15 23:00'", "timestamptz '2026-11-15 23:00+00'", "date '2026-11-15'", "null"]
    asked_for = ", ".join(f"week_of({moment})" for moment in moments)
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        connection.execute("set TimeZone = 'Asia/Tokyo'")
        assert connection.execute(f"select {asked_for}").fetchall() == [(*["2026-W46"] * 3, None)]


def test_small_macros_say_what_the_columns_say(home: Home) -> None:
    assert asked(home, "select count(*) as n from fct_requests where week_of(arrived_at) <> week") == [{"n": 0}]
    served = "select count(*) as n from fct_requests where deployment_of(model) is distinct from deployment_id"
    assert asked(home, served) == [{"n": 0}]
    assert value(home, "deployment_of('unheard-of')") is None


def test_every_macro_is_in_the_file_with_its_comment_and_its_example_runs(home: Home) -> None:
    found = asked(
        home,
        "select function_name as name, comment from duckdb_functions() where function_type = 'macro' and not internal",
    )
    assert {each["name"]: each["comment"] for each in found} == {macro.name: macro.comment for macro in macros()}
    for macro in macros():
        assert len(asked(home, macro.example)) == 1
        assert not re.search(r"\bif\(", macro.sql)  # no function of that name in DuckDB 1, which may open the file


def test_there_are_ten_questions_and_each_reads_only_what_the_warehouse_holds() -> None:
    assert len(EXAMPLES) == 10
    for path in EXAMPLES:
        sql = path.read_text(encoding="utf-8")
        assert re.match(r"-- [A-Z][^\n]*\?", sql), path.name
        assert without_rows(sql), path.name
        assert not {read for read in tables_read(sql, path.name) if read.split("_")[0] not in PREFIXES}
        assert path.parent.name not in FOLDERS


PREFIXES = ("stg", "dim", "fct", "dist", "plan", "mart")


def test_tool_wait_holders(home: Home) -> None:
    found = example(home, "tool_wait_holders")
    held = [6_000 * TOKEN_BYTES * wait_s / 2**30 for wait_s in (60, 20)]
    assert [(r["tenant"], r["waits_requests"], r["wait_total_s"]) for r in found] == [("a", 1, 60.0), ("b", 1, 20.0)]
    assert [r["kv_time_gib_s"] for r in found] == pytest.approx(held)
    assert [r["share_ratio"] for r in found] == pytest.approx([0.75, 0.25])


def test_limit_16k(home: Home) -> None:
    (chat,) = [r for r in example(home, "limit_16k") if (r["week"], r["deployment_id"]) == ("2026-W47", "chat")]
    assert chat["requests"] == 4 + 4 + 4 + 101 + 20 + 6
    assert (chat["prompt_too_long_requests"], chat["requested_too_long_requests"]) == (3, 1)  # 131,000 tokens too
    assert chat["prompt_too_long_ratio"] == pytest.approx(3 / 139)


def test_busiest_five_minutes(home: Home) -> None:
    found = {r["model"]: r for r in example(home, "busiest_five_minutes")}
    assert found["other"]["requests"] == 50
    assert found["other"]["window_started_at"] == (MONDAY + timedelta(seconds=200_100)).replace(tzinfo=None)
    assert found["other"]["prompt_tokens"] == 500
    assert found["chat-model"]["requests"] == 15  # of the long session: one every 20 s


def test_ttft_split(home: Home) -> None:
    (chat,) = [r for r in example(home, "ttft_split") if r["week"] == "2026-W47"]
    assert chat["timed_requests"] == 20
    assert chat["ttft_p95_s"] == pytest.approx(np.quantile([3.5] + [0.6] * 19, 0.95))
    assert (chat["slowest_queue_mean_s"], chat["slowest_prefill_mean_s"]) == (pytest.approx(3.0), pytest.approx(0.5))
    assert chat["prefill_p95_s"] == pytest.approx(0.5)


def test_outputs_at_limit(home: Home) -> None:
    found = {(r["deployment_id"], r["reason"]): r for r in example(home, "outputs_at_limit") if r["week"] == "2026-W47"}
    assert {key[1]: r["requests"] for key, r in found.items() if key[0] == "chat"} == {
        "caller_limit": 2,
        "model_limit": 1,
        "aborted": 1,
    }
    assert found["chat", "caller_limit"]["output_total_tokens"] == 101


def test_long_sessions(home: Home) -> None:
    (chat,) = [r for r in example(home, "long_sessions") if r["deployment_id"] == "chat"]
    assert (chat["sessions"], chat["long_sessions"], chat["turns_max_requests"]) == (3, 1, 101)
    assert chat["turns_share_ratio"] == pytest.approx(101 / 105)
    assert chat["output_share_ratio"] == pytest.approx(2020 / (2020 + 220))


def test_prefix_hits(home: Home) -> None:
    found = {r["tenant"]: r["prefix_hit_ratio"] for r in example(home, "prefix_hits")}
    assert found == {"a": pytest.approx(3000 / 11_900), "b": 0.0}


def test_weekday_and_weekend(home: Home) -> None:
    found = {
        r["part_of_week"]: r
        for r in example(home, "weekday_weekend")
        if (r["week"], r["deployment_id"]) == ("2026-W47", "chat")
    }
    assert (found["weekend"]["requests"], found["weekend"]["requests_per_day"]) == (6, 3.0)
    assert (found["weekend"]["busiest_hour_requests"], found["weekend"]["busiest_hour_of_day"]) == (6, 12)
    assert found["weekday"]["requests"] == 133


def test_week_on_week(home: Home) -> None:
    (chat,) = [r for r in example(home, "week_on_week") if r["deployment_id"] == "chat"]
    assert (chat["week"], chat["previous_week"]) == ("2026-W47", "2026-W46")
    assert (chat["requests"], chat["previous_requests"]) == (139, 30)
    assert chat["requests_change_factor"] == pytest.approx(139 / 30 - 1)
    prompts = [5_900, 6_000] * 2 + [16_384, 20_000, 16_000, 16_000, 131_000] + [200] * 101 + [100] * 29
    assert chat["prompt_mean_tokens"] == pytest.approx(sum(prompts) / 139)
    assert chat["prompt_change_factor"] == pytest.approx(sum(prompts) / 139 / 100 - 1)
    assert chat["change_text"].startswith("largest mover since 2026-W46: the mean prompt")


def test_data_gaps(home: Home) -> None:
    worst = example(home, "data_gaps")[0]
    found = {r["source_file"]: r for r in example(home, "data_gaps") if r["week"] == "2026-W47"}
    assert found["weekend.jsonl"]["unknown_output_ratio"] == 1.0
    assert worst["worst_ratio"] == 1.0
