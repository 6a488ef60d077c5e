"""Small lakes for the tests of the warehouse: rows made here, written by the lake's own writer."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from flows.fleet import LoadedFleet, load_fleet
from flows.home import Home, open_home
from flows.lake import REJECTS_SCHEMA, manifest_path, rejects_path, requests_path
from flows.lake_files import RequestsWriter, write_table
from flows.manifest import SCHEMA as MANIFEST_SCHEMA
from transforms.canonical import SCHEMA

HERE = ThreadPoolExecutor(1)
"""What plans run on; so small ones take no workers."""

FLEET = """
[[deployments]]
name = "chat"
serves = ["chat-model"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 2
[deployments.engine]
version = "0.19.0"
max_model_len = 131072

[[deployments]]
name = "rest"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
[deployments.engine]
version = "0.19.0"
max_model_len = 131072

[planning]
timezone = "Asia/Kolkata"
"""
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


@contextmanager
def no_progress(label, total):
    yield lambda done=1: None


def write_fleet(home: Home, text: str = FLEET) -> LoadedFleet:
    home.fleet.write_text(text)
    return load_fleet(None, home)


def row(number: int, **values: Any) -> dict[str, Any]:
    """One canonical row, a plain chat request unless `values` says otherwise."""
    return {
        "request_id": f"r{number:07d}",
        "attempt": 1,
        "arrived_at": MONDAY + timedelta(seconds=number),
        "model": "chat-model",
        "tenant": "t",
        "operation": "chat",
        "served_by": "backend",
        "status": "ok",
        "prompt_tokens": 100,
        "output_tokens": 10,
        "source": "kvledger",
        "source_file": "a.jsonl",
        "source_position": number,
        "flags": [],
        **values,
    }


def random_rows(seed: int, sessions: int, days: float = 10.0) -> list[dict[str, Any]]:
    """Rows of sessions with tools, sub-agents, retries, failures, unknown times and gateway cache hits."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for session in range(sessions):
        at = MONDAY + timedelta(microseconds=draw.randrange(int(days * 86_400e6)))
        model = draw.choice(["chat-model", "chat-model", "other", None])
        prompt = draw.randrange(1, 4000)
        for _ in range(draw.randrange(1, 7)):
            output, e2e = draw.randrange(0, 400), draw.choice([None, round(draw.expovariate(0.2), 6)])
            common = {
                "session_id": f"s{session}",
                "agent_id": draw.choice([None, None, "sub"]),
                "model": model,
                "tenant": f"t{session % 5}",
                "prompt_tokens": draw.choice([prompt, prompt, None]),
                "output_tokens": output,
                "ttft_s": None if e2e is None else round(e2e / 3, 6),
                "e2e_s": e2e,
                "tool_calls": draw.choice([None, 0, 1, 2]),
                "tool_results": draw.choice([None, 0, 1]),
            }
            number = len(rows)
            if draw.random() < 0.1:
                rows.append(row(number, arrived_at=at, **{**common, "status": "timeout", "output_tokens": None}))
                rows.append(row(number, attempt=2, arrived_at=at + timedelta(seconds=e2e or 1), **common))
            else:
                status = draw.choice(["ok"] * 6 + ["length", "error", "rejected"])
                served_by = draw.choice(["backend"] * 9 + ["gateway_cache"])
                rows.append(row(number, arrived_at=at, **{**common, "status": status, "served_by": served_by}))
            prompt += output
            at += timedelta(seconds=(e2e or 1) + draw.expovariate(0.1) - 1)
    return rows


def write_lake(root: Path, rows: list[dict[str, Any]], rejects: list[dict[str, Any]] | None = None) -> Home:
    """The home at `root` with a lake of `rows` in the order given inside each day, and one manifest row a file."""
    home = open_home(root)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    for (day,), part in frame.group_by(pl.col("arrived_at").dt.date(), maintain_order=True):
        writer = RequestsWriter(requests_path(home, str(day)))
        writer.write(part)
        writer.close()
    refused = pl.DataFrame(rejects or [], schema={"day": pl.String(), **REJECTS_SCHEMA}, orient="row")
    for (day,), part in refused.group_by("day", maintain_order=True):
        write_table(part.drop("day"), rejects_path(home, str(day)))
    write_table(_manifest(frame, refused), manifest_path(home))
    return home


def _manifest(frame: pl.DataFrame, refused: pl.DataFrame) -> pl.DataFrame:
    counts = frame.group_by("source", "source_file", maintain_order=True).agg(
        pl.len().alias("loaded"),
        pl.col("arrived_at").min().alias("first_arrived_at"),
        pl.col("arrived_at").max().alias("last_arrived_at"),
    )
    rejected = dict(refused.group_by("source_file").len().iter_rows())
    return pl.DataFrame(
        [
            {
                "source": each["source"],
                "source_file": each["source_file"],
                "sha256": "ab" * 32,
                "status": "complete",
                "read": each["loaded"] + rejected.get(each["source_file"], 0),
                "loaded": each["loaded"],
                "duplicates": 0,
                "rejected": rejected.get(each["source_file"], 0),
                "ignored": 0,
                "first_arrived_at": each["first_arrived_at"],
                "last_arrived_at": each["last_arrived_at"],
            }
            for each in counts.to_dicts()
        ],
        schema=MANIFEST_SCHEMA,
        orient="row",
    )
