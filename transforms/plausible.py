"""What no log can mean: values that become unknown with a flag, and rows that are not believed at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from transforms.canonical import OPERATIONS, SCHEMA, SERVED_BY, STATUSES
from transforms.fields.clock import ASSUMED_ORIGIN, LATEST_US, OUT_OF_RANGE
from transforms.fields.kinds import NOT_A_SERVER, OPERATION_UNKNOWN
from transforms.fields.numbers import CLOCK_SKEW, NEGATIVE
from transforms.fields.outcome import NOT_A_STATUS
from transforms.flags import flagged

if TYPE_CHECKING:
    from collections.abc import Container

CLAMPED = "cached_clamped"
DURATION_IMPLAUSIBLE = "duration_implausible"
NO_ARRIVAL = "no arrival time"
TOO_MANY_TOKENS = "implausible token count"

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
COUNTS = (*TOKENS, "requested_output_tokens", "choices", "tool_calls", "tool_results")
TIMES = ("queue_s", "ttft_s", "e2e_s")
DURATIONS = (*TIMES, "logged_tool_wait_s")

MAX_TIME_S = 7 * 86_400
"""Longest time inside one request that is believed: the week a review looks at. Nothing that serves lets a request live
so long: LiteLLM gives one up after 6,000 s (its request_timeout), OpenAI's batches end after a day."""
MAX_TOOL_WAIT_S = 30 * 86_400
"""Longest logged wait for a tool: a person who approves a call may be on holiday; agents' sessions are purged after 30
days (Claude Code, cleanupPeriodDays)."""
MAX_TOKENS = 100_000_000
"""Ten times the longest context any served model has (Llama 4 Scout: 10 million tokens)."""
ROUNDING_S = 0.001 + 1e-9
"""Two times rounded to milliseconds contradict each other only beyond this."""
FIRST_US = 1_420_070_400_000_000
"""2015-01-01: no log of a language model's service is older (OpenAI was founded that year)."""
COUNTED_UNTIL_US = 365 * 86_400_000_000
"""Stamps of 1970 count from a start that the log does not name."""
AGGREGATE = "aggregate"


def doubted(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` (typed, with `flags`) whose impossible values are NULL.

    Negative counts (`negative_value`), negative durations and such as contradict each other (`clock_skew`), durations
    beyond MAX_TIME_S (`duration_implausible`); cached tokens above the prompt are cut to it (`cached_clamped`), an
    operation that is not ours is `other` (`operation_unknown`), an arrival in 1970 is flagged `assumed_origin`.
    """
    rows = _without(rows, {name: pl.col(name) < 0 for name in COUNTS if name in rows.columns}, NEGATIVE)
    present = [name for name in DURATIONS if name in rows.columns]
    if present:
        rows = _without(rows, {name: pl.col(name) < 0 for name in present}, CLOCK_SKEW)
        longest = {name: MAX_TIME_S if name in TIMES else MAX_TOOL_WAIT_S for name in present}
        rows = _without(rows, {name: pl.col(name) > longest[name] for name in present}, DURATION_IMPLAUSIBLE)
        for name, whole in (("ttft_s", "e2e_s"), ("queue_s", "ttft_s"), ("queue_s", "e2e_s")):
            if name in present and whole in present:
                rows = _inside(rows, name, whole)
    if {"prompt_tokens", "cached_prompt_tokens"} <= set(rows.columns):
        over = rows.select(pl.col("cached_prompt_tokens") > pl.col("prompt_tokens")).to_series().fill_null(value=False)
        if over.any():
            cut = pl.when(over).then("prompt_tokens").otherwise("cached_prompt_tokens")
            rows = flagged(rows, over, CLAMPED).with_columns(cached_prompt_tokens=cut)
    return _with_known_origin(_with_known_operation(rows))


def _without(rows: pl.DataFrame, impossible: dict[str, pl.Expr], flag: str) -> pl.DataFrame:
    """`rows` with NULL where a column's condition holds, and those rows flagged."""
    if not impossible or not rows.select(pl.any_horizontal(impossible.values()).any()).item():
        return rows
    where = rows.select(pl.any_horizontal(impossible.values())).to_series()
    held = [pl.when(condition).then(None).otherwise(pl.col(name)).alias(name) for name, condition in impossible.items()]
    return flagged(rows, where, flag).with_columns(held)


def _inside(rows: pl.DataFrame, name: str, whole: str) -> pl.DataFrame:
    """`rows` without times `name` that end after `whole`; what rounding alone adds is cut off."""
    over = pl.col(name) > pl.col(whole)
    if not rows.select(over.any()).item():
        return rows
    rows = _without(rows, {name: over & (pl.col(name) > pl.col(whole) + ROUNDING_S)}, CLOCK_SKEW)
    return rows.with_columns(pl.when(over).then(pl.col(whole)).otherwise(pl.col(name)).alias(name))


def _with_known_operation(rows: pl.DataFrame) -> pl.DataFrame:
    if "operation" not in rows.columns:
        return rows
    odd = ~rows["operation"].is_in(list(OPERATIONS)).fill_null(value=True)
    if not odd.any():
        return rows
    known = pl.when(odd).then(pl.lit("other")).otherwise("operation").alias("operation")
    return flagged(rows, odd, OPERATION_UNKNOWN).with_columns(known)


def _with_known_origin(rows: pl.DataFrame) -> pl.DataFrame:
    if "arrived_at" not in rows.columns:
        return rows
    early = rows["arrived_at"].to_physical() < COUNTED_UNTIL_US
    return flagged(rows, early.fill_null(value=False), ASSUMED_ORIGIN) if early.any() else rows


def unusable(rows: pl.DataFrame, given: Container[str] = SCHEMA) -> pl.Series:
    """Why each finished row cannot be believed at all, in fixed words; NULL where it can.

    `given` names the columns that may hold anything but NULL and defaults.
    """
    us = pl.col("arrived_at").to_physical()
    in_range = us.is_between(FIRST_US, LATEST_US - 1) | us.is_between(0, COUNTED_UNTIL_US - 1)
    conditions = {NO_ARRIVAL: pl.col("arrived_at").is_null(), OUT_OF_RANGE: ~in_range}
    if counted := [name for name in TOKENS if name in given]:
        conditions[TOO_MANY_TOKENS] = pl.any_horizontal(pl.col(name) > MAX_TOKENS for name in counted)
    for name, words, reason in (("status", STATUSES, NOT_A_STATUS), ("served_by", SERVED_BY, NOT_A_SERVER)):
        if name in given:
            conditions[reason] = ~pl.col(name).is_in(list(words))
    found = rows.select(condition.any().alias(reason) for reason, condition in conditions.items())
    if not any(found.row(0)):
        return pl.Series("reason", [None], dtype=pl.String).new_from_index(0, len(rows))
    is_sum = pl.col("flags").list.contains(AGGREGATE)
    reasons = [
        pl.when(condition & ~is_sum if reason == TOO_MANY_TOKENS else condition).then(pl.lit(reason))
        for reason, condition in conditions.items()
    ]
    return rows.select(pl.coalesce(reasons).alias("reason")).to_series()
