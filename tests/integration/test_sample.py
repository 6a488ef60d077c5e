"""`kvledger sample` on disk: files, same bytes for the same seed, what is replaced and what is left, bad folders."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from flows.sample import SampleSettings
from transforms.fleet import deployment_of, parse_fleet
from transforms.sample.calls import join
from transforms.sample.services import SERVICES
from transforms.sample.traffic import plan_day

KVLEDGER = Path(sys.executable).parent / "kvledger"
ONE_DAY = "2026-11-11"


def run(*options: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KVLEDGER, "sample", *map(str, options)], capture_output=True, text=True, check=False, cwd=cwd
    )


def sample(folder: Path, *options: str) -> dict[str, Any]:
    ran = run("--home", folder / "home", "--output", folder / "logs", "--json", *options)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl.gz"))}


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of a hundredth of the traffic."""
    folder = tmp_path_factory.mktemp("small")
    sample(folder, "--scale", "0.01", "--days", "3")
    return folder


def test_one_file_a_service_and_day(small: Path) -> None:
    days = ("2026-11-09", "2026-11-10", "2026-11-11")
    assert list(contents(small / "logs")) == sorted(f"{s.name}-{day}.jsonl.gz" for s in SERVICES for day in days)
    for path in (small / "logs").glob("*.jsonl.gz"):
        assert path.read_bytes()[4:8] == bytes(4), "the gzip header holds a date"
        assert all(path.name.startswith(f"{service_of(row)}-{row['startTime'][:10]}") for row in rows(path))


def service_of(row: dict[str, Any]) -> str:
    """Name of the service whose key asked."""
    names = {s.model_group: s.name for s in SERVICES}
    if row["metadata"]["attempted_fallbacks"]:
        return "summariser"
    return names.get(row["model_group"], "chat")


def test_the_same_seed_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    sample(tmp_path, "--scale", "0.01", "--days", "3")
    assert contents(tmp_path / "logs") == contents(small / "logs")


def test_another_seed_gives_other_requests(small: Path, tmp_path: Path) -> None:
    sample(tmp_path, "--scale", "0.01", "--days", "1", "--seed", "3")
    for path in (tmp_path / "logs").glob("*.jsonl.gz"):
        ids = [
            {row["request_id"] for row in rows(folder / path.name)} for folder in (tmp_path / "logs", small / "logs")
        ]
        assert not ids[0] & ids[1]


def test_fewer_days_are_the_first_days(small: Path, tmp_path: Path) -> None:
    sample(tmp_path, "--scale", "0.01", "--days", "2")
    fewer, more = contents(tmp_path / "logs"), contents(small / "logs")
    assert len(fewer) == 6
    for name, content in fewer.items():
        assert content == more[name]


def test_thinning_keeps_whole_sessions(small: Path, tmp_path: Path) -> None:
    sample(tmp_path, "--scale", "0.01", "--days", "3", "--thin", "3")
    for path in (tmp_path / "logs").glob("*.jsonl.gz"):
        kept = rows(path)
        sessions = {row["session_id"] for row in kept}
        assert kept == [row for row in rows(small / "logs" / path.name) if row["session_id"] in sessions]
    every, third = (sum(len(rows(p)) for p in (f / "logs").glob("*.jsonl.gz")) for f in (small, tmp_path))
    assert 0.15 * every < third < 0.6 * every


def test_a_finished_sample_is_left_and_another_one_replaced(tmp_path: Path) -> None:
    options = ("--scale", "0.005", "--days", "2")
    assert sample(tmp_path, *options)["is_unchanged"] is False
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "logs").iterdir()}
    again = sample(tmp_path, *options)
    assert again["is_unchanged"] is True
    assert again["files"] == 6
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "logs").iterdir()} == stamps
    (tmp_path / "logs" / "chat-2026-11-09.jsonl.gz").write_bytes(b"cut")
    assert sample(tmp_path, *options)["is_unchanged"] is False
    (tmp_path / "logs" / "mine.jsonl").write_text("{}")
    assert sample(tmp_path, "--scale", "0.005", "--days", "1")["files"] == 3
    names = {path.name for path in (tmp_path / "logs").iterdir()}
    assert names == {*(f"{s.name}-2026-11-09.jsonl.gz" for s in SERVICES), "mine.jsonl", ".complete.json"}


