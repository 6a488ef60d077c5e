"""One replica of a simple engine: first come first served prefill in chunks, shared decode steps, one KV pool."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transforms.sample.services import Engine

BLOCK_TOKENS = 16
"""Cached prefixes are whole blocks (vLLM's default block)."""

ROUNDING_STEPS = 1e-6


class Work(NamedTuple):
    """One call as the engine sees it: its tokens, what of them may be cached, and the time spent on it beside steps."""

    call: int
    chain: int
    prompt: int
    output: int
    reuse: int
    shared: int
    beside_s: float


class Begun(NamedTuple):
    """The call being prefilled, how many tokens of it were cached, when it will be done, in how many steps."""

    work: Work
    cached: int
    done_s: float
    steps: int
    took_s: float


class Replica:
    """State of one replica at `at_s`. `advance` moves the clock; `settle` ends what is due and begins what fits."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.at_s = 0.0
        self.steps_done = 0.0
        self.steps_per_s = 0.0
        self.resident_tokens = 0.0
        self.used_tokens = 0
        self.queued_tokens = 0
        self.written_tokens = 0
        self.version = 0
        self.queue: deque[Work] = deque()
        self.decoding: list[tuple[float, int, Work]] = []
        self.begun: Begun | None = None
        self.last_written: dict[int, int] = {}
        read_s = 1 / (engine.bandwidth_bytes_per_s * engine.bandwidth_ratio)
        self.step_s = engine.weights_read_bytes * read_s + engine.step_overhead_s
        self.token_s = engine.kv_token_bytes * read_s
        flop_s = 1 / (engine.peak_flop_per_s * engine.compute_ratio)
        self.linear_s = 2 * engine.linear_params * flop_s
        self.attention_s = 4 * engine.layers * engine.query_heads * engine.head_dim * flop_s

    @property
    def load_tokens(self) -> int:
        """Tokens that are in the pool or wait for it."""
        return self.used_tokens + self.queued_tokens

    def advance(self, at_s: float) -> None:
        """Move to `at_s`; every decoding sequence makes the same number of steps meanwhile."""
        steps = self.steps_per_s * (at_s - self.at_s)
        self.steps_done += steps
        self.resident_tokens += steps * len(self.decoding)
        self.at_s = at_s

    def add(self, work: Work) -> None:
        """Queue `work`."""
        self.queue.append(work)
        self.queued_tokens += work.prompt + work.output

    def settle(self) -> tuple[Begun | None, list[Work]]:
        """The call whose first token is now out, and those that end now; new work begins where it fits."""
        first = None
        if self.begun is not None and self.begun.done_s <= self.at_s:
            first, self.begun = self.begun, None
            work = first.work
            heapq.heappush(self.decoding, (self.steps_done + work.output - 1, work.call, work))
        ended = []
        while self.decoding and self.decoding[0][0] <= self.steps_done + ROUNDING_STEPS:
            ended.append(self._end(heapq.heappop(self.decoding)[2]))
        if self.begun is None and self.queue and self._fits(self.queue[0]):
            self.begun = self._begin(self.queue.popleft())
        self.steps_per_s = self._pace()
        self.version += 1
        return first, ended

    def next_s(self) -> float:
        """When something will be due next, in s; infinite when nothing is under way."""
        due_s = self.begun.done_s if self.begun is not None else math.inf
        if self.decoding:
            left = self.decoding[0][0] - self.steps_done
            due_s = min(due_s, self.at_s + max(0.0, left) / self.steps_per_s)
        return due_s

    def _fits(self, work: Work) -> bool:
        is_room = self.used_tokens + work.prompt + work.output <= self.engine.pool_tokens
        return (is_room and len(self.decoding) < self.engine.max_num_seqs) or self.used_tokens == 0

    def _begin(self, work: Work) -> Begun:
        cached = self._cached(work)
        new = work.prompt - cached
        steps = math.ceil(new / (self.engine.max_num_batched_tokens - len(self.decoding)))
        compute_s = new * (self.linear_s + self.attention_s * (cached + new / 2))
        read_s = steps * (self.step_s + self.token_s * self.resident_tokens)
        took_s = max(compute_s + steps * self.engine.step_overhead_s, read_s) + work.beside_s
        self.queued_tokens -= work.prompt + work.output
        self.used_tokens += work.prompt + work.output
        self.resident_tokens += work.prompt
        self.written_tokens += new
        return Begun(work, cached, self.at_s + took_s, steps, took_s)

    def _cached(self, work: Work) -> int:
        """Tokens of the prompt still in the pool: the chain's last context, unless newer blocks pushed it out."""
        since = self.written_tokens - self.last_written.get(work.chain, -self.engine.pool_tokens)
        is_kept = since + work.reuse <= self.engine.pool_tokens - self.used_tokens
        known = max(work.reuse, work.shared) if is_kept else work.shared
        return min(known, work.prompt - 1) // BLOCK_TOKENS * BLOCK_TOKENS

    def _end(self, work: Work) -> Work:
        self.used_tokens -= work.prompt + work.output
        self.resident_tokens = max(0.0, self.resident_tokens - work.prompt - work.output)
        self.written_tokens += work.output
        self.last_written[work.chain] = self.written_tokens
        return work

    def _pace(self) -> float:
        """Decode steps a second: one a chunk while a prompt is worked on, else as fast as memory is read."""
        if self.begun is not None:
            return self.begun.steps / self.begun.took_s
        if not self.decoding:
            return 0.0
        overhead_s = len(self.decoding) * self.engine.sequence_overhead_s
        return 1 / (self.step_s + self.token_s * self.resident_tokens + overhead_s)
