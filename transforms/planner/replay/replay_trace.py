"""A replay's requests from canonical rows: what reached an engine, with sessions made causal and unknown outputs drawn.

Inside one (session, agent) a turn is caused by the one before: it arrives at its completion plus the wait that was
logged, or the gap between the two in the log (planner.md §2). A call that began while another of its session ran keeps
its offset from that one's arrival. First turns, rows without a session and turns after an answer of unknown end arrive
at their logged times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.errors import InputError
from transforms.planner.replay.replay_types import TraceColumns
from transforms.planner.residency.output_lengths import draw_outputs
from transforms.planner.tool_waits.tool_gaps import after_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

GENERATING = ("chat", "completion", "batch", "other")
"""Operations that decode; embeddings, reranking and moderation do not."""

MICROS = 1_000_000.0


@dataclass(frozen=True, eq=False)
class Logged:
    """Seconds since each request's arrival as the log has them, NaN where it does not say; failures have none."""

    queue_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]

    def at(self, rows: NDArray[np.int64]) -> Logged:
        """Those of the chosen rows."""
        return Logged(self.queue_s[rows], self.ttft_s[rows], self.e2e_s[rows])


@dataclass(frozen=True, eq=False)
class ReplayTrace:
    """Requests in the order of arrival, and what was done to have them."""

    columns: TraceColumns
    request_id: pl.Series
    """As the source gives it, where that is unique."""
    unit: NDArray[np.int64]
    """Number of the session (else of the row) each request belongs to: what thinning takes or leaves whole."""
    drawn_outputs: int
    """Requests of unknown output length."""
    unknown_gaps: int
    """Turns that follow an answer of unknown end: they arrive at their logged time."""
    left_out: Mapping[str, int]
    """Rows that are no request of the engine, by reason."""
    prefix_block_tokens: int
    """0 where the rows have no prefix blocks."""
    has_sessions: bool
    logged: Logged

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last logged arrival."""
        return float(self.columns.arrived_s[-1] - self.columns.arrived_s[0])


def replay_trace(rows: pl.DataFrame, where: str, seed: int = 0, *, is_causal: bool = True) -> ReplayTrace:
    """Trace of canonical `rows` in order of arrival (`where` names them); InputError where nothing can be replayed.

    `is_causal` False: every request arrives at its logged time.
    """
    kept, left_out = _requests(rows)
    if kept.is_empty():
        told = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items()) or "it has no rows"
        raise InputError(f"{where}: nothing to replay ({told}); name a trace with prompt lengths and arrivals")
    outputs, drawn = draw_outputs(kept, where, seed)
    arrived_us = kept["arrived_at"].dt.epoch("us").to_numpy()
    arrived_s = (arrived_us - arrived_us[0]) / MICROS
    links = _links(kept, arrived_s) if is_causal else _Links()
    block_tokens, offsets, ids = _prefix_blocks(kept)
    session = _alone(_numbers(kept, "session_id", "agent_id"))
    has_sessions = int(session.max()) + 1 < len(kept)
    columns = TraceColumns(
        arrived_s=arrived_s,
        prompt_tokens=kept["prompt_tokens"].to_numpy().astype(np.int32),
        output_tokens=outputs,
        requested_tokens=kept["requested_output_tokens"].fill_null(-1).clip(-1, 2**31 - 1).to_numpy().astype(np.int32),
        session=session.astype(np.int32),
        block_offsets=offsets,
        block_ids=ids,
        shared_tokens=_shared_tokens(kept, session) if has_sessions else np.zeros(0, dtype=np.int32),
        parent=links.parent,
        delay_s=links.delay_s,
        from_start=links.from_start,
        is_tool_wait=links.is_tool_wait,
    )
    return ReplayTrace(
        columns=columns,
        request_id=given_ids(kept),
        unit=_alone(_numbers(kept, "session_id")),
        drawn_outputs=drawn,
        unknown_gaps=links.unknown_gaps,
        left_out=left_out,
        prefix_block_tokens=block_tokens,
        has_sessions=has_sessions,
        logged=_logged(kept),
    )


def given_ids(rows: pl.DataFrame) -> pl.Series:
    """Request ids without the arrival that some formats add to tell runs apart, where they stay unique."""
    stamp = pl.concat_str(pl.lit("@"), pl.col("arrived_at").dt.epoch("us").cast(pl.String))
    bare = rows.select(request_id=pl.col("request_id").str.strip_suffix(stamp))["request_id"]
    return bare if bare.is_unique().all() else rows["request_id"]


def _requests(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Rows an engine had to serve, and the count of the others by reason."""
    reasons = {
        "answered by a cache of the gateway": pl.col("served_by") == "gateway_cache",
        "no generation": ~pl.col("operation").is_in(GENERATING),
        "without prompt tokens": pl.col("prompt_tokens").fill_null(0) < 1,
    }
    left_out: dict[str, int] = {}
    for reason, is_it in reasons.items():
        kept = rows.filter(~is_it.fill_null(value=False))
        if len(kept) < len(rows):
            left_out[reason] = len(rows) - len(kept)
        rows = kept
    return rows, left_out


