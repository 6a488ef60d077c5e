"""Build against bare DuckDB: time and memory for millions of requests, a day added, and more than twice as many.

`bench_build.py [MILLIONS] [LARGE_MILLIONS]` (20, and 44 where it is given). Every part runs in a process of its own.
The bare statements (bare_build.sql) make the same tables and aggregates by hand, in a file of their own, with as many
threads but all the memory DuckDB takes by itself: within the limit of a build they run out of it at 20 million. What of
them only aggregates is timed apart. Ratios are of one run: of the clock, and of processor time, which other work on the
machine moves less.

Measured on 2 cores, nothing else running: 20 million in 180 s (346 s of processor time), 1.28 of the bare statements
(of their processor time too), 3.5 GiB; 3 million more in 43 s, 0.24 of the build; 44 million in 1.97 times the time of
20 million, 3.7 GiB.
"""

from __future__ import annotations

import json
import math
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from generated_lake import write_days

from flows.build import build
from flows.catalog import load_catalog
from flows.fleet import load_fleet
from flows.home import Home, open_home
from flows.raw_inputs import lake_paths
from flows.warehouse import STORAGE_VERSION, default_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

DAYS = 7
DAY_SHARE = 0.15
"""Of the rows: the day that is added, 3 million to 20."""
MOST_BUILD, MOST_LARGE, MOST_DAY = 1.5, 2.5, 0.5
MOST_MIB, MOST_LARGE_MIB = 4 * 1024, 6 * 1024
BARE = Path(__file__).with_name("bare_build.sql")
ROWS = ("requests", "facts", "attempts", "waits", "sessions", "waits_of_sessions")
"""Tables of bare_build.sql that hold rows, not aggregates."""
CHECKS = {
    "select count(*), sum(prompt_tokens), sum(output_tokens) from facts":
    "select count(*), sum(prompt_tokens), sum(output_tokens) from fct_requests",
    "select count(*), sum(wait_s) > 0 from waits": "select count(*), sum(wait_s) > 0 from fct_tool_waits",
    "select count(*), sum(turns) from sessions": "select count(*), sum(turns_requests) from fct_sessions",
    "select q[4], largest from prompt_quantiles where deployment_id is null":
    "select prompt_p95_tokens, prompt_max_tokens from dist_prompt_tokens where deployment_id = '(all)'",
    "select ttft[3], e2e[4] from latency where deployment_id is null":
    "select ttft_p95_s, e2e_p99_s from dist_latency where deployment_id = '(all)'",
    "select peak from arrivals where deployment_id = '(all)' order by window_s":
    "select arrivals_peak_requests from dist_arrivals where deployment_id = '(all)' order by window_s",
    "select sum(n), max(n) from group_hours": "select sum(requests), max(requests) from dist_group_hours",
    "select sum(n) from joint_bins where deployment_id is null":
    "select sum(requests) from dist_joint_lengths where deployment_id = '(all)'",
    "select count(*), sum(n) from group_length_counts":
    "select count(*), sum(requests) from dist_group_length_counts",
    "select sum(n), max(n) from group_joint_bins": "select sum(requests), max(requests) from dist_group_joint_lengths",
    "select tenant, round(ttft[3], 9) from group_latency where tenant is not null order by all":
    "select member, round(latency_p95_s, 9) from dist_group_latency "
    "where grouping_name = 'tenant' and measure = 'ttft' order by all",
    "select max(left_) from in_flight": "select max(left_requests) from dist_concurrency",
}  # fmt: skip
"""What both must agree on, bare and built."""


@contextmanager
def silent(label: str, total: int | None) -> Iterator[object]:
    """No progress bar."""
    del label, total
    yield lambda done=1: None


def build_stage(home: Home) -> dict[str, float]:
    """Bring the warehouse of `home` up to date."""
    build(home, load_fleet(None, home), load_catalog(home), silent)
    return {"file_mb": home.warehouse.stat().st_size / 1e6}


