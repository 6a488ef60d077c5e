"""KV·time of a week's attempts part by part, and its sums over classes of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import parts_of
from transforms.planner.residency.kv_time import SECOND_US, prefill_linear_byte_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import AnyTimeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Held:
    """What some attempts hold, one element each."""

    rows: Wholes
    """Their numbers among the attempts of the workload."""
    prompt_byte_s: Reals
    """By the prompt, while it is computed and while the answer is made."""
    output_byte_s: Reals
    """By the answer's own tokens."""
    resident_tokens: Reals
    """Of each prompt, what was prefilled."""
    output_tokens: Reals
    decode_s: Reals


@dataclass(frozen=True, eq=False)
class WeekHeld:
    """What the attempts of a week hold, made anew each time it is walked."""

    workload: Workload
    timeline: AnyTimeline
    """One element an attempt of the workload."""
    replica: Replica

    def parts(self) -> Iterator[Held]:
        """Attempts that arrived in the week, in order."""
        for part in parts_of(self.workload.rows):
            yield self.at(part.start + np.flatnonzero(~self.workload.is_carried[part]))

    def at(self, rows: Wholes) -> Held:
        """The attempts of `rows`."""
        timeline = self.timeline.at(rows)
        decode_s = (timeline.end_us - timeline.first_us) / SECOND_US
        bytes_each = float(self.replica.kv_token_bytes)
        return Held(
            rows=rows,
            prompt_byte_s=prefill_linear_byte_s(timeline, self.replica)
            + bytes_each * timeline.prompt_tokens * decode_s,
            output_byte_s=bytes_each * timeline.output_tokens / 2 * decode_s,
            resident_tokens=timeline.prompt_tokens,
            output_tokens=timeline.output_tokens,
            decode_s=decode_s,
        )


class ClassSums:
    """Sums over classes of attempts: those of a part at once, parts in order."""

    def __init__(self, classes: int) -> None:
        """Start with nothing in so many classes."""
        self.prompt_byte_s, self.output_byte_s = np.zeros(classes), np.zeros(classes)
        self.attempts = np.zeros(classes, dtype=np.int64)

    def add(self, held: Held, classes: NDArray[np.integer]) -> None:
        """Add attempts of these classes."""
        order = np.argsort(classes, kind="stable")
        found, starts = np.unique(classes[order], return_index=True)
        for number, (low, high) in zip(found.tolist(), pairwise([*starts.tolist(), len(order)]), strict=True):
            chosen = order[low:high]
            self.prompt_byte_s[number] += held.prompt_byte_s[chosen].sum()
            self.output_byte_s[number] += held.output_byte_s[chosen].sum()
            self.attempts[number] += high - low
