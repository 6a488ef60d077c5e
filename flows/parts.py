"""Cuts the files of a run into parts for the workers, and reads the parts."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flows.discover import prefix_digests
from flows.reading.formats import module_of
from flows.reading.recognise import advice, candidates, claim, likely
from flows.reading.tables import LACKS_COLUMN
from flows.staging import PartJob, parse_part
from transforms.batches import Head
from transforms.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor, Future
    from pathlib import Path

    from flows.discover import Digests, Plan
    from flows.home import Home
    from flows.progress import Progress
    from flows.reading.look import Look
    from transforms.fleet import Privacy

PART_BYTES = 64 << 20
"""Parts of plain files; fixed, so that runs do not depend on the number of workers."""
LOOK_BYTES = 1 << 20
"""Bytes looked at together for a quote; a map of the whole file would count as memory of ours."""
SPLIT_LAYOUTS = ("lines", "csv")
WORKERS = {
    "POLARS_MAX_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""Environment of workers: each has a core of its own, and keeps the memory of one batch for the next (mallopt(3) of
glibc; measured on `azure`: a third of the page faults, 7 % less processor time, 10 MB more memory)."""

Outcome = list[dict[str, Any]] | str
"""What parsing one file gave: the results of its parts, or why it is refused."""


def parse(
    home: Home,
    plans: Sequence[Plan],
    privacy: Privacy,
    *,
    progress: Progress,
    executor: Executor,
    digests: Digests,
) -> tuple[list[Plan], list[Outcome]]:
    """The plans with the sha256 of every file that is read, and what parsing each gave; both in the order of `plans`.

    InputError or ConfigError where a file named on the command line itself cannot be used.
    """
    for name, value in WORKERS.items():
        os.environ.setdefault(name, value)  # of the workers that start now
    sums: list[Future[dict[int, str]] | None] = []
    parts: list[list[Future[dict[str, Any]]]] = []
    for number, plan in enumerate(plans):
        is_read = plan.action in ("read", "resume")
        is_unsummed = is_read and not plan.sha256
        sums.append(executor.submit(prefix_digests, plan.found.path, plan.size_bytes) if is_unsummed else None)
        jobs = jobs_of(home, plan, number, is_hashed=privacy.identifiers == "hashed") if is_read else ()
        parts.append([executor.submit(parse_part, job) for job in jobs])
    outcomes: list[Outcome] = []
    done: list[Plan] = []
    with progress("reading logs", sum(map(len, parts))) as advance:
        for plan, digest, futures in zip(plans, sums, parts, strict=True):
            try:
                outcomes.append(_outcome(plan, futures, advance, home.catalog))
            except (InputError, ConfigError) as error:
                for future in (f for fs in parts for f in fs):
                    future.cancel()
                raise type(error)(f"{plan.found.path}: {error}") from error
            done.append(plan if digest is None else _summed(plan, digest.result()[plan.size_bytes], digests))
    return done, outcomes


def _outcome(plan: Plan, futures: list[Future[dict[str, Any]]], advance: Any, catalog: Path) -> Outcome:
    results = []
    try:
        for future in futures:
            results.append(future.result())
            advance()
        _check_used(plan, results, catalog)
    except InputError as error:
        reason = _lacking(plan, str(error), catalog) if str(error).startswith(LACKS_COLUMN) else str(error)
        if plan.found.is_named:
            raise InputError(reason) from error
        return reason
    return results


def _check_used(plan: Plan, results: list[dict[str, Any]], catalog: Path) -> None:
    """InputError where nothing of a new file is of use: it cannot serve, has another format, or is damaged throughout.

    What would serve in place of a log that cannot comes before what was amiss when it was read as something else.
    """
    if plan.entry is not None or any(part["runs"] for part in results):
        return
    told = advice(_head(plan))
    if told is not None:
        raise InputError(told)
    name = plan.found.source.format
    rejects = [reject for part in results for reject in part["rejects"]]
    if rejects:
        hint = _likely(plan, catalog) or "; check --format and the file"
        raise InputError(f"no record could be read as {name} ({len(rejects)} rejected: {rejects[0][1]}){hint}")
    ignored = sum(part["ignored"] - (part["status"] == "growing") for part in results)
    if ignored > 0 and claim(name, _head(plan), catalog) is None:
        raise InputError(f"nothing in it is of format {name} ({ignored} ignored); check --format and the file")


def _lacking(plan: Plan, reason: str, catalog: Path) -> str:
    """Why a file without a column of its format is refused: what would serve in its place, or what it looks like."""
    return advice(_head(plan)) or reason + _likely(plan, catalog)


def _likely(plan: Plan, catalog: Path) -> str:
    """What the file looks like when it is not what was asked, as the end of a line; empty if like nothing known."""
    return likely(name for name in candidates(_head(plan), catalog) if name != plan.found.source.format)


def _head(plan: Plan) -> Head:
    return plan.seen.head if plan.seen else Head("")


def _summed(plan: Plan, sha256: str, digests: Digests) -> Plan:
    digests.remember(plan.found.path, plan.size_bytes, sha256)
    return replace(plan, sha256=sha256)


def jobs_of(home: Home, plan: Plan, number: int, *, is_hashed: bool) -> Iterator[PartJob]:
    """The parts of one file; `number` is the file's place in the run."""
    assert plan.seen is not None
    bounds = list(_bounds(plan, home.catalog))
    seen = replace(plan.seen, head=Head(plan.seen.head.name))
    for part, (start, end) in enumerate(pairwise(bounds)):
        yield PartJob(
            seen=seen,
            source=plan.found.source,
            source_file=plan.found.source_file,
            start=start,
            end=end,
            is_last=end == bounds[-1],
            home=str(home.root),
            folder=str(home.staging / "runs" / f"{number:06}" / f"{part:05}"),
            is_hashed=is_hashed,
            ordinal=plan.found.ordinal,
        )


def _bounds(plan: Plan, catalog: Path) -> Iterator[int]:
    """Byte offsets between parts: where the first begins, where lines end near each multiple of PART_BYTES, the end."""
    yield plan.start
    assert plan.seen is not None
    if plan.size_bytes > plan.start + PART_BYTES and _is_splittable(plan.seen, plan, catalog):
        with plan.found.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            last = plan.start
            for wanted in range(plan.start + PART_BYTES, plan.size_bytes, PART_BYTES):
                cut = view.find(b"\n", wanted, plan.size_bytes) + 1
                if cut > last and cut < plan.size_bytes:
                    yield cut
                    last = cut
    yield plan.size_bytes


def _is_splittable(seen: Look, plan: Plan, catalog: Path) -> bool:
    module = module_of(plan.found.source.format, catalog)
    if seen.compression != "none" or seen.layout not in SPLIT_LAYOUTS or module.UNIT != "line":
        return False
    if plan.found.source.file_order == "arrival":
        return False
    return seen.layout == "lines" or (_takes_tables(module) and not _has_quotes(plan.found.path))


def _takes_tables(module: Any) -> bool:
    return hasattr(module, "fields_of")


def _has_quotes(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b'"' in block for block in iter(partial(file.read, LOOK_BYTES), b""))
