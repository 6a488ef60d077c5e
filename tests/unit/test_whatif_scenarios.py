"""Scenarios from the command line and from files: settings, sweeps, names, and what each mistake is told."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flows.scenario_files import read_scenario, shipped_scenarios
from transforms.errors import ConfigError
from transforms.fleet import Deployment, Engine, Planning, Slo
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.whatif.curve import first_cut, knee, mark_curves
from transforms.planner.whatif.scenarios import parse_scenario, parse_sets, parse_sweep, scenarios_of
from transforms.planner.whatif.settings import changed, known_settings, setting_kinds

DEPLOYMENT = Deployment("chat", ("m",), "model", "H100-SXM-80GB", 4, "own.toml", Engine(max_num_seqs=64))


def test_every_setting_of_engine_objective_planning_and_replay_is_a_key() -> None:
    known = known_settings()
    for kind in (Engine, Slo):
        assert {f.name for f in fields(kind)} <= set(known)
    own = {f.name for f in fields(ReplayOptions)} - {"kv_blocks", "failure_ends_session"}
    assert own <= set(known)
    assert {"gpu", "replicas", "model", "headroom_ratio", "spare_replicas", "rejected_turn"} <= set(known)
    assert known["replicas"] is Deployment
    assert known["ttft_p95_s"] is Slo
    assert not {"serves", "calibration", "engine", "slo"} & set(known)


def test_settings_are_laid_over_the_deployment() -> None:
    asked = changed(
        DEPLOYMENT,
        Planning(),
        parse_sets(["max_num_seqs=128", "replicas=6", "ttft_p95_s=1", "headroom_ratio=0.1", "router=random"]),
    )
    assert (asked.deployment.engine.max_num_seqs, asked.deployment.replicas) == (128, 6)
    assert (asked.deployment.slo.ttft_p95_s, asked.planning.headroom_ratio) == (1.0, 0.1)
    assert (asked.options.replicas, asked.options.router, asked.options.ttft_p95_s) == (6, "random", 1.0)
    assert {"engine.max_num_seqs", "slo.ttft_p95_s"} <= asked.deployment.given
    assert asked.deployment.calibration == "own.toml"
    assert changed(DEPLOYMENT, Planning(), {"gpu": "H200-SXM-141GB"}).deployment.calibration is None


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("max_model_len=4096:131072:x2", [4096, 8192, 16384, 32768, 65536, 131072]),
        ("max_num_seqs=16:64:+16", [16, 32, 48, 64]),
        ("max_num_seqs=16:60:+16", [16, 32, 48]),
        ("max_num_seqs=8,2,8,4", [2, 4, 8]),
        ("rate_scale=0.5:1.5:+0.25", [0.5, 0.75, 1.0, 1.25, 1.5]),
    ],
)
def test_a_sweep_has_a_scenario_for_each_point(text: str, points: list[float]) -> None:
    found = parse_sweep(text, {"replicas": 2})
    assert [one.swept_value for one in found] == points
    assert all(one.settings["replicas"] == 2 for one in found)
    assert found[0].scenario_id.startswith("replicas=2, ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_model_lens=5", "unknown setting 'max_model_lens'; did you mean 'max_model_len'"),
        ("max_model_len=0", "must be at least 1"),
        ("max_num_seqs=many", "must be a whole number"),
        ("max_num_seqs=1.5", "must be a whole number"),
        ("gpu_memory_utilization=1.5", "at most 1"),
        ("gpu_memory_utilization=nan", "must be a finite number"),
        ("enable_prefix_caching=yes", "must be true or false"),
        ("router=rount_robin", "did you mean 'round_robin'?"),
        ("requested_output=clip", "must be one of reject, clamp, ignore"),
        ("rejected_turn=compress", "must be one of abort, compact"),
        ("replicas=0", "must be at least 1"),
        ("window=1y", "must be from"),
        ("timeout_s=-1", "must be above zero"),
        ("max_num_seqs", "must be KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match="--set") as error:
        parse_sets([text])
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu=A,B", "gpu is no number"),
        ("enable_prefix_caching=true,false", "is no number"),
        ("max_model_len=8:4:x2", "must rise"),
        ("max_model_len=4:8:x1", "must rise"),
        ("max_model_len=4:8", "must be KEY=FIRST:LAST"),
        ("max_model_len=1,,2", "must be KEY=FIRST:LAST"),
        ("max_num_seqs=1:100000:+1", "at most 500"),
        ("max_num_seqs=a:b:+1", "a point must be a whole number, not 'a'"),
        ("max_model_len=2048..16384", "a sweep is KEY=FIRST:LAST:xFACTOR, KEY=FIRST:LAST:+STEP or KEY=V1,V2"),
        ("max_model_len=0:4:+2", "must be at least 1"),
        ("max_model_length=4:8:x2", "did you mean 'max_model_len'?"),
    ],
)
def test_a_wrong_sweep_is_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match="--sweep") as error:
        parse_sweep(text, {})
    assert told in str(error.value)


def test_scenarios_have_names_of_their_own_and_today_comes_first() -> None:
    sweep = parse_sweep("max_num_seqs=1,2", {"replicas": 3})
    found = scenarios_of({"replicas": 3}, [], sweep)
    assert [one.scenario_id for one in found] == [
        "today", "replicas=3", "replicas=3, max_num_seqs=1", "replicas=3, max_num_seqs=2",
    ]  # fmt: skip
    one = parse_scenario({"name": "a", "set": {"replicas": 1}}, "one.toml")
    other = parse_scenario({"name": "a", "set": {"replicas": 2}}, "two.toml")
    with pytest.raises(ConfigError, match="two scenarios are called 'a'"):
        scenarios_of({}, [one, other], [])
    with pytest.raises(ConfigError, match="nothing to change"):
        scenarios_of({}, [], [])
    with pytest.raises(ConfigError, match="set twice"):
        parse_sets(["replicas=1", "replicas=2"])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"set": {"replicas": 1}}, "lacks name"),
        ({"name": "today", "set": {"replicas": 1}}, "any but 'today'"),
        ({"name": "a"}, r"lacks a table \[set\]"),
        ({"name": "a", "sets": {}}, "did you mean 'set'"),
        ({"name": "a", "set": {"replica": 2}}, "did you mean 'replicas'"),
        ({"name": "a", "set": {"replicas": "two"}}, "must be a whole number"),
    ],
)
def test_a_wrong_scenario_file_is_told_in_one_line(document: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_scenario(document, "file.toml")


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_can_be_read_and_says_why(name: str) -> None:
    scenario = read_scenario(name)
    assert scenario.scenario_id == name
    assert scenario.why
    changed(DEPLOYMENT, Planning(), scenario.settings)


def test_scenarios_ship() -> None:
    assert len(shipped_scenarios()) >= 5
    with pytest.raises(ConfigError, match="did you mean"):
        read_scenario(shipped_scenarios()[0][:-1])


def test_the_knee_is_where_a_curve_leaves_its_chord() -> None:
    assert knee([1, 2, 3, 4, 5], [0, 10, 11, 12, 13]) == 1
    assert knee([1, 2, 3, 4, 5], [13, 12, 11, 10, 0]) == 3
    assert knee([1, 2, 3], [1, 2, 3]) is None
    assert knee([1, 2, 3, 4], [5, 5, 5, 5]) is None
    assert knee([1, 2], [0, 1]) is None
    assert knee([2**n for n in range(8)], [float(n) for n in range(8)]) is None  # a log axis: straight
    assert knee([1, 2, 3, 4, 5], [0, 10, 9, 10, 11]) == 1
    assert knee([1, 2, 3, 4, 5, 6], [0, 10, 9, 12, 3, 12]) is None, "up and down: chance"


def test_the_first_cut_is_seen_from_the_side_where_fewest_are_cut() -> None:
    assert first_cut([9, 5, 1, 0, 0]) == 2
    assert first_cut([0, 0, 3, 4]) == 2
    assert first_cut([9, 5, 2]) == 2
    assert first_cut([2, 2, 2]) is None


def test_curves_are_marked_for_each_deployment_and_setting() -> None:
    def row(deployment: str, value: float, ratio: float, cut: int) -> dict[str, object]:
        return {
            "deployment_id": deployment, "swept_setting": "max_model_len", "swept_value": value,
            "served_output_ratio": ratio, "sessions_cut": cut,
        }  # fmt: skip

    rows = [row("a", 4.0, 1.0, 0), row("a", 1.0, 0.1, 5), row("a", 2.0, 0.9, 1), row("b", 1.0, 1.0, 0)]
    mark_curves([*rows, {"deployment_id": "a", "swept_setting": None}])
    assert [one["is_knee"] for one in rows] == [False, False, True, False]
    assert [one["is_first_cut"] for one in rows] == [False, False, True, False]
    assert [one["curve_measure"] for one in rows] == ["served_output_ratio"] * 3 + [None]


def test_an_unknown_key_is_told_the_nearest_and_where_all_are_listed() -> None:
    with pytest.raises(ConfigError) as error:
        parse_sets(["max_num=5"])
    assert "did you mean 'max_num_seqs', 'max_num_queued_reqs' or" in str(error.value)
    assert f"(kvledger whatif --set help lists all {len(setting_kinds())})" in str(error.value)
    assert len(str(error.value)) < 200


def test_every_key_is_listed_with_what_it_takes() -> None:
    kinds = setting_kinds()
    assert set(kinds) == set(known_settings())
    assert kinds["max_num_seqs"] == "a whole number"
    assert kinds["rejected_turn"] == "abort | compact"
