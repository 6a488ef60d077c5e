"""`kvledger export`: what goes out comes back in with the same values, for every format; what cannot is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
from lakes import random_rows, write_fleet, write_lake

from flows.reading.rows import read_rows
from transforms.fleet import Source

KVLEDGER = Path(sys.executable).parent / "kvledger"
LAST = """
select * from fct_attempts where week = '{week}' and prompt_tokens > 0 and output_tokens is not null
qualify row_number() over (partition by source, request_id order by attempt desc) = 1
order by arrived_at, source, request_id
"""


def kvledger(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KVLEDGER, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_lake(tmp_path_factory.mktemp("home"), random_rows(seed=5, sessions=80))
    write_fleet(place)
    ran = kvledger("build", "--home", place.root, "--no-prefect")
    assert ran.returncode == 0, ran.stderr
    return place.root


def sent(home: Path, week: str) -> pl.DataFrame:
    with duckdb.connect(str(home / "warehouse" / "kvledger.duckdb"), read_only=True) as connection:
        connection.execute("set TimeZone = 'UTC'")
        return connection.sql(LAST.format(week=week)).pl()


def exported(home: Path, form: str, output: Path, *more: str) -> tuple[dict, pl.DataFrame]:
    """The command's answer, and the rows that a new ingest would read from the file."""
    ran = kvledger("export", "--home", home, "--format", form, "--output", output, "--json", *more)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    source = Source(form, str(output), origin=said["origin"], block_tokens=said["block_tokens"])
    reading = read_rows(output, source)
    assert not reading.rejects
    return said, reading.rows


@pytest.mark.parametrize(("form", "unit"), [("mooncake", "ms"), ("vllm-timed-trace", "us"), ("vidur", "us")])
def test_arrivals_and_lengths_come_back(home: Path, tmp_path: Path, form: str, unit: str) -> None:
    said, back = exported(home, form, tmp_path / "out", "--week", "2026-W47")
    out = sent(home, "2026-W47")
    assert said["requests"] == back.height == out.height > 50
    for column in ("prompt_tokens", "output_tokens"):
        assert back[column].to_list() == out[column].to_list()
    arrived = out["arrived_at"].dt.replace_time_zone("UTC").dt.truncate(f"1{unit}")
    assert back["arrived_at"].to_list() == arrived.to_list()


def test_sessions_of_aiperf_come_back_turn_by_turn(home: Path, tmp_path: Path) -> None:
    said, back = exported(home, "aiperf-trace", tmp_path / "out", "--week", "2026-W47")
    out = sent(home, "2026-W47")
    assert said["requests"] == back.height == out.height
    assert back["prompt_tokens"].to_list() == out["prompt_tokens"].to_list()
    assert back["output_tokens"].to_list() == out["output_tokens"].to_list()
    whole = [None if s is None else s + (f"/{a}" if a else "") for s, a in out.select("session_id", "agent_id").rows()]
    assert [None if name is None else name.split("#")[0] for name in back["session_id"].to_list()] == whole
    stamped = back.with_columns(out["arrived_at"].dt.replace_time_zone("UTC").alias("was")).filter(
        ~pl.col("flags").list.contains("assumed_arrival")
    )
    assert stamped["arrived_at"].to_list() == stamped["was"].to_list()
    assert 0 < stamped.height < back.height


def test_block_ids_of_a_log_stay_and_divide(tmp_path: Path) -> None:
    place = write_lake(
        tmp_path / "home",
        [
            {
                "request_id": f"r{n}", "attempt": 1, "arrived_at": 1_795_000_000_000_000 + n * 1_500_000,
                "model": "m", "prompt_tokens": 900 + n, "output_tokens": 5, "status": "ok", "source": "mooncake",
                "operation": "chat", "served_by": "backend", "source_file": "a", "source_position": n, "flags": [],
                "prefix_block_tokens": 512, "prefix_block_ids": [7, 2**63 + n],
            }
            for n in range(50)
        ],
    )  # fmt: skip
    write_fleet(place)
    assert kvledger("build", "--home", place.root, "--no-prefect").returncode == 0
    said, back = exported(place.root, "mooncake", tmp_path / "mooncake.jsonl")
    assert said["sessions"] == 0
    assert back["prefix_block_ids"].to_list() == [[7, 2**63 + n] for n in range(50)]
    said, back = exported(place.root, "vllm-timed-trace", tmp_path / "timed.jsonl")
    assert said["block_tokens"] == 16
    first, second = back["prefix_block_ids"].to_list()[:2]
    assert len(first) == -(-900 // 16)
    assert first[:32] == second[:32]
    assert first[32] != second[32]


def test_what_cannot_be_exported_is_one_line(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for words, says in (
        (("--format", "moncake", "--output", output), "did you mean 'mooncake'?"),
        (("--format", "vidur", "--output", tmp_path / "none" / "out"), "cannot be written"),
        (("--format", "vidur", "--output", output, "--week", "2020-W01"), "week 2020-W01 has no requests"),
        (("--format", "vidur", "--output", output, "--week", "last"), "2026-W47"),
        (("--format", "vidur", "--output", output, "--deployment", "chatt"), "no deployment 'chatt'"),
    ):
        ran = kvledger("export", "--home", home, *words)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
        assert says in ran.stderr
    assert list(tmp_path.iterdir()) == []