def _logged(rows: pl.DataFrame) -> Logged:
    is_whole = rows["status"].fill_null("ok").is_in(["ok", "length"]).to_numpy()
    names = ("queue_s", "ttft_s", "e2e_s")
    return Logged(
        *(np.where(is_whole, rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy(), np.nan) for name in names)
    )


def _numbers(rows: pl.DataFrame, *keys: str) -> NDArray[np.int64]:
    """Number of each row's group by `keys` in order of appearance; −1 where the first of them is NULL."""
    named = rows.with_row_index("row").filter(pl.col(keys[0]).is_not_null())
    numbers = np.full(len(rows), -1, dtype=np.int64)
    if len(named):
        groups = named.select(pl.struct(keys).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        numbers[named["row"].to_numpy()] = np.argsort(np.argsort(first))[inverse]
    return numbers


def _alone(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """`numbers` with a group of its own for each row of none: its blocks too may be found again after a preemption."""
    is_none = numbers < 0
    return np.where(is_none, numbers.max(initial=-1) + np.cumsum(is_none), numbers)


@dataclass(frozen=True, eq=False)
class _Links:
    """Empty columns where no request is caused by another."""

    parent: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    delay_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    from_start: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    is_tool_wait: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    unknown_gaps: int = 0


def _links(rows: pl.DataFrame, arrived_s: NDArray[np.float64]) -> _Links:
    """What causes each row: the previous turn of its agent, or the call of its session that was made last before it."""
    count = len(rows)
    ended_s = arrived_s + rows["e2e_s"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    waits_s = rows["logged_tool_wait_s"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    parent, delay_s = np.full(count, -1, dtype=np.int32), np.zeros(count)
    from_start, unknown = np.zeros(count, dtype=np.bool_), 0
    before = _previous(_numbers(rows, "session_id", "agent_id"))
    in_session = _previous(_numbers(rows, "session_id"))
    for row in np.flatnonzero(in_session >= 0):
        cause = before[row] if before[row] >= 0 else in_session[row]
        gap_s = waits_s[row] if before[row] >= 0 and waits_s[row] >= 0 else arrived_s[row] - ended_s[cause]
        if np.isnan(gap_s):
            unknown += 1
            continue
        parent[row], from_start[row] = cause, gap_s < 0
        delay_s[row] = gap_s if gap_s >= 0 else arrived_s[row] - arrived_s[cause]
    if (parent < 0).all():
        return _Links(unknown_gaps=unknown)
    is_next_turn = (parent == before) & (parent >= 0) & ~from_start
    return _Links(parent, delay_s, from_start, is_next_turn & after_tools(rows, before), unknown)


def _previous(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row before each one in its group; −1 for the first of a group and for rows of none."""
    order = np.argsort(group, kind="stable")
    before = np.full(len(group), -1, dtype=np.int64)
    follows = (group[order][1:] == group[order][:-1]) & (group[order][1:] >= 0)
    before[order[1:][follows]] = order[:-1][follows]
    return before


def _shared_tokens(rows: pl.DataFrame, session: NDArray[np.int64]) -> NDArray[np.int32]:
    """Tokens each prompt has in common with its session so far: all, but what was logged where it became shorter."""
    prompt = rows["prompt_tokens"].to_numpy()
    before = _previous(session)
    is_shorter = (before >= 0) & (prompt < prompt[np.maximum(before, 0)])
    cached = rows["cached_prompt_tokens"].fill_null(0).to_numpy()
    return np.where(is_shorter, cached, prompt).astype(np.int32)


def _prefix_blocks(rows: pl.DataFrame) -> tuple[int, NDArray[np.int64], NDArray[np.int32]]:
    """Tokens of a block, offsets and numbers of the whole blocks of each prompt; (0, empty, empty) without any.

    InputError where blocks of several sizes are mixed.
    """
    nothing = (0, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))
    lists = rows.select(
        size="prefix_block_tokens",
        ids=pl.col("prefix_block_ids").list.head(pl.col("prompt_tokens") // pl.col("prefix_block_tokens")),
    )
    sizes = lists.filter(pl.col("ids").list.len() > 0)["size"].unique().sort().to_list()
    if not sizes:
        return nothing
    if len(sizes) > 1:
        words = ", ".join(map(str, sizes))
        raise InputError(f"trace: prefix blocks of {words} tokens are mixed; replay files of one block size each")
    counts = lists["ids"].list.len().fill_null(0).to_numpy().astype(np.int64)
    flat = lists.filter(pl.col("ids").list.len() > 0)["ids"].explode(empty_as_null=False).to_numpy()
    _, numbers = np.unique(flat, return_inverse=True)
    return int(sizes[0]), np.concatenate([[0], np.cumsum(counts)]), numbers.astype(np.int32)
