"""Lakes of millions of made-up requests: what bench_build.py builds from, written by the lake's own writer."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from flows.lake import manifest_path, request_days, requests_path, requests_paths
from flows.lake_files import RequestsWriter, write_table
from flows.manifest import SCHEMA as MANIFEST_SCHEMA

if TYPE_CHECKING:
    from flows.home import Home

FIRST_DAY = date(2026, 11, 16)
"""A Monday: seven days are one ISO week."""
CHUNK_ROWS = 500_000
DAY_US = 86_400_000_000
LANES, TURNS = 2_000, 8
"""Sessions open side by side in a chunk, and the turns each has."""
MODELS = ("chat-8b", "chat-70b", "code")

FLEET = """
[[deployments]]
name = "chat"
serves = ["chat-*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 8
[deployments.engine]
version = "0.19.0"

[[deployments]]
name = "code"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 4
[deployments.engine]
version = "0.19.0"
"""


def write_days(home: Home, first: int, days: int, day_rows: int) -> None:
    """Put days number `first` to `first + days - 1` of `day_rows` requests each into the lake of `home`."""
    home.fleet.write_text(FLEET, encoding="utf-8")
    for day in range(first, first + days):
        writer = RequestsWriter(requests_path(home, str(FIRST_DAY + timedelta(days=day))))
        for start in range(0, day_rows, CHUNK_ROWS):
            writer.write(_chunk(day, start, min(CHUNK_ROWS, day_rows - start), day_rows))
        writer.close()
    write_table(_manifest(home), manifest_path(home))


def _chunk(day: int, start: int, rows: int, day_rows: int) -> pl.DataFrame:
    """Rows `start` to `start + rows` of a day, in order of arrival: half in sessions, one in a hundred failed."""
    rng = np.random.default_rng((day, start))
    midnight_us = int(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC).timestamp()) * 10**6
    span_us = DAY_US * rows // day_rows
    at_us = np.sort(rng.integers(0, span_us, rows)) + midnight_us + day * DAY_US + DAY_US * start // day_rows
    number = np.arange(rows)
    lane = number % LANES
    session = (number // (LANES * TURNS)) * LANES + lane
    in_session = lane % 2 == 0
    ttft_s = rng.lognormal(-1, 0.8, rows).round(6)
    output = np.minimum(rng.lognormal(5, 1, rows), 8000).astype(np.int64) + 1
    prompt = np.minimum(rng.lognormal(7.5, 1.2, rows), 120_000).astype(np.int64) + 1
    name = pl.Series(number + start + day * 10**9)
    return pl.DataFrame(
        {
            "request_id": pl.select(pl.format("chatcmpl-{}{}", name.hash(1), name)).to_series(),
            "attempt": pl.Series(np.ones(rows, dtype=np.int32)),
            "session_id": pl.select(
                pl.when(pl.Series(in_session)).then(pl.format("s-{}-{}-{}", day, start, pl.Series(session)))
            ).to_series(),
            "turn": pl.select(
                pl.when(pl.Series(in_session)).then(pl.Series((number // LANES) % TURNS + 1).cast(pl.Int32))
            ).to_series(),
            "arrived_at": pl.Series(at_us).cast(pl.Datetime("us", "UTC")),
            "model": pl.Series(np.array(MODELS)[rng.choice(3, rows, p=(0.6, 0.3, 0.1))]),
            "tenant": pl.Series(np.char.add("t", rng.integers(0, 50, rows).astype(str))),
            "operation": pl.repeat("chat", rows, eager=True),
            "served_by": pl.repeat("backend", rows, eager=True),
            "status": pl.Series(np.array(["ok", "length", "error"])[rng.choice(3, rows, p=(0.95, 0.04, 0.01))]),
            "finish_reason": pl.Series(np.where(rng.random(rows) < 0.3, "tool_calls", "stop")),
            "prompt_tokens": pl.Series(prompt),
            "cached_prompt_tokens": pl.Series(prompt // 2),
            "output_tokens": pl.Series(output),
            "queue_s": pl.Series((ttft_s / 4).round(6)),
            "ttft_s": pl.Series(ttft_s),
            "e2e_s": pl.Series((ttft_s + output * rng.lognormal(-4, 0.2, rows)).round(6)),
            "source": pl.repeat("kvledger", rows, eager=True),
            "source_file": pl.repeat(f"day-{day}.jsonl", rows, eager=True),
            "source_position": pl.Series(number + start),
            "flags": pl.Series([[]] * rows, dtype=pl.List(pl.String)),
        }
    )


def _manifest(home: Home) -> pl.DataFrame:
    """One file a day of the lake, with the rows that the day has."""
    rows = []
    for number, day in enumerate(request_days(home)):
        loaded = sum(pq.read_metadata(path).num_rows for path in requests_paths(home, day))
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        rows.append(
            {
                "source": "kvledger",
                "source_file": f"day-{number}.jsonl",
                "sha256": "ab" * 32,
                "status": "complete",
                "read": loaded,
                "loaded": loaded,
                "duplicates": 0,
                "rejected": 0,
                "ignored": 0,
                "first_arrived_at": start,
                "last_arrived_at": start + timedelta(days=1),
            }
        )
    return pl.DataFrame(rows, schema=MANIFEST_SCHEMA, orient="row")
