"""The summariser: nightly jobs whose workers send one long document after another, and single ones by day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transforms.sample.calls import (
    INSTANT,
    LENGTH,
    OK,
    TOO_LONG,
    Calls,
    Chains,
    Floats,
    Ints,
    Plan,
    Sessions,
    calls_of,
    mixed,
)
from transforms.sample.published import DOCUMENT_OUTPUT_TOKENS, DOCUMENT_PROMPT_TOKENS, draw_tokens
from transforms.sample.rhythm import OFFICE_HOURS, OFFICE_WEEK, session_starts
from transforms.sample.services import DAY_S, SUMMARISER

SINGLES_PER_DAY = 700.0
"""Documents people summarise on a mean working day (assumed)."""

WEEKEND, WEEKEND_RATIO = (5, 6), 0.5
"""Share of a working night's documents that arrives on Saturday and Sunday (assumed)."""

BACKLOG_DAYS, BACKLOG_FACTOR = (3, 9), 1.8
"""Nights on which the first job finds a backlog, and how much more it then has to do (assumed)."""

BETWEEN_S = 0.4
"""Mean time a worker needs to fetch the next document (assumed)."""

REFUSE_S = 0.02
"""Time in which a prompt that is too long is refused (assumed)."""

SYSTEM_TOKENS = 128
SINGLE_TENANT = 3


@dataclass(frozen=True)
class Job:
    """One nightly job: whose, from which hour UTC, workers and documents of the first and the second week."""

    tenant: int
    hour: float
    workers: tuple[int, int]
    documents: tuple[int, int]
    prompt_factor: float = 1.0


JOBS = (
    Job(tenant=0, hour=1.0, workers=(18, 18), documents=(1_650, 1_650)),
    Job(tenant=1, hour=1.25, workers=(12, 12), documents=(900, 900)),
    Job(tenant=2, hour=1.5, workers=(9, 17), documents=(300, 900), prompt_factor=1.8),
)
"""They overlap, as jobs do that were all put "after midnight"; in the second week the legal team sends three times as
many documents, which are 80 % longer than the others (all assumed)."""


def plan_summaries(rng: np.random.Generator, identity: int, day: int, scale: float) -> Plan:
    """All documents whose job or reader starts on `day`; jobs and readers shrink with `scale`."""
    starts = session_starts(rng, day, SINGLES_PER_DAY * scale, OFFICE_HOURS, OFFICE_WEEK)
    singles = len(starts)
    chains = [starts]
    lines = [np.arange(singles)]
    tenants = [np.full(singles, SINGLE_TENANT)]
    factors = [np.ones(singles)]
    for job in JOBS:
        count, workers = _job_size(rng, job, day, scale)
        begin_s = day * DAY_S + 3600 * (job.hour + rng.uniform(0, 0.1))
        lines.append(np.sort(np.arange(count) % workers) + sum(map(len, chains)))
        chains.append(begin_s + np.sort(rng.uniform(0, 20, workers)))
        tenants.append(np.full(count, job.tenant))
        factors.append(np.full(count, job.prompt_factor))
    line, tenant = np.concatenate(lines), np.concatenate(tenants)
    calls = _documents(rng, identity, line, tenant, np.concatenate(factors))
    start_s = np.concatenate(chains)
    people = (SUMMARISER.tenants[SINGLE_TENANT].users * rng.random(len(tenant))).astype(np.int64)
    sessions = Sessions(mixed(identity, np.arange(len(tenant))), tenant, np.where(tenant == SINGLE_TENANT, people, 0))
    return Plan(sessions, Chains(start_s, np.full(len(start_s), -1), np.zeros(len(start_s), np.int64)), calls)


def _job_size(rng: np.random.Generator, job: Job, day: int, scale: float) -> tuple[int, int]:
    """Documents and workers of `job` on the night of `day`."""
    mean = job.documents[min(day // 7, 1)] * (WEEKEND_RATIO if day % 7 in WEEKEND else 1.0) * scale
    mean *= rng.uniform(0.9, 1.1) * (BACKLOG_FACTOR if day in BACKLOG_DAYS and job is JOBS[0] else 1.0)
    return max(1, round(mean)), max(1, round(job.workers[min(day // 7, 1)] * min(1.0, scale)))


def _documents(rng: np.random.Generator, identity: int, line: Ints, tenant: Ints, factor: Floats) -> Calls:
    rows = len(line)
    prompt = draw_tokens(DOCUMENT_PROMPT_TOKENS, rng.random(rows), factor) + SYSTEM_TOKENS
    limit = np.array([t.limit_tokens for t in SUMMARISER.tenants])[tenant]
    wanted = draw_tokens(DOCUMENT_OUTPUT_TOKENS, rng.random(rows))
    is_long = prompt >= SUMMARISER.engine.max_model_len
    output = np.minimum(np.minimum(wanted, limit), np.maximum(1, SUMMARISER.engine.max_model_len - prompt))
    outcome = np.where(is_long, TOO_LONG, np.where(output < wanted, LENGTH, OK))
    return calls_of(
        rows,
        chain=line,
        session=np.arange(rows),
        uid=mixed(identity, np.arange(rows) + 2**32),
        outcome=outcome,
        mode=np.where(is_long, INSTANT, 0),
        fixed_s=np.where(is_long, REFUSE_S, 0.0),
        gap_s=np.where(np.diff(line, prepend=-1) != 0, 0.0, rng.exponential(BETWEEN_S, rows)),
        prompt_tokens=prompt,
        output_tokens=output,
        shared_tokens=np.full(rows, SYSTEM_TOKENS),
        limit_tokens=limit,
    )
