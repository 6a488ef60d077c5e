"""Who and what holds KV for how long: KV·time by part, length, tenant, model and session, and what caps would free.

Token-linear, of the attempts that arrived in the week. `prompt` is the prompt while it is computed and while the answer
is made, `output` what the answer's own tokens hold; the two are all that an engine of today holds. `tool_wait` is what
contexts kept through tool waits would hold on top (policy `keep`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.planner.provenance import MEASURED, MODELLED
from transforms.planner.residency.kv_time import SECOND_US, prefill_kv_time, tool_wait_kv_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]

TOP_RATIOS = (0.01, 0.05, 0.1)
TOP_SESSIONS = 20
LONG_QUANTILE = 0.9
OUTPUT_CAPS_TOKENS = (256, 512, 1024, 2048, 4096)
WAIT_CAPS_S = (10, 60, 300, 1800)
PARTS = ("prompt_kv_time_byte_s", "output_kv_time_byte_s", "tool_wait_kv_time_byte_s")


@dataclass(frozen=True, eq=False)
class Held:
    """Attempts of the week with what each holds, and tool waits likewise."""

    attempts: pl.DataFrame
    waits: pl.DataFrame
    resident_tokens: Reals
    """Of each prompt, what was prefilled."""
    decode_s: Reals
    token_bytes: float

    @property
    def total_byte_s(self) -> float:
        """KV·time that an engine of today holds, byte·s."""
        return _sum(self.attempts, PARTS[0]) + _sum(self.attempts, PARTS[1])


def attribution_rows(workload: Workload, timeline: Timeline, replica: Replica) -> list[dict[str, Any]]:
    """Rows of plan_kv_attribution: dimension, name, KV·time and its share, parts, attempts, sessions."""
    held = held_by(workload, timeline, replica)
    if held.attempts.is_empty():
        return []
    provenance = MODELLED if timeline.is_modelled.any() else MEASURED
    rows = [*_parts(held), *_lengths(held), *_groups(held, "tenant"), *_groups(held, "model"), *_sessions(held)]
    rows = [{**row, "provenance": provenance} for row in rows]
    return rows + [{**row, "provenance": MODELLED} for row in (*_output_caps(held), *_wait_caps(held))]


def held_by(workload: Workload, timeline: Timeline, replica: Replica) -> Held:
    """What each attempt of the week and each tool wait holds; rows without a session are sessions of their own."""
    of_week = ~workload.is_carried
    decode_s = (timeline.end_us - timeline.first_us)[of_week] / SECOND_US
    prompt, output = timeline.prompt_tokens[of_week], timeline.output_tokens[of_week]
    prefill = prefill_kv_time(timeline, replica).linear_byte_s[of_week]
    bytes_each = float(replica.kv_token_bytes)
    attempts = workload.labels.select("model", "tenant", "session_id").filter(pl.Series(of_week)).with_columns(
        pl.Series("prompt_kv_time_byte_s", prefill + bytes_each * prompt * decode_s),
        pl.Series("output_kv_time_byte_s", bytes_each * output / 2 * decode_s),
        pl.Series("prompt_tokens", workload.prompt_tokens[of_week]),
        pl.Series("output_tokens", output),
    )  # fmt: skip
    waits = workload.tool_waits
    wait_s = (waits.end_us - waits.start_us) / SECOND_US
    pinned = waits.labels.select("model", "tenant", "session_id").with_columns(
        pl.Series("tool_wait_kv_time_byte_s", tool_wait_kv_time(waits, replica).linear_byte_s),
        pl.Series("wait_s", wait_s),
    )
    return Held(attempts, pinned, prompt, decode_s, bytes_each)


def _row(held: Held, dimension: str, name: str | None, kv_time_byte_s: float, **more: Any) -> dict[str, Any]:
    total = held.total_byte_s
    share = kv_time_byte_s / total if total > 0 else None
    return {"dimension": dimension, "name": name, "kv_time_byte_s": kv_time_byte_s, "share_ratio": share, **more}


def _parts(held: Held) -> list[dict[str, Any]]:
    """What prompts and outputs hold, and what tool waits would."""
    sums = {name: _sum(held.waits if name == PARTS[2] else held.attempts, name) for name in PARTS}
    return [_row(held, "part", name.removesuffix("_kv_time_byte_s"), value) for name, value in sums.items()]


def _lengths(held: Held) -> list[dict[str, Any]]:
    """Attempts with outputs or prompts longer than nine in ten, both, or neither."""
    attempts = held.attempts
    is_long = [
        attempts[name] > attempts[name].quantile(LONG_QUANTILE, "linear") for name in ("output_tokens", "prompt_tokens")
    ]
    long_output, long_prompt = is_long
    classes = {
        "long outputs": long_output & ~long_prompt,
        "long prompts": long_prompt & ~long_output,
        "both long": long_output & long_prompt,
        "neither": ~long_output & ~long_prompt,
    }
    return [_summed(held, "length", name, attempts.filter(chosen), None) for name, chosen in classes.items()]


def _groups(held: Held, key: str) -> list[dict[str, Any]]:
    """One row a tenant or model; NULL is those that the log does not name."""
    rows = []
    for name in held.attempts[key].unique().sort(nulls_last=True).to_list():
        is_it = pl.col(key).eq_missing(pl.lit(name, pl.String))
        rows.append(_summed(held, key, name, held.attempts.filter(is_it), held.waits.filter(is_it)))
    return rows


def _sessions(held: Held) -> list[dict[str, Any]]:
    """The sessions that hold most, and what shares of all sessions hold together."""
    sums = _by_session(held)
    totals = sums["kv_time_byte_s"].to_numpy()
    rows = []
    for ratio in TOP_RATIOS:
        count = max(1, round(ratio * len(totals)))
        top = sums.head(count)
        more: dict[str, Any] = {name: _sum(top, name) for name in PARTS}
        more |= {"attempts_requests": int(top["attempts_requests"].sum()), "held_sessions": count}
        rows.append(_row(held, "top_sessions", f"top {ratio:.0%}", float(totals[:count].sum()), **more))
    for row in sums.filter(pl.col("session_id").is_not_null()).head(TOP_SESSIONS).iter_rows(named=True):
        more = {name: row[name] for name in ("attempts_requests", *PARTS)}
        rows.append(_row(held, "session", row["session_id"], row["kv_time_byte_s"], held_sessions=1, **more))
    return rows


def _by_session(held: Held) -> pl.DataFrame:
    """One row a session, the largest holder first; each attempt without a session is one.

    Sums are of lists, whose order is that of the rows: sums of groups hang on how many threads share them out.
    """
    own = pl.col(PARTS[:2])
    in_session = pl.col("session_id").is_not_null()
    of_sessions = (
        held.attempts.filter(in_session)
        .group_by("session_id", maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("attempts_requests"), own)
        .with_columns(own.list.sum())
    )
    alone = held.attempts.filter(~in_session).select("session_id", pl.lit(1, pl.Int64).alias("attempts_requests"), own)
    sums = pl.concat([of_sessions, alone])
    waits = (
        held.waits.group_by("session_id", maintain_order=True).agg(PARTS[2]).with_columns(pl.col(PARTS[2]).list.sum())
    )
    return (
        sums.join(waits, on="session_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("tool_wait_kv_time_byte_s").fill_null(0.0),
            (pl.col("prompt_kv_time_byte_s") + pl.col("output_kv_time_byte_s")).alias("kv_time_byte_s"),
        )
        .sort("kv_time_byte_s", descending=True, maintain_order=True)
    )


def _output_caps(held: Held) -> list[dict[str, Any]]:
    """What ending every answer at so many tokens would free: its own tokens, and its prompt for the time saved."""
    output = held.attempts["output_tokens"].to_numpy()
    rows = []
    for cap in OUTPUT_CAPS_TOKENS:
        is_cut = output > cap
        kept_s = np.where(is_cut, held.decode_s * np.maximum(cap - 1, 0) / np.maximum(output - 1, 1), held.decode_s)
        prompt = held.resident_tokens * (held.decode_s - kept_s)
        own = output / 2 * held.decode_s - np.minimum(output, cap) / 2 * kept_s
        freed = held.token_bytes * (prompt + own)
        rows.append(_row(held, "output_cap", f"{cap} tokens", float(freed.sum()), attempts_requests=int(is_cut.sum())))
    return rows


def _wait_caps(held: Held) -> list[dict[str, Any]]:
    """What a kept context given up after so many seconds would free, of what keeping all through all waits holds."""
    wait_s, pinned = held.waits["wait_s"].to_numpy(), held.waits["tool_wait_kv_time_byte_s"].to_numpy()
    total, rows = float(pinned.sum()), []
    for cap in WAIT_CAPS_S if len(pinned) else ():
        is_cut = wait_s > cap
        freed = float((pinned[is_cut] * (1 - cap / wait_s[is_cut])).sum())
        row = _row(held, "tool_wait_cap", f"{cap} s", freed, attempts_requests=int(is_cut.sum()))
        rows.append({**row, "share_ratio": freed / total if total else None})
    return rows


def _summed(
    held: Held, dimension: str, name: str | None, attempts: pl.DataFrame, waits: pl.DataFrame | None
) -> dict[str, Any]:
    prompt, output = _sum(attempts, PARTS[0]), _sum(attempts, PARTS[1])
    sessions = attempts["session_id"].drop_nulls().n_unique() + attempts["session_id"].null_count()
    return _row(
        held, dimension, name, prompt + output,
        prompt_kv_time_byte_s=prompt, output_kv_time_byte_s=output,
        tool_wait_kv_time_byte_s=None if waits is None else _sum(waits, PARTS[2]),
        attempts_requests=attempts.height, held_sessions=sessions,
    )  # fmt: skip


def _sum(frame: pl.DataFrame, name: str) -> float:
    return float(frame[name].to_numpy().sum())
