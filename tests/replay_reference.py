"""The replay's engine model, one step at a time in plain Python: slow, walks every list, meant to be read.

Shares nothing with the kernel but the types that go in. `Reference(trace, settings, costs).run()` fills `requests`.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.planner.replay.replay_types import (
    NO_LIMIT,
    Caching,
    RequestedRule,
    Router,
    Settings,
    Status,
    TraceColumns,
)
from transforms.planner.replay.step_costs import StepCosts

if TYPE_CHECKING:
    from collections.abc import Sequence

nan = math.nan


@dataclass
class Request:
    number: int
    prompt: int
    output: int
    arrived: float = nan
    scheduled: float = nan
    first_token: float = nan
    end: float = nan
    status: Status = Status.IN_FLIGHT
    replica: int = -1
    preemptions: int = 0
    cached: int = 0
    made: int = 0
    kv_token_s: float = 0.0
    kv_unit_s: float = 0.0
    kv_shared_unit_s: float = 0.0
    # while running
    target: int = 0
    tokens: int = 0  # with a KV slot
    chunk: int = 0
    own_units: int = 0  # blocks nobody else refers to
    shared_units: int = 0
    ids: list[int] = field(default_factory=list)  # prefix blocks it refers to, in order
    seen_ids: int = 0
    may_pin: bool = False


@dataclass
class Pin:
    """What a request left for the turn after its tools."""

    owner: int
    replica: int
    units: int
    ids: list[int]  # prefix blocks referenced
    names: list[int]  # prefix blocks whose tokens are there
    tokens: int
    since: float
    until: float


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.low = 0.0

    def add(self, seconds: float) -> None:
        value = seconds + self.low
        total = self.now + value
        self.low = value - (total - self.now)
        self.now = total


class Engine:
    """One replica."""

    def __init__(self, units: int) -> None:
        self.clock = Clock()
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.lagging: list[list[Request]] = [[], []]  # ended in the last step, in the one before
        self.free = units  # evictable blocks included
        self.references: dict[int, int] = {}  # prefix block -> requests that refer to it
        self.evictable: OrderedDict[int, int] = OrderedDict()  # prefix block or session -> units, oldest first
        self.fraction = 0.0
        self.decided = 0.0  # when the coming step was decided, if the engine has not been idle since
        self.is_back_to_back = False
        self.awaiting: list[Pin] = []  # pins whose turn is not back yet, oldest first
        self.claimed: list[Pin] = []  # pins whose turn waits here
        self.link = 0.0  # when it is free

    @property
    def pins(self) -> list[Pin]:
        return self.awaiting + self.claimed

    @property
    def seats(self) -> int:
        return len(self.running) + sum(map(len, self.lagging))

    @property
    def is_busy(self) -> bool:
        return self.seats + len(self.waiting) > 0


class Reference:
    def __init__(
        self,
        trace: TraceColumns,
        settings: Settings,
        costs: StepCosts,
        switches: Sequence[tuple[float, int, bool]] = (),
    ) -> None:
        """`switches` say from when on a replica takes arrivals, or no longer does."""
        self.switches = switches
        self.trace, self.settings, self.costs = trace, settings, costs
        limit = settings.max_model_len
        self.requests = [
            Request(i, int(p), max(1, min(int(o), limit - int(p))))
            for i, (p, o) in enumerate(zip(trace.prompt_tokens, trace.output_tokens, strict=True))
        ]
        self.engines = [Engine(settings.pool.units) for _ in range(settings.replicas)]
        self.events: list[tuple[float, int]] = []
        self.turn = 0
        self.homes: dict[int, int] = {}
        self.steps = 0
        self.spans: list[tuple[int, float, float, int, int, int]] = []  # replica, from, to, running, waiting, used
        self.next_in_loop = 0
        self.pinned_unit_s = [0.0] * trace.rows
        self.turns_after_tools = {int(trace.parent[i]): i for i in range(trace.rows) if self.is_tool_wait(i)}
        self.copies: dict[int, Pin] = {}  # owner -> what is in the host's memory
        self.loading: dict[int, float] = {}  # turn -> seconds on its way back
        self.loaded: dict[int, Pin] = {}  # turn -> copy that is back
        pool = settings.pool
        sizes = [b for b, most in zip(pool.block_tokens, pool.max_blocks, strict=True) if most >= NO_LIMIT]
        self.hit_tokens = math.lcm(*sizes) if sizes else 1

    # --- tool waits

    def is_tool_wait(self, number: int) -> bool:
        settings = self.settings
        has_policy = settings.pin_s > 0 or settings.offload_s_per_unit > 0
        if not has_policy or settings.caching == Caching.OFF or not len(self.trace.is_tool_wait):
            return False
        return bool(self.trace.is_tool_wait[number])

    def pin_of(self, request: Request) -> Pin | None:
        """What is pinned for this turn."""
        return next(
            (p for e in self.engines for p in e.pins if self.turns_after_tools[p.owner] == request.number), None
        )

    def pin(self, request: Request, units: int, tokens: int = 0) -> None:
        engine, settings = self.engines[request.replica], self.settings
        now, names = engine.clock.now, self.ids_of(request)[: request.seen_ids] if request.ids else []
        pin = Pin(request.number, request.replica, units, request.ids, names, tokens, now, now + settings.pin_s)
        request.ids = []
        turn = self.requests[self.turns_after_tools[request.number]]
        if not math.isnan(turn.arrived):
            engine.claimed.append(pin)
            return
        if settings.offload_s_per_unit:
            pin.until = engine.link = max(engine.link, now) + units * settings.offload_s_per_unit
            self.copies[request.number] = pin
        engine.awaiting.append(pin)

    def unpin(self, pin: Pin) -> None:
        engine = self.engines[pin.replica]
        (engine.awaiting if pin in engine.awaiting else engine.claimed).remove(pin)
        self.pinned_unit_s[pin.owner] += pin.units * (engine.clock.now - pin.since)
        if engine.clock.now < pin.until:
            self.copies.pop(pin.owner, None)
        if self.settings.caching == Caching.SESSION:
            engine.evictable[int(self.trace.session[pin.owner])] = pin.units
            engine.free += pin.units
        self.dereference(engine, pin.ids)

    def rest(self, replica: int, at: float) -> None:
        """Let an engine without requests but with pins pass the time until `at`."""
        engine = self.engines[replica]
        while engine.pins and not engine.is_busy and engine.clock.now < at:
            until = max(engine.awaiting[0].until, engine.clock.now) if engine.awaiting else at
            used = self.settings.pool.units - engine.free
            self.spans.append((replica, engine.clock.now, min(until, at), 0, 0, used))
            engine.clock.now, engine.clock.low = min(until, at), 0.0
            self.unpin_expired(engine)

    def unpin_expired(self, engine: Engine) -> None:
        while engine.awaiting and engine.awaiting[0].until <= engine.clock.now:
            self.unpin(engine.awaiting[0])

    def abandon(self, request: Request, at: float) -> None:
        pin = self.pin_of(request)
        if pin is not None:
            self.rest(pin.replica, at)
        pin = self.pin_of(request)
        if pin is not None:
            self.unpin(pin)
        if self.is_tool_wait(request.number):
            self.copies.pop(int(self.trace.parent[request.number]), None)

    def claim(self, request: Request, replica: int, at: float) -> None:
        self.rest(replica, at)
        pin, engine = self.pin_of(request), self.engines[replica]
        if pin is not None and pin.replica != replica:
            self.abandon(request, at)
        elif pin is not None and pin in engine.awaiting and at < pin.until:
            engine.awaiting.remove(pin)
            engine.claimed.append(pin)

    def must_load(self, request: Request, replica: int, at: float) -> bool:
        """Whether the turn's KV has first to come back from the host; an event then brings it here again."""
        if not self.is_tool_wait(request.number) or self.pin_of(request) is not None:
            return False
        copy, engine = self.copies.get(int(self.trace.parent[request.number])), self.engines[replica]
        if copy is None or copy.replica != replica:
            return False
        here, _ = self.found(engine, request, request.prompt)
        self.loaded[request.number] = copy
        whole, _ = self.found(engine, request, request.prompt)
        if whole <= here:
            return False
        units = (whole - here) // self.hit_tokens * self.shared_units(self.hit_tokens)
        engine.link = max(engine.link, at) + units * self.settings.offload_s_per_unit
        self.loading[request.number] = engine.link - at
        heapq.heappush(self.events, (engine.link, request.number))
        return True

    # --- memory

    def units(self, tokens: int) -> int:
        pool = self.settings.pool
        return pool.fixed_units + sum(
            min(math.ceil(tokens / block), most) * each
            for block, most, each in zip(pool.block_tokens, pool.max_blocks, pool.units_per_block, strict=True)
        )

    def shared_units(self, tokens: int) -> int:
        """Units of whole blocks that a cache can hold."""
        pool = self.settings.pool
        return sum(
            tokens // block * each
            for block, most, each in zip(pool.block_tokens, pool.max_blocks, pool.units_per_block, strict=True)
            if most >= NO_LIMIT
        )

    def slots(self, tokens: int) -> int:
        return self.units(tokens + self.settings.speculative_tokens)

    def take(self, engine: Engine, units: int) -> None:
        engine.free -= units
        while sum(engine.evictable.values()) > engine.free:
            name, held = next(iter(engine.evictable.items()))
            if self.settings.caching == Caching.SESSION:
                block = self.shared_units(self.hit_tokens)
                lacking = sum(engine.evictable.values()) - engine.free
                left = held - math.ceil(lacking / block) * block
                if left > 0:
                    engine.evictable[name] = left
                    continue
            del engine.evictable[name]
            engine.references.pop(name, None)

    def ids_of(self, request: Request) -> list[int]:
        start, end = self.trace.block_offsets[request.number], self.trace.block_offsets[request.number + 1]
        return [int(i) for i in self.trace.block_ids[start:end]]

    def found(self, engine: Engine, request: Request, total: int) -> tuple[int, list[int]]:
        """(cached tokens, ids) of the first `total` tokens."""
        most = (total - 1) // self.hit_tokens * self.hit_tokens
        if self.settings.caching == Caching.SESSION:
            session = int(self.trace.session[request.number])
            units = engine.evictable.get(session, 0) if session >= 0 else 0
            units += sum(pin.units for pin in engine.pins if self.trace.session[pin.owner] == session)
            tokens = units // self.shared_units(self.hit_tokens) * self.hit_tokens if units else 0
            if request.number in self.loaded:
                tokens = max(tokens, self.loaded[request.number].tokens)
            if len(self.trace.shared_tokens) and request.preemptions == 0:
                tokens = min(tokens, int(self.trace.shared_tokens[request.number]) // self.hit_tokens * self.hit_tokens)
            return min(tokens, most), []
        if self.settings.caching == Caching.OFF:
            return 0, []
        hit: list[int] = []
        copy = self.loaded[request.number].names if request.number in self.loaded else []
        common = 0
        for name, other in zip(self.ids_of(request), copy, strict=False):
            if name != other:
                break
            common += 1
        for name in self.ids_of(request):
            if (name not in engine.references and len(hit) >= common) or len(
                hit
            ) * self.settings.prefix_block_tokens >= most:
                break
            hit.append(name)
        return min(len(hit) * self.settings.prefix_block_tokens, most), hit

    def keep(self, engine: Engine, request: Request) -> None:
        """Prefix blocks that are filled now can be found by others."""
        if self.settings.caching != Caching.BLOCK_IDS:
            return
        size = self.settings.prefix_block_tokens
        names = self.ids_of(request)
        while request.seen_ids < len(names) and (request.seen_ids + 1) * size <= request.tokens:
            name = names[request.seen_ids]
            if name not in engine.references:
                engine.references[name] = 1
                request.ids.append(name)
                request.shared_units += self.shared_units(size)
                request.own_units -= self.shared_units(size)
            request.seen_ids += 1

    def give_back(self, engine: Engine, request: Request) -> None:
        engine.free += request.own_units
        is_pinning = request.may_pin and self.is_awaited(request)
        request.may_pin = False
        if self.settings.caching == Caching.SESSION:
            session = int(self.trace.session[request.number])
            if session >= 0:
                for pin in [p for p in engine.pins if self.trace.session[p.owner] == session]:
                    self.unpin(pin)
                engine.evictable.pop(session, None)
                tokens = request.tokens // self.hit_tokens * self.hit_tokens
                left = self.shared_units(tokens)
                if left > 0 and is_pinning:
                    engine.free -= left
                    self.pin(request, left, tokens)
                elif left > 0:
                    engine.evictable[session] = left
        elif is_pinning and request.ids:
            units = len(request.ids) * self.shared_units(self.settings.prefix_block_tokens)
            self.pin(request, units)
        self.dereference(engine, request.ids)
        request.own_units = request.shared_units = request.tokens = request.seen_ids = 0
        request.ids = []

    def is_awaited(self, request: Request) -> bool:
        turn = self.requests[self.turns_after_tools[request.number]]
        is_elsewhere = not math.isnan(turn.arrived) and turn.replica != request.replica
        return turn.status == Status.IN_FLIGHT and math.isnan(turn.scheduled) and not is_elsewhere

    def dereference(self, engine: Engine, ids: list[int]) -> None:
        for name in reversed(ids):
            engine.references[name] -= 1
            if engine.references[name] == 0:
                held = self.shared_units(self.settings.prefix_block_tokens)
                engine.evictable[name] = held
                engine.free += held

    # --- one step

    def step(self, replica: int) -> None:
        engine = self.engines[replica]
        for request in engine.lagging[1]:
            self.give_back(engine, request)
        engine.lagging = [[], engine.lagging[0]]
        self.drop_timed_out(engine)
        self.unpin_expired(engine)
        if not engine.is_back_to_back:
            engine.decided = engine.clock.now
        preempted, scheduled = self.schedule_running(engine)
        if not preempted:
            scheduled += self.admit(engine, self.left)
        if scheduled:
            self.take_time(replica, scheduled)
        if not engine.running and (not engine.waiting or not scheduled):
            for request in [*engine.lagging[1], *engine.lagging[0]]:
                self.give_back(engine, request)
            engine.lagging = [[], []]
            engine.is_back_to_back = False

    def drop_timed_out(self, engine: Engine) -> None:
        now = engine.clock.now
        for request in [*engine.running, *engine.waiting]:
            if now >= request.arrived + self.settings.timeout_s:
                if request in engine.running:
                    engine.running.remove(request)
                    self.give_back(engine, request)
                else:
                    engine.waiting.remove(request)
                self.ended(request, Status.TIMED_OUT, now)

    def schedule_running(self, engine: Engine) -> tuple[bool, list[Request]]:
        settings = self.settings
        each = 1 + settings.speculative_tokens
        is_lone = settings.lone_request_exempt and engine.seats + len(engine.waiting) <= 1
        threshold = settings.long_prefill_token_threshold
        self.cap = threshold if threshold and not is_lone else NO_LIMIT
        decoding = [r for r in engine.running if r.tokens >= r.target]
        # with drafts, decoding sequences have their tokens before any prompt does
        budget = settings.max_num_batched_tokens - (len(decoding) * each if each > 1 else 0)
        preempted, scheduled, at = False, [], 0
        while at < len(engine.running):
            request = engine.running[at]
            if request.tokens >= request.target:
                assert budget >= (1 if each == 1 else 0), "a decoding request would starve"
                chunk, cost = 1, (1 if each == 1 else 0)
            else:
                chunk = cost = min(request.target - request.tokens, self.cap, budget)
            request.chunk = chunk
            need = self.slots(request.tokens + chunk) - request.own_units - request.shared_units if chunk else 0
            while need > engine.free and engine.pins:
                self.unpin(engine.pins[0])
            while need > engine.free:
                preempted = True
                last = engine.running.pop()
                last.preemptions += 1
                self.give_back(engine, last)
                engine.waiting.insert(0, last)
                if last is request:
                    break
            if request not in engine.running:
                break
            self.take(engine, need)
            request.own_units += need
            budget -= cost
            if chunk:
                scheduled.append(request)
            at += 1
        self.left = budget
        for request in scheduled:
            request.tokens += request.chunk
            if request.tokens <= request.target:
                self.keep(engine, request)
        return preempted, scheduled

    def admit(self, engine: Engine, budget: int) -> list[Request]:
        settings, admitted = self.settings, []
        while engine.waiting and budget > 0 and engine.seats < settings.max_num_seqs:
            request = engine.waiting[0]
            if settings.async_lag_steps and request.arrived > engine.decided:
                break
            total = request.prompt + request.made
            hit, ids = self.found(engine, request, total)
            chunk = min(total - hit, self.cap, budget)
            shared = self.shared_units(hit) if ids else 0
            own = self.pins_of_session(engine, request)
            idle = self.idle_units(engine, ids) - sum(pin.units for pin in own)
            need = self.slots(hit + chunk)
            most = max(need, self.units(total)) if settings.reserve_full_prompt else need
            spare = int(settings.watermark * settings.pool.units) if engine.seats else 0
            if most - shared + idle > engine.free - spare:
                if engine.seats or not engine.pins:
                    break
                self.unpin(engine.pins[0])
                continue
            engine.running.append(engine.waiting.pop(0))
            if math.isnan(request.scheduled):
                request.scheduled = engine.decided if settings.async_lag_steps else engine.clock.now
                request.cached = hit
            request.target, request.tokens, request.chunk = total, hit + chunk, chunk
            request.ids, request.seen_ids = list(ids), len(ids)
            request.shared_units, request.own_units = shared, need - shared
            for pin in own:
                self.unpin(pin)
            self.refer(engine, request, ids)
            self.take(engine, need - shared)
            self.keep(engine, request)
            budget -= chunk
            admitted.append(request)
        return admitted

    def pins_of_session(self, engine: Engine, request: Request) -> list[Pin]:
        if self.settings.caching != Caching.SESSION:
            return []
        session = self.trace.session[request.number]
        return [pin for pin in engine.pins if self.trace.session[pin.owner] == session]

    def saved_units(self, engine: Engine, request: Request) -> float:
        """What counting each prefix block it refers to 1/n, where n do, takes off its units."""
        parts = [1 - 1 / engine.references[name] for name in request.ids]
        return sum(parts) * self.shared_units(self.settings.prefix_block_tokens) if parts else 0.0

    def idle_units(self, engine: Engine, ids: list[int]) -> int:
        """Units of the prefix that nobody refers to: evictable, or only in the host's memory."""
        names = [name for name in ids if name in engine.evictable or name not in engine.references]
        return len(names) * self.shared_units(self.settings.prefix_block_tokens or 1)

    def refer(self, engine: Engine, request: Request, ids: list[int]) -> None:
        if self.settings.caching == Caching.SESSION:
            engine.evictable.pop(int(self.trace.session[request.number]), None)
        for name in ids:
            if name not in engine.references:
                engine.free -= self.shared_units(self.settings.prefix_block_tokens)
            engine.references[name] = engine.references.get(name, 0) + 1
            if name in engine.evictable:
                engine.free -= engine.evictable.pop(name)
        self.loaded.pop(request.number, None)
        mine = self.pin_of(request)
        if mine is not None:
            self.unpin(mine)

    def seconds(self, scheduled: list[Request]) -> float:
        costs, each = self.costs, 1 + self.settings.speculative_tokens
        tokens = sampled = context = decoding = prefilled = 0
        pairs = 0.0
        for request in scheduled:
            context += request.tokens
            if request.tokens > request.target:
                decoding += 1
                tokens += each
                sampled += each
                pairs += sum(request.tokens + draft for draft in range(each))
            else:
                tokens += request.chunk
                prefilled += request.tokens
                sampled += request.tokens == request.target
                pairs += costs.prefill_pair_ratio * sum(range(request.tokens - request.chunk + 1, request.tokens + 1))
        mixed = context - prefilled if prefilled else 0
        compute = costs.token_compute_s * tokens + costs.sampled_compute_s * sampled + costs.pair_compute_s * pairs
        memory = costs.weight_memory_s + costs.context_memory_s * context + costs.sequence_memory_s * decoding
        if costs.experts:
            touched = costs.experts * (1 - (1 - costs.experts_per_token / costs.experts) ** tokens)
            memory += costs.expert_memory_s * touched
        rest = costs.step_s + costs.sequence_s * decoding + costs.token_s * tokens + costs.mixed_context_s * mixed
        return max(compute, memory) + rest

    def take_time(self, replica: int, scheduled: list[Request]) -> None:
        engine, settings = self.engines[replica], self.settings
        seconds = self.seconds(scheduled)
        self.steps += 1
        for request in [*engine.running, *engine.lagging[0], *engine.lagging[1]]:
            request.kv_token_s += request.tokens * seconds
            request.kv_unit_s += (request.own_units + request.shared_units) * seconds
            counted = request.own_units + request.shared_units - self.saved_units(engine, request)
            request.kv_shared_unit_s += counted * seconds
        start, used = engine.clock.now, settings.pool.units - engine.free
        seats, waiting = engine.seats, len(engine.waiting)
        engine.decided, engine.is_back_to_back = start, True
        engine.clock.add(seconds)
        self.spans.append((replica, start, engine.clock.now, seats, waiting, used))
        gained = 1
        if settings.speculative_tokens:
            engine.fraction += settings.speculative_tokens * settings.acceptance_ratio
            gained += int(engine.fraction)
            engine.fraction -= int(engine.fraction)
        ends, later_ends = [], []
        for request in scheduled:
            if request.tokens < request.target:
                continue
            if request.tokens == request.target:
                request.made += 1
                if math.isnan(request.first_token):
                    request.first_token = engine.clock.now
                if request.made >= request.output:
                    ends.append(request)
            else:
                request.tokens += gained - 1
                request.made += gained
                if request.made >= request.output:
                    later_ends.append(request)
        # of drafts accepted together, those that went further beyond the end had ended first
        for request in [*ends, *sorted(later_ends, key=lambda r: (r.output - r.made, r.number))]:
            self.complete(engine, request)

    def complete(self, engine: Engine, request: Request) -> None:
        now = engine.clock.now
        request.made = request.output
        is_late = now > request.arrived + self.settings.timeout_s
        is_followed = not is_late or not self.settings.failure_ends_session
        request.may_pin = is_followed and request.number in self.turns_after_tools
        engine.running.remove(request)
        if self.settings.async_lag_steps:
            engine.lagging[0].append(request)
        else:
            self.give_back(engine, request)
        self.ended(request, Status.TIMED_OUT if is_late else Status.COMPLETED, now)

    # --- arrivals

    def children(self, request: Request, from_start: bool) -> list[int]:
        trace = self.trace
        return [
            i
            for i in range(len(trace.parent))
            if trace.parent[i] == request.number and bool(trace.from_start[i]) == from_start
        ]

    def follow(self, request: Request, at: float, from_start: bool) -> None:
        for child in self.children(request, from_start):
            heapq.heappush(self.events, (at + float(self.trace.delay_s[child]), child))

    def forget(self, request: Request, kinds: tuple[bool, ...]) -> None:
        for from_start in kinds:
            for child in self.children(request, from_start):
                self.requests[child].status = Status.NOT_SENT
                self.forget(self.requests[child], (False, True))

    def ended(self, request: Request, status: Status, at: float) -> None:
        request.status, request.end = status, at
        if status != Status.COMPLETED:
            self.abandon(request, at)
        if self.settings.closed_loop_requests:
            if self.next_in_loop < len(self.requests):
                heapq.heappush(self.events, (at, self.next_in_loop))
                self.next_in_loop += 1
        elif status == Status.COMPLETED or not self.settings.failure_ends_session:
            self.follow(request, at, from_start=False)
        else:
            self.forget(request, (False,))

    def refuse(self, request: Request, status: Status, at: float) -> None:
        if self.settings.failure_ends_session:
            self.forget(request, (True,))
        elif not self.settings.closed_loop_requests:
            self.follow(request, at, from_start=True)
        self.ended(request, status, at)

    def outstanding(self, replica: int, at: float) -> int:
        return sum(
            r.replica == replica and r.status not in REFUSED and not (r.status != Status.IN_FLIGHT and r.end <= at)
            for r in self.requests
        )

    def on_at(self, at: float) -> list[int]:
        """Replicas that take arrivals at a moment."""
        is_on = dict.fromkeys(range(self.settings.replicas), True)
        is_on.update({replica: flag for since, replica, flag in self.switches if since <= at})
        return [replica for replica, flag in is_on.items() if flag]

    def route(self, request: Request, at: float) -> int:
        settings, count = self.settings, self.settings.replicas
        on = self.on_at(at)
        loads = [self.outstanding(replica, at) for replica in range(count)]
        if settings.router == Router.ROUND_ROBIN:
            number = min(on, key=lambda i: (i - self.turn) % count)
            self.turn = number + 1
            return number
        if settings.router == Router.RANDOM:
            return on[splitmix(settings.seed, request.number) % len(on)]
        session = int(self.trace.session[request.number]) if len(self.trace.session) else -1
        if settings.router == Router.SESSION_AFFINITY and self.homes.get(session) in on:
            return self.homes[session]
        turn = 0 if settings.caching == Caching.OFF else self.turn
        least = min(on, key=lambda i: (loads[i], (i - turn) % count))
        self.turn = least + 1
        if settings.router == Router.SESSION_AFFINITY and session >= 0:
            self.homes[session] = least
        if settings.router == Router.PREFIX_AFFINITY and settings.caching != Caching.OFF:
            hits = [self.found(engine, request, request.prompt)[0] for engine in self.engines]
            best = min(on, key=lambda i: (-hits[i], loads[i], i != least, i))
            return best if loads[best] <= loads[least] + settings.affinity_slack_requests else least
        return least

    def arrive(self, number: int, at: float) -> None:
        settings, request = self.settings, self.requests[number]
        request.arrived = at
        if number in self.loading:
            return self.join(request, self.loaded[number].replica, at)
        requested = int(self.trace.requested_tokens[number]) if len(self.trace.requested_tokens) else -1
        if request.prompt >= settings.max_model_len:
            return self.refuse(request, Status.PROMPT_TOO_LONG, at)
        if settings.requested_rule == RequestedRule.REJECT and request.prompt + requested > settings.max_model_len:
            return self.refuse(request, Status.REQUESTED_TOO_LONG, at)
        if self.slots(request.prompt + request.output - 1) > settings.pool.units:
            return self.refuse(request, Status.LARGER_THAN_POOL, at)
        replica = self.route(request, at)
        self.claim(request, replica, at)
        if self.must_load(request, replica, at):
            return None
        return self.join(request, replica, at)

    def join(self, request: Request, replica: int, at: float) -> None:
        settings, request.replica = self.settings, replica
        engine = self.engines[replica]
        self.rest(replica, at)
        if len(engine.waiting) + 1 > settings.max_num_queued_reqs:
            return self.refuse(request, Status.QUEUE_FULL_REQUESTS, at)
        queued = sum(r.prompt + r.made for r in engine.waiting)
        if queued + request.prompt > settings.max_num_queued_tokens:
            return self.refuse(request, Status.QUEUE_FULL_TOKENS, at)
        if not engine.is_busy and engine.clock.now < at:
            engine.clock.now, engine.clock.low = at, 0.0
        engine.waiting.append(request)
        if len(self.trace.parent):
            self.follow(request, at, from_start=True)
        return None

    def run(self) -> Reference:
        trace = self.trace
        if self.settings.closed_loop_requests:
            self.next_in_loop = min(self.settings.closed_loop_requests, len(self.requests))
            self.events = [(0.0, i) for i in range(self.next_in_loop)]
        else:
            caused = trace.parent if len(trace.parent) else [-1] * trace.rows
            self.events = [(float(trace.arrived_s[i]), i) for i in range(trace.rows) if caused[i] < 0]
        heapq.heapify(self.events)
        while True:
            at = self.events[0][0] if self.events else math.inf
            busy = [(e.clock.now, i) for i, e in enumerate(self.engines) if e.is_busy]
            if busy and min(busy)[0] < at:
                self.step(min(busy)[1])
            elif self.events:
                _, number = heapq.heappop(self.events)
                self.arrive(number, at)
            else:
                for number, seconds in self.loading.items():
                    self.requests[number].arrived -= seconds
                return self

    def sampled(self, second: int, start: float) -> tuple[int, int, int]:
        """(running, waiting, used) of all replicas at the end of a second."""
        at, totals = start + second, [0, 0, 0]
        for replica, begin, end, seats, waiting, used in self.spans:
            if begin <= at < end:
                arrived = sum(r.replica == replica and begin < r.arrived <= at and r.status not in REFUSED
                              for r in self.requests)  # fmt: skip
                totals = [totals[0] + seats, totals[1] + waiting + arrived, totals[2] + used]
        return totals[0], totals[1], totals[2]

    def mean_used(self, second: int, start: float) -> float:
        """Mean used units of all replicas over the second that ends then."""
        low, high = start + second - 1, start + second
        return sum(used * max(0.0, min(end, high) - max(begin, low)) for _, begin, end, _, _, used in self.spans)


REFUSED = {
    Status.PROMPT_TOO_LONG, Status.REQUESTED_TOO_LONG, Status.LARGER_THAN_POOL, Status.QUEUE_FULL_REQUESTS,
    Status.QUEUE_FULL_TOKENS, Status.NOT_SENT,
}  # fmt: skip


def splitmix(seed: int, number: int) -> int:
    mask = (1 << 64) - 1
    mixed = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)
