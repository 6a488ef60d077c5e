"""What-ifs on a small home: rows of every scenario, what survives a plan and a build, and what each mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from lakes import FLEET, HERE, no_progress, random_rows, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.home import Home
from flows.log import start_logging
from flows.plan import former_scenarios, plan
from flows.processes import worker_pool
from flows.warehouse import published
from flows.whatif import Asked, Told, whatif
from flows.whatif_report import whatif_report
from reports.markdown import tables_markdown
from reports.whatif import headlines, warning_lines
from reports.whatif_tables import FLEET as FLEET_CELLS
from reports.whatif_tables import SERVICE, cell_text
from transforms.errors import KvledgerError

WEEK = "2026-W47"
SMALL = FLEET.replace("[deployments.engine]", "[deployments.engine]\nmax_num_seqs = 8", 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Ten days of sessions over two weeks, built."""
    made = write_lake(tmp_path_factory.mktemp("whatif"), random_rows(5, 150))
    build(made, write_fleet(made, SMALL), load_catalog(made), no_progress)
    return made


def asked(home: Home, **what: object) -> Told:
    with worker_pool() as pool:
        return whatif(home, write_fleet(home, SMALL), Asked(week=WEEK, **what), no_progress, pool)  # type: ignore[arg-type]


def rows_of(home: Home, table: str) -> pl.DataFrame:
    with published(home) as connection:
        return connection.sql(f"select * from {table} where week = '{WEEK}'").pl()  # noqa: S608


@pytest.fixture(scope="module")
def told(home: Home) -> Told:
    large = home.root / "large.toml"
    large.write_text('name = "large"\n[set]\nmodel = "meta-llama/Llama-3.1-70B-Instruct"\n')
    scaled = home.root / "scaled.toml"
    scaled.write_text('name = "scaled"\n[set]\nautoscale_max_replicas = 3\n')
    compacted = home.root / "compacted.toml"
    compacted.write_text('name = "compacted"\n[set]\nmax_model_len = 1500\nrejected_turn = "compact"\n')
    return asked(
        home,
        scenarios=[str(large), str(scaled), str(compacted)],
        sweeps=["max_model_len=1,500,1500,131072"],
        deployment="chat",
    )


def test_every_scenario_has_a_row_and_the_one_that_cannot_start_says_why(home: Home, told: Told) -> None:
    rows = rows_of(home, "plan_scenarios")
    assert rows["deployment_id"].unique().to_list() == ["chat"]
    assert set(rows["scenario_id"]) == set(told.scenarios)
    outcomes = dict(rows.select("scenario_id", "outcome").iter_rows())
    assert outcomes.pop("large") == "does not start"
    assert set(outcomes.values()) == {"answered"}
    rest = rows.filter(pl.col("scenario_id") == "max_model_len=1").row(0, named=True)
    assert (rest["reason_text"], rest["completed_requests"]) == ("no request is left to replay", None)
    assert "weights" in rows.filter(pl.col("scenario_id") == "large")["reason_text"].item()


def test_marts_say_what_changes_against_today(home: Home, told: Told) -> None:
    mart = rows_of(home, "mart_scenarios").sort("position")
    today = mart.row(0, named=True)
    assert (today["scenario_id"], today["rejected_change_requests"]) == ("today", 0)
    cut = mart.filter(pl.col("scenario_id") == "max_model_len=500")
    assert cut["rejected_change_requests"].item() == cut["rejected_requests"].item() > 0
    assert told.week == WEEK


def test_what_compaction_leaves_out_is_said(home: Home, told: Told) -> None:
    mart = rows_of(home, "mart_scenarios").filter(pl.col("scenario_id").is_in(told.scenarios))
    (count,) = mart.filter(pl.col("scenario_id") == "compacted")["compacted_requests"]
    assert f"chat, compacted: {count} turns go on with a compacted context; the calls that summarise it" in "\n".join(
        warning_lines(mart, {})
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("KV memory, GPU price", "assumed: chat: KV memory, GPU price"),
        ("step times, KV memory", "assumed: chat: step times, KV memory (step times: {})"),
        (None, "assumed: chat: some inputs; kvledger plan names them"),
    ],
)
def test_what_is_assumed_is_named_as_in_the_review(home: Home, told: Told, words: str | None, line: str) -> None:
    mart = rows_of(home, "mart_scenarios").filter(pl.col("scenario_id") == "today")
    named = [] if words is None else [{"deployment_id": "chat", "assumed_text": words}]
    assumed = pl.DataFrame(named, {"deployment_id": pl.String, "assumed_text": pl.String})
    lines = warning_lines(mart.with_columns(provenance=pl.lit("assumed")), {"mart_assumed": assumed})
    assert lines[0] == line.format(mart["step_time_source"][0])
    assert told.deployments == ("chat",)


