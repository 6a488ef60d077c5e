"""Ingest against DuckDB's own COPY on the same file in the same run: time, ratio, peak memory of all processes.

    python tests/benchmarks/bench_ingest.py [GB, default 1]

Writes a LiteLLM spend log of rows of 1 to 2 KB and an Azure trace of that size into a temporary folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import orjson
import polars as pl
from peak_memory import PeakMemory

from flows.home import open_home
from flows.ingest import ingest
from flows.processes import worker_pool
from transforms.fleet import Privacy, Source

LIMITS = {"litellm": 3.0, "azure": 2.5}
"""Times of DuckDB's COPY that an ingest may take on two free cores."""
DAY_US = 86_400_000_000
START_US = 1_794_787_200_000_000
TEXTS = (
    "request_id", "call_type", "api_key", "startTime", "endTime", "completionStartTime", "model", "model_id",
    "model_group", "user", "team_id", "custom_llm_provider", "organization_id", "end_user", "cache_hit", "session_id",
    "status", "litellm_call_id", "agent_id",
)  # fmt: skip


def write_azure(path: Path, size_bytes: int) -> None:
    """Rows as the 2023 edition has them, over one day."""
    rng = np.random.default_rng(1)
    rows = 1_000_000
    count = max(size_bytes // 37 // rows, 1)
    with path.open("wb") as file:
        file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
        for part in range(count):
            at_us = np.sort(rng.integers(0, DAY_US // count, rows)) + START_US + part * (DAY_US // count)
            frame = pl.DataFrame({
                "t": pl.Series(at_us).cast(pl.Datetime("us")).dt.strftime("%Y-%m-%d %H:%M:%S.%6f0"),
                "p": np.minimum(rng.lognormal(7, 1, rows), 16_000).astype(int),
                "o": rng.integers(1, 1000, rows),
            })  # fmt: skip
            file.write(frame.write_csv(include_header=False, line_terminator="\r\n").encode())


def write_litellm(path: Path, size_bytes: int) -> None:
    """Spend-log rows of about 1.4 KB, over two weeks, in order of arrival."""
    rng = np.random.default_rng(2)
    written = number = 0
    with path.open("wb") as file:
        while written < size_bytes:
            line = orjson.dumps(spend_row(number, rng), option=orjson.OPT_APPEND_NEWLINE)
            file.write(line)
            written += len(line)
            number += 1


def spend_row(number: int, rng: np.random.Generator) -> dict[str, object]:
    """One row; arrivals are 1.7 s apart, so that 1 GB spans about two weeks."""
    start_us = START_US + number * 1_700_000 + int(rng.integers(0, 1_000_000))
    first_us, end_us = (start_us + int(us) for us in np.sort(rng.integers(50_000, 9_000_000, 2)))
    stamps = [str(np.datetime64(us, "us")).replace("T", " ") for us in (start_us, end_us, first_us)]
    prompt, output = int(rng.integers(10, 60_000)), int(rng.integers(1, 2_000))
    usage = {
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "request_id": f"chatcmpl-{number:016x}", "call_type": "acompletion", "api_key": "a" * 64, "spend": 0.01,
        "total_tokens": prompt + output, "prompt_tokens": prompt, "completion_tokens": output,
        "startTime": stamps[0], "endTime": stamps[1], "completionStartTime": stamps[2],
        "model": "hosted_vllm/meta-llama/Llama-3.1-8B-Instruct", "model_id": f"replica-{number % 8}",
        "model_group": "chat-8b", "custom_llm_provider": "hosted_vllm", "api_base": "http://chat.example:8000/v1",
        "user": f"user-{number % 999}", "team_id": f"team-{number % 20}", "organization_id": "org", "end_user": "",
        "metadata": {"status": "success", "usage_object": usage, "attempted_retries": 0, "note": "n" * 400},
        "cache_hit": "False", "cache_key": "Cache OFF", "request_tags": [], "session_id": f"s-{number // 12:012x}",
        "status": "success", "litellm_call_id": f"call-{number:016x}", "agent_id": None,
        "proxy_server_request": {"max_tokens": 4096, "messages": [{"role": "user"}]},
        "response": {"choices": [{"finish_reason": "stop", "message": {"tool_calls": []}}]},
    }  # fmt: skip


def copy_s(kind: str, path: Path) -> float:
    """Seconds of DuckDB's COPY of the file to Parquet, with its columns named."""
    columns: dict[str, str] = {"TIMESTAMP": "TIMESTAMP", "ContextTokens": "BIGINT", "GeneratedTokens": "BIGINT"}
    source = f"read_csv('{path}', header = true, columns = {columns})"
    if kind == "litellm":
        columns = dict.fromkeys(TEXTS, "VARCHAR") | {"prompt_tokens": "BIGINT", "completion_tokens": "BIGINT"}
        columns |= dict.fromkeys(("metadata", "proxy_server_request", "response"), "JSON")
        source = f"read_json('{path}', format = 'newline_delimited', columns = {columns})"
    with duckdb.connect() as connection:
        started_s = time.perf_counter()
        connection.execute(f"copy (from {source}) to '{path}.parquet' (format parquet)")
    return time.perf_counter() - started_s


def ingest_s(kind: str, path: Path, root: Path) -> tuple[float, int]:
    """Seconds of ingest into a new home, and the rows it loaded."""
    source = Source(kind, str(path), timezone="UTC")
    started_s = time.perf_counter()
    with worker_pool() as pool:
        result = ingest(open_home(root), [source], base=Path("/"), privacy=Privacy(), progress=silent, executor=pool)
    return time.perf_counter() - started_s, result.total("loaded")


@contextmanager
def silent(label: str, total: int | None) -> Iterator[object]:
    """No progress bar."""
    del label, total
    yield lambda done=1: None


def main() -> None:
    """Print one line a format."""
    size_bytes = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e9)
    folder = Path(tempfile.mkdtemp(prefix="kvledger-bench-"))
    try:
        for kind, write in (("litellm", write_litellm), ("azure", write_azure)):
            path = folder / f"{kind}.log"
            write(path, size_bytes)
            reference_s = copy_s(kind, path)
            watch = PeakMemory()
            watch.start()
            took_s, rows = ingest_s(kind, path, folder / kind)
            watch.ended.set()
            ratio = took_s / reference_s
            print(
                f"{kind}: {path.stat().st_size / 1e9:.2f} GB, {rows:,} rows: copy {reference_s:.1f} s, "
                f"ingest {took_s:.1f} s, ratio {ratio:.2f} (limit {LIMITS[kind]}), peak {watch.peak_mib:,.0f} MiB"
            )
            path.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