def bare_stage(home: Home) -> dict[str, float]:
    """Run the bare statements on the lake of `home`; processor seconds of those that only aggregate."""
    settings = {
        "threads": default_limits(home.root).threads,
        "preserve_insertion_order": False,
        "temp_directory": str(home.root / "bare.spill"),
    }
    aggregates_s = 0.0
    with duckdb.connect(config=settings) as connection:
        connection.execute(f"attach '{home.root}/bare.duckdb' as bare (storage_version '{STORAGE_VERSION}')")
        connection.execute("use bare; set TimeZone = 'UTC'")
        paths = [str(path) for day in lake_paths(home).values() for path in day]
        in_utc = "select * replace (timezone('UTC', arrived_at) as arrived_at)"
        connection.execute(f"create temp view lake as {in_utc} from read_parquet({paths})")
        for statement in filter(str.strip, BARE.read_text(encoding="utf-8").split(";")):
            started_s = processor_s()
            connection.execute(statement)
            if statement.partition("create table ")[2].split()[0] not in ROWS:
                aggregates_s += processor_s() - started_s
        connection.execute("checkpoint bare")
    return {"aggregates_s": aggregates_s}


def check_stage(home: Home) -> dict[str, float]:
    """Nothing, if bare and built aggregates agree."""
    with duckdb.connect() as connection:
        connection.execute(f"attach '{home.root}/bare.duckdb' as bare (read_only)")
        connection.execute(f"attach '{home.warehouse}' as built (read_only)")
        for bare, built in CHECKS.items():
            found = [
                connection.execute(f"use {name}").execute(sql).fetchall()
                for name, sql in (("bare", bare), ("built", built))
            ]
            assert found[0] == found[1], (bare, found)
    return {}


STAGES = {"build": build_stage, "bare": bare_stage, "check": check_stage}


def processor_s() -> float:
    """Seconds of processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(stage: str, home: Home) -> dict[str, float]:
    """Seconds, processor seconds, peak memory (MiB) and more of a stage in a process of its own."""
    ran = subprocess.run(
        [sys.executable, __file__, "--stage", stage, str(home.root)], stdout=subprocess.PIPE, check=True
    )
    figures: dict[str, float] = json.loads(ran.stdout)
    shown = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
    print(f"  {stage}: {shown}", flush=True)
    return figures


def stage_main(stage: str, root: str) -> None:
    """Run one stage and print its figures as JSON."""
    started_s, used_s = time.perf_counter(), processor_s()
    more = STAGES[stage](Home(Path(root)))
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    figures = {
        "wall_s": time.perf_counter() - started_s,
        "processor_s": processor_s() - used_s,
        "peak_mib": int(peak.split()[1]) / 1024,
    }
    print(json.dumps(figures | more))


def said(what: str, value: float, most: float, unit: str = "") -> None:
    """Print one figure beside its limit."""
    print(f"{what}: {value:,.2f}{unit} (limit {most:,g}{unit}) {'ok' if value <= most else 'TOO MUCH'}", flush=True)


def ratios(what: str, one: dict[str, float], other: dict[str, float], most: float) -> None:
    """Print how `one` compares with `other`."""
    for name in ("wall_s", "processor_s"):
        said(f"{what}, {name.removesuffix('_s')}", one[name] / other[name], most)


def main(millions: float, large_millions: float | None) -> None:
    """Print the figures beside their limits."""
    folder = Path(tempfile.mkdtemp(prefix="kvledger-bench-"))
    try:
        home, rows = open_home(folder / "home"), int(millions * 1e6)
        print(f"{millions:g} million requests in {DAYS} days", flush=True)
        write_days(home, 0, DAYS, rows // DAYS)
        bare, built = run("bare", home), run("build", home)
        run("check", home)
        (home.root / "bare.duckdb").unlink()
        ratios("build against bare statements", built, bare, MOST_BUILD)
        print(f"build against the bare aggregates alone, processor: {built['processor_s'] / bare['aggregates_s']:,.2f}")
        said("peak memory", built["peak_mib"], MOST_MIB, " MiB")
        write_days(home, DAYS, 1, int(rows * DAY_SHARE))
        ratios("a day added against the build", run("build", home), built, MOST_DAY)
        if large_millions:
            shutil.rmtree(home.root)
            home = open_home(folder / "large")
            write_days(home, 0, DAYS, int(large_millions * 1e6) // DAYS)
            large = run("build", home)
            ratios(f"{large_millions:g} million against {millions:g}", large, built, MOST_LARGE)
            said("peak memory", large["peak_mib"], MOST_LARGE_MIB, " MiB")
            exponent = math.log(large["processor_s"] / built["processor_s"]) / math.log(large_millions / millions)
            print(f"exponent of processor time in rows: {exponent:.2f}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stage"]:
        stage_main(*sys.argv[2:])
    else:
        given = [float(word) for word in sys.argv[1:]]
        main(given[0] if given else 20, given[1] if len(given) > 1 else None)
