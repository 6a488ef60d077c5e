"""The 350 real agent sessions of kv-cache-tester, ingested as they are: the counts their README and the planner name.

Source: callanjfox/kv-cache-tester, Apache-2.0. The README's quantiles are over all 739 sessions, the figures here over
the odd half that lies there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from ingesting import counts, ingested, lake, no_progress

from flows.build import build
from flows.catalog import load_catalog
from flows.fleet import load_fleet
from flows.home import open_home
from flows.ingest import ingest
from flows.processes import worker_pool
from transforms.fleet import Privacy, Source
from transforms.sources import weka

pytestmark = pytest.mark.shared
KVLEDGER = str(Path(sys.executable).parent / "kvledger")
COLUMNS = (
    "request_id", "session_id", "agent_id", "turn", "arrived_at", "prompt_tokens", "output_tokens", "e2e_s", "ttft_s",
    "finish_reason", "tool_calls", "tool_results", "logged_tool_wait_s", "flags",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(agent_sessions_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which all sessions went, recognised by themselves."""
    home = tmp_path_factory.mktemp("home")
    with worker_pool(2) as pool:
        result = ingest(
            open_home(home),
            [Source("auto", str(agent_sessions_dir))],
            base=Path("/"),
            privacy=Privacy(),
            progress=no_progress,
            executor=pool,
        )
    assert counts(result) == (25_226, 25_226, 0, 0)
    assert {(file.source, file.status) for file in result.files} == {("weka", "complete")}
    assert sum(file.ignored for file in result.files) == 25  # markers of sub-agents
    return home


@pytest.fixture(scope="module")
def calls(home: Path) -> pl.DataFrame:
    return lake(home).select(COLUMNS)