def test_no_count_where_no_fleet_is_enough_and_no_difference_of_nothing(home: Home, told: Told) -> None:
    row = rows_of(home, "mart_scenarios").filter(pl.col("scenario_id") == "compacted").row(0, named=True)
    lost = row | {"is_slo_reachable": False, "needed_gpus": 2, "needed_change_gpus": 0}
    assert [cell_text(lost, cell) for cell in FLEET_CELLS] == ["out of reach", "–"]
    assert cell_text(lost | {"is_slo_reachable": True}, FLEET_CELLS[0]) == "= 2"
    near = row | {"tpot_p95_s": 0.01, "tpot_p95_change_s": -1e-7}
    assert cell_text(near, SERVICE[2]).replace("\N{NO-BREAK SPACE}", " ") == "= 10.0 ms"
    assert told.week == WEEK


def test_an_objective_that_no_fleet_keeps_comes_before_the_gpus(home: Home, told: Told) -> None:
    named = rows_of(home, "mart_scenarios").filter(pl.col("scenario_id").is_in(["today", "compacted"]))
    lost = named.with_columns(is_slo_reachable=pl.col("scenario_id") == "today")
    assert headlines({}, lost)[0].text == "compacted cannot keep its objectives with any number of replicas."
    never = named.with_columns(is_slo_reachable=pl.lit(value=False))
    assert "cannot keep" not in headlines({}, never)[0].text, "nor does today's"


def test_an_autoscaler_stands_beside_todays_fleet(home: Home, told: Told, tmp_path: Path) -> None:
    mart = {row["scenario_id"]: row for row in rows_of(home, "mart_scenarios").iter_rows(named=True)}
    today, scaled = mart["today"], mart["scaled"]
    assert today["fixed_fleet_gpu_s"] is None
    assert (scaled["fixed_fleet_gpu_s"], scaled["fixed_fleet_replicas"]) == (today["paid_gpu_s"], 2)
    assert scaled["fixed_fleet_missed_requests"] == today["missed_requests"]
    assert scaled["autoscaled_change_gpu_s"] == scaled["paid_gpu_s"] - today["paid_gpu_s"] < 0
    assert scaled["autoscaled_change_requests"] == scaled["missed_requests"] - today["missed_requests"]
    text = tables_markdown(whatif_report(home, write_fleet(home, SMALL), told, "--set x", tmp_path / "a.html").page)
    assert "Autoscaler beside the fixed fleet" in text
    named = rows_of(home, "mart_scenarios").filter(pl.col("scenario_id").is_in(["today", "scaled"]))
    (said,) = headlines({}, named)
    assert re.search(r"^scaled pays [\d.]+\sGPU·h fewer than 2 fixed replicas", said.text)


def test_the_report_is_one_offline_file(
    home: Home, told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "what.html"
    reported = whatif_report(home, write_fleet(home, SMALL), told, "--set x", output)
    start_logging(verbose=False, quiet=False)
    capsys.readouterr()
    whatif_report(home, write_fleet(home, SMALL), told, "--set x", output)
    assert capsys.readouterr().err == ""
    whatif_report(home, write_fleet(home, SMALL), told, "--set y", None)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("whatif.html held another what-if and is replaced; --output FILE.html keeps this one apart")
    text = output.read_text()
    assert reported.html == output
    assert "What if 2026-W47" in text
    assert not re.search(r"(?:src|href)=\"https?:", text)
    assert (home.reports / f"week={WEEK}" / "whatif.md").read_text().startswith("# What if 2026-W47")
    assert reported.summary["tables"]["mart_scenarios"]
    assert reported.decision[0].startswith(("assumed: chat", WEEK))


def test_scenarios_outlive_a_plan_and_a_build_and_are_replaced_by_name(home: Home, told: Told) -> None:
    before = former_scenarios(home, WEEK)
    assert set(before["scenario_id"]) == set(told.scenarios)
    fleet, catalog = write_fleet(home, SMALL), load_catalog(home)
    plan(home, fleet, catalog, WEEK, no_progress, HERE)
    assert former_scenarios(home, WEEK).equals(before)
    build(home, fleet, catalog, no_progress)
    assert rows_of(home, "mart_scenarios").height == before.height


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"sets": ["max_num_seq=1"]}, "did you mean 'max_num_seqs'"),
        ({"sets": ["gpu=H100"]}, "GPU 'H100' is not in the catalog"),
        ({"sets": ["replicas=1"], "deployment": "chats"}, "did you mean 'chat'"),
        ({"sets": ["replicas=1"], "week": "2031-W01"}, "week 2031-W01 has no requests"),
        ({"sets": ["autoscale_out_ratio=0.1"]}, "autoscale_in_ratio must lie below"),
        ({}, "nothing to change"),
    ],
)
def test_a_mistake_is_told_in_one_line_before_anything_is_replayed(
    home: Home, what: dict[str, object], words: str
) -> None:
    with pytest.raises(KvledgerError) as error:
        whatif(home, write_fleet(home, SMALL), Asked(**{"week": WEEK, **what}), no_progress, HERE)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert "\n" not in str(error.value)
