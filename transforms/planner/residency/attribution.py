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
from transforms.planner.residency.held import ClassSums, WeekHeld
from transforms.planner.residency.holders import OWN, largest
from transforms.planner.residency.kv_time import SECOND_US, tool_wait_kv_time
from transforms.planner.residency.timeline import has_modelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from transforms.planner.residency.held import Held
    from transforms.planner.residency.timeline import AnyTimeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

TOP_RATIOS = (0.01, 0.05, 0.1)
TOP_SESSIONS = 20
LONG_QUANTILE = 0.9
OUTPUT_CAPS_TOKENS = (256, 512, 1024, 2048, 4096)
WAIT_CAPS_S = (10, 60, 300, 1800)
PARTS = (*OWN, "tool_wait_kv_time_byte_s")
LENGTHS = ("neither", "long outputs", "long prompts", "both long")
"""Classes of attempts: 1 is added for a long output, 2 for a long prompt."""
KEYS = ("tenant", "model")


@dataclass(frozen=True, eq=False)
class Classes:
    """A way to divide attempts: a name for each class, and the class of each attempt of the workload."""

    names: list[str | None]
    of_rows: NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Found:
    """Sums over the attempts of a week, and what its tool waits would hold."""

    workload: Workload
    by: dict[str, tuple[Classes, ClassSums]]
    """Dimension → its classes and their sums."""
    total: ClassSums
    freed_byte_s: Reals
    """By the caps of outputs, in their order."""
    cut: Wholes
    """Attempts each of them ends sooner."""
    waits: pl.DataFrame

    @property
    def total_byte_s(self) -> float:
        """KV·time that an engine of today holds, byte·s."""
        return float(self.total.prompt_byte_s[0]) + float(self.total.output_byte_s[0])


def attribution_rows(workload: Workload, timeline: AnyTimeline, replica: Replica) -> list[dict[str, Any]]:
    """Rows of plan_kv_attribution: dimension, name, KV·time and its share, parts, attempts, sessions.

    `timeline` has one element an attempt of `workload`; rows without a session are sessions of their own.
    """
    if workload.is_carried.all():
        return []
    held = WeekHeld(workload, timeline, replica)
    found = _found(held)
    provenance = MODELLED if has_modelled(timeline) else MEASURED
    rows = [*_parts(found), *_classes(found, "length"), *(row for key in KEYS for row in _classes(found, key))]
    rows = [{**row, "provenance": provenance} for row in (*rows, *_sessions(found, held))]
    return rows + [{**row, "provenance": MODELLED} for row in (*_output_caps(found), *_wait_caps(found))]


def _found(held: WeekHeld) -> Found:
    """Sums of the week, in one walk."""
    workload = held.workload
    divided = {"length": _by_length(workload), **{key: _by_label(workload, key) for key in KEYS}}
    by = {name: (classes, ClassSums(len(classes.names))) for name, classes in divided.items()}
    total, caps = ClassSums(1), len(OUTPUT_CAPS_TOKENS)
    freed, cut = np.zeros(caps), np.zeros(caps, dtype=np.int64)
    for part in held.parts():
        total.add(part, np.zeros(len(part.rows), dtype=np.int64))
        for classes, sums in by.values():
            sums.add(part, classes.of_rows[part.rows])
        for place, cap in enumerate(OUTPUT_CAPS_TOKENS):
            freed_byte_s, is_cut = _freed(part, cap, float(held.replica.kv_token_bytes))
            freed[place] += freed_byte_s
            cut[place] += is_cut
    return Found(workload, by, total, freed, cut, _pinned(workload, held.replica))


def _pinned(workload: Workload, replica: Replica) -> pl.DataFrame:
    """Tool waits with what contexts kept through them would hold."""
    waits = workload.tool_waits
    return waits.labels.select("model", "tenant", "session_id").with_columns(
        pl.Series("tool_wait_kv_time_byte_s", tool_wait_kv_time(waits, replica).linear_byte_s),
        pl.Series("wait_s", (waits.end_us - waits.start_us) / SECOND_US),
    )


def _by_length(workload: Workload) -> Classes:
    """Attempts with outputs or prompts longer than nine in ten, both, or neither."""
    classes = np.zeros(workload.rows, dtype=np.uint8)
    for place, name in enumerate(("output_tokens", "prompt_tokens")):
        tokens = workload.kept.columns[name]
        longest = pl.Series(tokens[~workload.is_carried]).quantile(LONG_QUANTILE, "linear")
        classes += (tokens > longest).astype(np.uint8) << place
    return Classes(list(LENGTHS), classes)


def _by_label(workload: Workload, key: str) -> Classes:
    """Attempts by tenant or model; NULL is those the log does not name; names that only tool waits have come last."""
    label = workload.labels[key]
    named = label.filter(~workload.is_carried).unique().to_frame()
    ordered = named.sort(pl.col(key).cast(pl.String), nulls_last=True)[key]
    known = ordered.drop_nulls().to_physical().to_numpy()
    nobody = int(label.drop_nulls().to_physical().to_numpy().max(initial=0)) + 1
    class_of = np.zeros(nobody + 1, dtype=np.min_scalar_type(len(ordered)))
    class_of[known] = np.arange(len(known))
    class_of[nobody] = len(known)
    names: list[str | None] = ordered.cast(pl.String).to_list()
    waiting = workload.tool_waits.labels[key].cast(pl.String).unique().sort(nulls_last=False)
    names += [name for name in waiting if name not in names]
    return Classes(names, class_of[label.to_physical().fill_null(nobody).to_numpy()])