@pytest.fixture(scope="module")
def turns(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls outside sub-agents, turn by turn."""
    return calls.filter(pl.col("agent_id").is_null()).sort("session_id", "turn")


def quantiles(values: pl.Series) -> list[float]:
    return [values.quantile(q, "linear") for q in (0.5, 0.9, 0.99, 1.0)]


def test_sessions_turns_and_tokens(calls: pl.DataFrame, turns: pl.DataFrame) -> None:
    assert turns["session_id"].n_unique() == 350
    assert len(turns) == 24_989
    assert turns["output_tokens"].sum() == 11_050_092
    assert calls.filter(pl.col("agent_id").is_not_null()).select("session_id", "agent_id").n_unique() == 25
    assert calls["request_id"].is_unique().all()
    numbered = turns.group_by("session_id").agg(pl.col("turn").max(), pl.len())
    assert (numbered["turn"] == numbered["len"]).all()


def test_prompts_and_tool_waits_are_those_of_the_readme(turns: pl.DataFrame) -> None:
    prompts = quantiles(turns["prompt_tokens"])
    assert prompts == pytest.approx([101_555, 202_270.4, 512_710.16, 880_502])
    waits = turns["logged_tool_wait_s"].drop_nulls()
    assert len(waits) == 20_861
    assert quantiles(waits) == [9.0, 68.0, 608.0, 27_010.0]


def test_logged_waits_agree_with_the_stamps(turns: pl.DataFrame) -> None:
    """Both are in whole seconds, so they agree within one, save for one call that answers an earlier one."""
    end = (pl.col("arrived_at") + pl.duration(microseconds=(pl.col("e2e_s") * 1e6).round())).shift().over("session_id")
    gap_s = (pl.col("arrived_at") - end).dt.total_microseconds() / 1e6
    off_s = turns.select((pl.col("logged_tool_wait_s") - gap_s.clip(lower_bound=0)).abs()).to_series().drop_nulls()
    assert (len(off_s), (off_s > 1).sum()) == (20_861, 1)
    assert turns.filter(pl.col("flags").list.contains("overlap")).is_empty()


def test_ends_that_were_not_logged_stay_unknown(turns: pl.DataFrame) -> None:
    unknown = turns.filter(pl.col("e2e_s").is_null())
    assert len(unknown) == 2429
    assert unknown["flags"].list.contains("end_unknown").all()
    after = turns.filter(pl.col("e2e_s").is_null().shift().over("session_id"))
    assert after["logged_tool_wait_s"].null_count() == len(after)
    assert turns["ttft_s"].count() == 2136


def test_blocks_belong_to_their_session_and_are_mostly_reused(home: Path) -> None:
    """Ids of a session count up without gaps: their span is the number of different ones."""
    ids = pl.col("prefix_block_ids")
    spans = [
        pl.scan_parquet(path)
        .select("session_id", references=ids.list.len().cast(pl.Int64), first=ids.list.min(), last=ids.list.max())
        .group_by("session_id")
        .agg(pl.col("references").sum(), pl.col("first").min(), pl.col("last").max())
        .collect(engine="streaming")
        for path in sorted((home / "lake" / "requests").rglob("*.parquet"))
    ]
    blocks = pl.concat(spans).group_by("session_id").agg(
        pl.col("references").sum(), pl.col("first").min(), pl.col("last").max()
    ).sort("first")  # fmt: skip
    assert blocks["references"].sum() == 46_196_175
    assert (blocks["first"][1:] > blocks["last"][:-1]).all()
    different = (blocks["last"] - blocks["first"] + 1).sum()
    assert 1 - different / blocks["references"].sum() == pytest.approx(0.9604, abs=1e-4)


TRUTH = {
    32_768: (343, 23_487, 30, 10_694_528, 14_838),
    65_536: (322, 19_925, 56, 9_214_197, 48_205),
    131_072: (238, 11_203, 65, 5_256_673, 39_228),
    200_000: (86, 2_658, 7, 1_308_514, 4_974),
}
"""planner.md §5: max_model_len -> rejected turns (= sessions cut), later turns lost, outputs truncated, tokens lost in
cut sessions and to truncation."""

FLEET = """
[[deployments]]
name = "agents"
serves = ["*"]
model = "Qwen/Qwen3-30B-A3B-Instruct-2507"
gpu = "H200-SXM-141GB"
replicas = 8
[deployments.engine]
enable_prefix_caching = false
max_num_seqs = 64
max_num_batched_tokens = 8192
"""


@pytest.mark.parametrize(("limit", "truth"), TRUTH.items())
def test_the_planners_fixed_truth_follows_from_these_rows(
    turns: pl.DataFrame, limit: int, truth: tuple[int, ...]
) -> None:
    """By another way than the product's: an expression on the rows of the lake."""
    refused = (pl.col("prompt_tokens") >= limit).cast(pl.Int32).cum_sum().over("session_id")
    kept, lost = turns.filter(refused == 0), turns.filter(refused > 0)
    sessions_cut = lost["session_id"].n_unique()
    over = kept.select(over=pl.col("prompt_tokens") + pl.col("output_tokens") - limit).filter(pl.col("over") > 0)
    found = (sessions_cut, len(lost) - sessions_cut, len(over), lost["output_tokens"].sum(), over["over"].sum())
    assert found == truth


def test_whatif_gives_the_fixed_truth_to_the_unit(home: Path) -> None:
    """The whole table through the command line, one sweep of four points; sub-agents' calls are counted apart."""
    (home / "fleet.toml").write_text(FLEET)
    place = open_home(home)
    build(place, load_fleet(None, place), load_catalog(place), no_progress)
    sweep = f"max_model_len={','.join(map(str, TRUTH))}"
    command = [KVLEDGER, "whatif", "--sweep", sweep, "--home", str(home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["tables"]["plan_scenarios"]
    names = ("sessions_cut", "lost_requests", "truncated_requests", "lost_cut_tokens", "lost_truncated_tokens")
    points = {int(row["swept_value"]): row for row in rows if row["swept_value"] is not None}
    assert {limit: tuple(row[name] for name in names) for limit, row in points.items()} == TRUTH
    assert all(row["rejected_requests"] == row["sessions_cut"] for row in points.values())
    assert all(row["outcome"] == "answered" and row["offered_requests"] == 25_226 for row in points.values())
    served = {limit: row["completed_requests"] for limit, row in points.items()}
    assert served == {
        limit: 25_226 - row["rejected_requests"] - row["lost_requests"] - row["sub_agent_rejected_requests"]
        - row["sub_agent_lost_requests"] for limit, row in points.items()
    }  # fmt: skip
    assert [limit for limit, row in points.items() if row["is_first_cut"]] == [200_000]


def test_sessions_spread_over_time_keep_their_own_pace(shared_dir: Path, tmp_path: Path) -> None:
    """Under a rate each file starts at its own point of the process, and nothing inside a session changes."""
    folder = shared_dir / "traces" / "kv-cache-tester"
    paths = [folder / "trace_0001.json", folder / "trace_0003.json"]
    together, spread = tmp_path / "a", tmp_path / "b"
    ingested(together, *paths, form="weka", origin="2026-03-02T00:00:00Z")
    ingested(spread, *paths, form="weka", origin="2026-03-02T00:00:00Z", session_rate_per_s=0.01)
    both = lake(together).join(lake(spread), on="request_id", suffix="_spread")
    shifted = both.with_columns(shift=(pl.col("arrived_at_spread") - pl.col("arrived_at")).dt.total_microseconds())
    found = shifted.group_by("session_id").agg(pl.col("shift").unique()).sort("session_id")["shift"].to_list()
    assert found == [[weka.start_offset_us(0.01, 0)], [weka.start_offset_us(0.01, 1)]]
    assert both["flags"].to_list() == [["assumed_start"]] * len(both)
