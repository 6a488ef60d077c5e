"""The replay's engine model, one step at a time in plain Python: slow, walks every list, meant to be read.

Shares nothing with the kernel but the types that go in. `Reference(trace, settings, costs).run()` fills `requests`.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass, field

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
    # while running
    target: int = 0
    tokens: int = 0  # with a KV slot
    chunk: int = 0
    own_units: int = 0  # blocks nobody else refers to
    shared_units: int = 0
    ids: list[int] = field(default_factory=list)  # prefix blocks it refers to, in order
    seen_ids: int = 0


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

    @property
    def seats(self) -> int:
        return len(self.running) + sum(map(len, self.lagging))

    @property
    def is_busy(self) -> bool:
        return self.seats + len(self.waiting) > 0


class Reference:
    def __init__(self, trace: TraceColumns, settings: Settings, costs: StepCosts) -> None:
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
        pool = settings.pool
        sizes = [b for b, most in zip(pool.block_tokens, pool.max_blocks, strict=True) if most >= NO_LIMIT]
        self.hit_tokens = math.lcm(*sizes) if sizes else 1

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
            if session < 0 or session not in engine.evictable:
                return 0, []
            tokens = engine.evictable[session] // self.shared_units(self.hit_tokens) * self.hit_tokens
            if len(self.trace.shared_tokens) and request.preemptions == 0:
                tokens = min(tokens, int(self.trace.shared_tokens[request.number]) // self.hit_tokens * self.hit_tokens)
            return min(tokens, most), []
        if self.settings.caching == Caching.OFF:
            return 0, []
        hit: list[int] = []
        for name in self.ids_of(request):
            if name not in engine.references or len(hit) * self.settings.prefix_block_tokens >= most:
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
        if self.settings.caching == Caching.SESSION:
            session = int(self.trace.session[request.number])
            if session >= 0:
                engine.evictable.pop(session, None)
                left = self.shared_units(request.tokens // self.hit_tokens * self.hit_tokens)
                if left > 0:
                    engine.evictable[session] = left
        for name in reversed(request.ids):
            engine.references[name] -= 1
            if engine.references[name] == 0:
                held = self.shared_units(self.settings.prefix_block_tokens)
                engine.evictable[name] = held
                engine.free += held
        request.own_units = request.shared_units = request.tokens = request.seen_ids = 0
        request.ids = []

    # --- one step

    def step(self, replica: int) -> None:
        engine = self.engines[replica]
        for request in engine.lagging[1]:
            self.give_back(engine, request)
        engine.lagging = [[], engine.lagging[0]]
        self.drop_timed_out(engine)
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
            idle = sum(self.shared_units(settings.prefix_block_tokens) for name in ids if name in engine.evictable)
            need = self.slots(hit + chunk)
            most = max(need, self.units(total)) if settings.reserve_full_prompt else need
            spare = int(settings.watermark * settings.pool.units) if engine.seats else 0
            if most - shared + idle > engine.free - spare:
                break
            engine.running.append(engine.waiting.pop(0))
            if math.isnan(request.scheduled):
                request.scheduled = engine.decided if settings.async_lag_steps else engine.clock.now
                request.cached = hit
            request.target, request.tokens, request.chunk = total, hit + chunk, chunk
            request.ids, request.seen_ids = list(ids), len(ids)
            request.shared_units, request.own_units = shared, need - shared
            if settings.caching == Caching.SESSION:
                engine.evictable.pop(int(self.trace.session[request.number]), None)
            for name in ids:
                engine.references[name] += 1
                if name in engine.evictable:
                    engine.free -= engine.evictable.pop(name)
            self.take(engine, need - shared)
            self.keep(engine, request)
            budget -= chunk
            admitted.append(request)
        return admitted

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
        engine.running.remove(request)
        if self.settings.async_lag_steps:
            engine.lagging[0].append(request)
        else:
            self.give_back(engine, request)
        is_late = now > request.arrived + self.settings.timeout_s
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

    def route(self, request: Request, at: float) -> int:
        settings, count = self.settings, self.settings.replicas
        loads = [self.outstanding(replica, at) for replica in range(count)]
        if settings.router == Router.ROUND_ROBIN:
            self.turn += 1
            return (self.turn - 1) % count
        if settings.router == Router.RANDOM:
            return splitmix(settings.seed, request.number) % count
        session = int(self.trace.session[request.number]) if len(self.trace.session) else -1
        if settings.router == Router.SESSION_AFFINITY and session in self.homes:
            return self.homes[session]
        turn = 0 if settings.caching == Caching.OFF else self.turn
        least = min(range(count), key=lambda i: (loads[i], (i - turn) % count))
        self.turn = least + 1
        if settings.router == Router.SESSION_AFFINITY and session >= 0:
            self.homes[session] = least
        if settings.router == Router.PREFIX_AFFINITY and settings.caching != Caching.OFF:
            hits = [self.found(engine, request, request.prompt)[0] for engine in self.engines]
            best = min(range(count), key=lambda i: (-hits[i], loads[i], i != least, i))
            return best if loads[best] <= loads[least] + settings.affinity_slack_requests else least
        return least

    def arrive(self, number: int, at: float) -> None:
        settings, request = self.settings, self.requests[number]
        request.arrived = at
        requested = int(self.trace.requested_tokens[number]) if len(self.trace.requested_tokens) else -1
        if request.prompt >= settings.max_model_len:
            return self.refuse(request, Status.PROMPT_TOO_LONG, at)
        if settings.requested_rule == RequestedRule.REJECT and request.prompt + requested > settings.max_model_len:
            return self.refuse(request, Status.REQUESTED_TOO_LONG, at)
        if self.slots(request.prompt + request.output - 1) > settings.pool.units:
            return self.refuse(request, Status.LARGER_THAN_POOL, at)
        request.replica = self.route(request, at)
        engine = self.engines[request.replica]
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
