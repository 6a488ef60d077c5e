"""The shared cases of otel and langfuse, and the spans of agent-otel through its mapping, ingested into a lake."""

from __future__ import annotations

import gzip
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from ingesting import counts, ingested, lake
from lakes import no_progress, write_fleet

from flows.build import build
from flows.catalog import load_catalog
from flows.home import open_home
from flows.query import asked

pytestmark = pytest.mark.shared
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def case(shared_dir, tmp_path):
    """Ingest a case with its format named or recognised; gives counts and rows in order of arrival."""

    def run(name, form):
        path = shared_dir / "cases" / "logs" / name
        by_name = ingested(tmp_path / "named", path, form=form)
        recognised = ingested(tmp_path / "auto", path, form="auto")
        assert counts(by_name) == counts(recognised)
        rows = lake(tmp_path / "named")
        assert rows.equals(lake(tmp_path / "auto"))
        return counts(by_name), rows

    return run


def test_16_usage_buckets_are_disjoint(case):
    found, rows = case("16-langfuse-usage-buckets.jsonl", "langfuse")
    assert found == (1, 1, 0, 0)
    names = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "e2e_s", "ttft_s", "session_id", "arrived_at")
    assert rows.select(names).row(0) == (2495, 2304, 291, 2.0, 0.4, "s1", TEN)


def test_32_an_agent_span_is_the_sum_of_its_calls(case):
    found, rows = case("32-otel-agent-aggregate.jsonl", "otel")
    assert found == (2, 2, 0, 0)
    assert rows.select(pl.col("prompt_tokens", "output_tokens").sum()).row(0) == (300, 30)
    assert rows["logged_tool_wait_s"].to_list() == [None, 1.5]
    assert rows["tool_calls"].to_list() == [1, 0]
    assert rows["session_id"].unique().to_list() == ["conv1"]


def test_33_old_and_new_names_are_one(case):
    found, rows = case("33-otel-old-and-new-names.jsonl", "otel")
    assert found == (3, 3, 0, 0)
    rows = rows.sort("prompt_tokens")
    assert rows["prompt_tokens"].to_list() == [12, 13, 14]
    assert rows["output_tokens"].to_list() == [5, 6, 7]
    assert rows.select("queue_s", "ttft_s", "e2e_s").row(0) == (0.01, 0.2, 1.0)


def test_34_ids_in_upper_and_lower_case_are_one(case):
    found, rows = case("34-otel-hex-case-and-enums.jsonl", "otel")
    assert found == (2, 1, 1, 0)
    assert rows["status"].to_list() == ["ok"]


def test_34_one_span_a_file_is_one_request_too(shared_dir, tmp_path):
    lines = (shared_dir / "cases/logs/34-otel-hex-case-and-enums.jsonl").read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.jsonl").write_bytes(line)
    result = ingested(tmp_path / "home", *sorted(tmp_path.glob("*.jsonl")), form="otel")
    assert counts(result) == (2, 1, 1, 0)


def test_41_latency_is_computed(shared_dir, tmp_path):
    result = ingested(tmp_path, shared_dir / "cases/logs/41-langfuse-latency-units.jsonl", form="langfuse")
    assert counts(result) == (3, 3, 0, 0)
    rows = lake(tmp_path).sort("source_position")
    assert rows["e2e_s"].to_list() == [2.0] * 3
    assert [("latency_unit_ms" in flags) for flags in rows["flags"].to_list()] == [False, True, False]


@pytest.mark.parametrize("name", ["53-otel-framed.zstd", "53-otel-native.jsonl.zst"])
def test_53_compressed_either_way(case, name):
    found, rows = case(name, "otel")
    assert found == (2, 2, 0, 0)
    assert rows["prompt_tokens"].sort().to_list() == [1, 2]


def test_53_both_and_a_gzip_copy_hold_the_same_requests(shared_dir, tmp_path):
    logs = shared_dir / "cases" / "logs"
    plain = (logs / "32-otel-agent-aggregate.jsonl").read_bytes()
    (tmp_path / "32.jsonl.gz").write_bytes(gzip.compress(plain))
    paths = [*sorted(logs.glob("53-otel-*")), logs / "32-otel-agent-aggregate.jsonl", tmp_path / "32.jsonl.gz"]
    result = ingested(tmp_path / "home", *paths, form="otel")
    assert counts(result)[1] == 4
    assert len(lake(tmp_path / "home")) == 4


@pytest.fixture(scope="module")
def agents(shared_dir, root_dir, tmp_path_factory):
    """A home with the spans of agent-otel, read through `mapped` with the shipped mapping file as --map."""
    root = tmp_path_factory.mktemp("agents")
    mapping = tomllib.loads((root_dir / "data/catalog/formats/agent-otel.toml").read_text())
    path = shared_dir / "traces/agent-otel/exgentic_swebench.jsonl"
    result = ingested(root, path, form="mapped", mapping=mapping, zero_usage="missing")
    assert counts(result) == (2294, 2294, 0, 0)
    return root


def test_agent_spans_through_a_mapping(agents):
    rows = lake(agents)
    assert (len(rows), rows["session_id"].n_unique()) == (2294, 46)
    failed = rows.filter(pl.col("status") == "error")
    assert len(failed) == 148
    assert failed.select(pl.col("prompt_tokens", "output_tokens").null_count()).row(0) == (148, 148)
    well = rows.filter(pl.col("status") != "error")
    assert well.select(pl.col("prompt_tokens", "output_tokens", "e2e_s").null_count()).row(0) == (0, 0, 0)
    assert failed["flags"].to_list() == [["usage_missing"]] * 148


def test_agent_spans_are_recognised(agents, shared_dir, tmp_path):
    path = shared_dir / "traces/agent-otel/exgentic_swebench.jsonl"
    assert counts(ingested(tmp_path, path, form="auto")) == (2294, 2294, 0, 0)
    rows = lake(tmp_path)
    assert rows["source"].unique().to_list() == ["agent-otel"]
    assert rows.drop("source").equals(lake(agents).drop("source"))


def test_calls_of_agents_that_overlap_are_told_in_the_warehouse(agents):
    home = open_home(Path(agents))
    fleet = write_fleet(home)
    build(home, fleet, load_catalog(home), no_progress)
    sql = "select count(*) filter (is_overlap) as overlaps, count(*) as gaps, min(wait_s) as least from fct_tool_waits"
    with asked(home, sql) as answer:
        assert list(answer.rows) == [(702, 2294 - 46, 0)]


@pytest.mark.parametrize("form", ["langfuse", "auto"])
def test_every_langfuse_export(shared_dir, tmp_path, form):
    folder = shared_dir / "traces" / "langfuse"
    result = ingested(tmp_path, *sorted(folder.glob("*.trace.json")), form=form)
    assert counts(result) == (17, 17, 0, 0)
    assert {file.status for file in result.files} == {"complete"}