def _row(found: Found, dimension: str, name: str | None, kv_time_byte_s: float, **more: Any) -> dict[str, Any]:
    total = found.total_byte_s
    share = kv_time_byte_s / total if total > 0 else None
    return {"dimension": dimension, "name": name, "kv_time_byte_s": kv_time_byte_s, "share_ratio": share, **more}


def _parts(found: Found) -> list[dict[str, Any]]:
    """What prompts and outputs hold, and what tool waits would."""
    total = found.total
    sums = (float(total.prompt_byte_s[0]), float(total.output_byte_s[0]), _sum(found.waits, PARTS[2]))
    names = [name.removesuffix("_kv_time_byte_s") for name in PARTS]
    return [_row(found, "part", name, value) for name, value in zip(names, sums, strict=True)]


def _classes(found: Found, dimension: str) -> Iterator[dict[str, Any]]:
    """One row a class."""
    classes, sums = found.by[dimension]
    sessions = _session_counts(found.workload, classes)
    for place, name in enumerate(classes.names):
        prompt, output = float(sums.prompt_byte_s[place]), float(sums.output_byte_s[place])
        waits = None
        if dimension in KEYS:
            waits = _sum(found.waits.filter(pl.col(dimension).eq_missing(pl.lit(name, pl.String))), PARTS[2])
        yield _row(
            found, dimension, name, prompt + output,
            prompt_kv_time_byte_s=prompt, output_kv_time_byte_s=output, tool_wait_kv_time_byte_s=waits,
            attempts_requests=int(sums.attempts[place]), held_sessions=int(sessions[place]),
        )  # fmt: skip


def _session_counts(workload: Workload, classes: Classes) -> Wholes:
    """Sessions of each class; each attempt without one counts as one."""
    is_of_week, session = ~workload.is_carried, workload.labels["session_id"]
    is_alone = session.is_null().to_numpy()
    counts = np.bincount(classes.of_rows[is_of_week & is_alone], minlength=len(classes.names))
    rows = np.flatnonzero(is_of_week & ~is_alone)
    if len(rows):
        pairs = pl.DataFrame({"class": classes.of_rows[rows], "session": session[rows].to_physical()}).unique()
        counts = counts + np.bincount(pairs["class"].to_numpy(), minlength=len(classes.names))
    return counts


def _sessions(found: Found, held: WeekHeld) -> list[dict[str, Any]]:
    """The sessions that hold most, and what shares of all sessions hold together."""
    sessions = int(_session_counts(found.workload, Classes([None], np.zeros(found.workload.rows, dtype=np.uint8)))[0])
    wanted = {ratio: max(1, round(ratio * sessions)) for ratio in TOP_RATIOS}
    everyone, named = (_with_waits(top, found.waits) for top in largest(held, max(wanted.values()), TOP_SESSIONS))
    totals, rows = everyone["kv_time_byte_s"].to_numpy(), []
    for ratio, count in wanted.items():
        top = everyone.head(count)
        more: dict[str, Any] = {name: _sum(top, name) for name in PARTS}
        more |= {"attempts_requests": int(top["attempts_requests"].sum()), "held_sessions": count}
        rows.append(_row(found, "top_sessions", f"top {ratio:.0%}", float(totals[:count].sum()), **more))
    for row in named.iter_rows(named=True):
        more = {name: row[name] for name in ("attempts_requests", *PARTS)}
        rows.append(_row(found, "session", row["session_id"], row["kv_time_byte_s"], held_sessions=1, **more))
    return rows


def _with_waits(holding: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Sessions with what contexts kept through their tool waits would hold; summed as lists, see `holders`."""
    summed = waits.group_by("session_id", maintain_order=True).agg(PARTS[2]).with_columns(pl.col(PARTS[2]).list.sum())
    return holding.join(
        summed.with_columns(pl.col("session_id").cast(pl.Categorical)),
        on="session_id",
        how="left",
        maintain_order="left",
    ).with_columns(pl.col(PARTS[2]).fill_null(0.0))


def _freed(held: Held, cap: int, token_bytes: float) -> tuple[float, int]:
    """What ending every answer at `cap` tokens would free (its own tokens, its prompt for the time saved); how many."""
    output = held.output_tokens
    is_cut = output > cap
    kept_s = np.where(is_cut, held.decode_s * np.maximum(cap - 1, 0) / np.maximum(output - 1, 1), held.decode_s)
    prompt = held.resident_tokens * (held.decode_s - kept_s)
    own = output / 2 * held.decode_s - np.minimum(output, cap) / 2 * kept_s
    return float((token_bytes * (prompt + own)).sum()), int(is_cut.sum())


def _output_caps(found: Found) -> list[dict[str, Any]]:
    """What ending every answer at so many tokens would free."""
    caps = zip(OUTPUT_CAPS_TOKENS, found.freed_byte_s.tolist(), found.cut.tolist(), strict=True)
    return [_row(found, "output_cap", f"{cap} tokens", freed, attempts_requests=cut) for cap, freed, cut in caps]


def _wait_caps(found: Found) -> list[dict[str, Any]]:
    """What a kept context given up after so many seconds would free, of what keeping all through all waits holds."""
    wait_s, pinned = found.waits["wait_s"].to_numpy(), found.waits["tool_wait_kv_time_byte_s"].to_numpy()
    total, rows = float(pinned.sum()), []
    for cap in WAIT_CAPS_S if len(pinned) else ():
        is_cut = wait_s > cap
        freed = float((pinned[is_cut] * (1 - cap / wait_s[is_cut])).sum())
        row = _row(found, "tool_wait_cap", f"{cap} s", freed, attempts_requests=int(is_cut.sum()))
        rows.append({**row, "share_ratio": freed / total if total else None})
    return rows


def _sum(frame: pl.DataFrame, name: str) -> float:
    return float(frame[name].to_numpy().sum())