def test_a_new_home_gets_the_fleet_and_an_old_one_keeps_its_own(root_dir: Path, tmp_path: Path) -> None:
    options = ("--scale", "0.005", "--days", "1")
    ran = run(*options, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "gateway logs" in ran.stdout
    fleet = tmp_path / "data" / "fleet.toml"
    assert fleet.read_bytes() == (root_dir / "data" / "fleet.toml").read_bytes()
    fleet.write_text("# mine\n")
    assert run(*options, "--seed", "5", cwd=tmp_path).returncode == 0
    assert fleet.read_text() == "# mine\n"


def test_the_fleet_serves_what_the_sample_asks_for(root_dir: Path, small: Path) -> None:
    fleet = parse_fleet(tomllib.loads((root_dir / "data" / "fleet.toml").read_text()), "fleet.toml")
    assert [d.name for d in fleet.deployments] == [s.name for s in SERVICES]
    for deployment, service in zip(fleet.deployments, SERVICES, strict=True):
        assert deployment_of(service.model_group, fleet.deployments) == deployment.name
        assert service.backend_model == f"hosted_vllm/{deployment.model}"
        engine = service.engine
        assert deployment.replicas == engine.replicas
        assert (deployment.engine.max_model_len, deployment.engine.max_num_seqs) == (
            engine.max_model_len,
            engine.max_num_seqs,
        )
        assert deployment.engine.max_num_batched_tokens == engine.max_num_batched_tokens
    groups = {row["model_group"] for path in (small / "logs").glob("*.gz") for row in rows(path)}
    assert {group for group in groups if deployment_of(group, fleet.deployments) is None} == {"bge-m3"}
    assert list((small / "logs").parent.glob(fleet.sources[0].path.replace("sample", "logs")))


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("--home", tmp_path / "home", "--output", tmp_path / "file" / "logs", "--scale", "0.005", "--days", "1")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "file/logs cannot be written" in ran.stderr
    assert "--output" in ran.stderr


@pytest.mark.parametrize("option", [("--days", "15"), ("--scale", "2"), ("--thin", "0"), ("--seed", "-1")])
def test_settings_out_of_range_are_one_line(tmp_path: Path, option: tuple[str, str]) -> None:
    ran = run("--home", tmp_path / "home", *option)
    assert ran.returncode == 2
    assert option[0] in ran.stderr
    assert not (tmp_path / "home" / "sample").exists()


def test_the_committed_day_is_a_part_of_the_sample(root_dir: Path) -> None:
    committed = sorted((root_dir / "data" / "sample" / "one-day").glob("*.jsonl.gz"))
    assert [path.name for path in committed] == sorted(f"{s.name}-{ONE_DAY}.jsonl.gz" for s in SERVICES)
    assert sum(path.stat().st_size for path in committed) < 1_000_000
    for service, path in zip(sorted(SERVICES, key=lambda s: s.name), committed, strict=True):
        planned = join([plan_day(service, SampleSettings().seed, day, 1.0) for day in range(3)]).calls
        tokens = zip(planned.prompt_tokens.tolist(), planned.output_tokens.tolist(), strict=True)
        by_uid = dict(zip(planned.uid.tolist(), tokens, strict=True))
        kept = [row for row in rows(path) if row["status"] == "success"]
        assert len(kept) > 500
        same = [
            by_uid.get(int(row["litellm_call_id"].removeprefix("call-"), 16))
            == (row["prompt_tokens"], row["completion_tokens"])
            for row in kept
        ]
        assert sum(same) >= 0.99 * len(kept)
