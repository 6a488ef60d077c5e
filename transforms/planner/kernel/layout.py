"""Memory of the kernel: one record with all settings and the addresses of its tables, and the records of each table."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.planner.replay.step_costs import StepCosts

Array = np.ndarray[Any, Any]


def _record(**columns: str) -> np.dtype[np.void]:
    """Type of a record: each argument is a type and the names of its fields."""
    return np.dtype([(name, kind) for kind, names in columns.items() for name in names.split()], align=True)


KIND = _record(i8="block most units shift")
"""One kind of KV group: tokens of a block, most blocks, units of a block, log2(block) or −1."""

REPLICA = _record(
    f8="clock clock_low area area_low fraction prefill_pairs decided link",
    i8="counter advanced decoding context running free cached over head tail wait_head wait_tail waiting "
    "waiting_tokens partials lagging lag_old vacant ends caps outstanding left_now lru_head lru_tail next_sample "
    "prefill sampled prefill_context has_preempted is_busy peak pins pin_head pin_tail claim_head claim_tail "
    "is_off",
)
"""One engine. `counter` is the tokens each decoding sequence has advanced since the start, `advanced` of that in the
last step; `decided` when the coming step was; `context` Σ tokens with a slot over the decoding sequences in the next
step; `area` ∫ counter dt; `peak` most units in use so far; `link` when its link to the host is
free; one that `is_off` takes no more arrivals."""

SEAT = _record(
    f8="since since_low area area_low",
    i8="base joined shared held tokens ids request target computed chunk made previous next",
    i4="is_decoding may_pin",
)
"""One running request. Decoding: `base` + the replica's counter = tokens with a slot in the next step. Prefilling:
`computed` of `target` tokens in `held` units. Lagging behind its end: `held` units and `tokens` since `since`."""

SEAT_KIND = _record(f8="crossed crossed_low", i4="turn is_live")
"""Per seat and kind: the class it is counted in, and Σ crossing times of that class when it joined."""

REQUEST = _record(
    f8="arrived scheduled first_token end kv_tokens kv_units",
    i4="made next preemptions cached",
    i2="replica",
    i1="status",
)
"""One request: its result, and `next` in the waiting queue."""

LISTS = _record(i8="vacant partial lagging")
"""Per seat, three lists of seats: vacant ones, unfinished prompts in the order of the running list, lagging ones."""

HEAP = _record(i8="key item")
"""Entry of a heap."""

CLASS = _record(f8="crossed crossed_low")
"""One class of a replica and kind: Σ times at which it got a block. How many are in it stands in `class_counts`."""

EVENT = _record(f8="at", i8="request")
SAMPLE = _record(i8="running waiting used", f8="area")

CACHE = _record(i4="references previous next tokens")
"""One prefix block or session in one replica's cache; `references` −1 is absent, 0 evictable."""

SHARE = _record(f8="saved since")
"""One prefix block in one replica's cache: ∫ (1 − 1/n) dt while n ≥ 1 refer to it, as of the last change of n."""

PIN = _record(
    f8="since until held load_s", i8="units tokens", i4="child previous next ids", i2="replica", i1="state copied"
)
"""What a request leaves for the turn `child` after its tools: `held` ∫ units dt, and the copy in the host's memory."""

CAUSE = _record(f8="delay_s", i4="parent first_child sibling from_start")
"""What a request follows, and the linked list of what follows it."""

REAL, WHOLE, COUNT, FLAG = _record(f8="v"), _record(i4="v"), _record(i8="v"), _record(i1="v")
"""Plain columns."""

TABLES = {
    "kinds": KIND, "replicas": REPLICA, "seats": SEAT, "seat_kinds": SEAT_KIND, "requests": REQUEST, "lists": LISTS,
    "end_heap": HEAP, "cap_heap": HEAP, "classes": CLASS, "class_counts": COUNT, "events": EVENT, "samples": SAMPLE,
    "cache": CACHE, "shares": SHARE, "saved": REAL, "held_ids": FLAG, "homes": WHOLE, "causes": CAUSE, "pins": PIN,
    "arrived": REAL, "prompts": WHOLE, "outputs": WHOLE, "requested": WHOLE, "sessions": WHOLE, "shared": WHOLE,
    "offsets": COUNT, "ids": WHOLE,
}  # fmt: skip
"""Every table by name; the field of WORLD with that name is its address."""

WORLD = _record(
    f8=" ".join(StepCosts._fields) + " timeout_s acceptance start_s end_s horizon_s pin_s link_s",
    i8="units fixed_units watermark_units seat_count budget max_model_len threshold lag drafts max_queued "
    "max_queued_tokens requested_rule closed_loop reserve_full lone_exempt failure_ends has_causes has_feedback "
    "has_series replica_count router slack kind_count class_count has_caps rows caching entries id_tokens id_units "
    "hit_tokens hit_units pinning has_requested has_shared is_begun sample_count cursor event_count next_replica steps "
    "jumps preempted on_count " + " ".join(TABLES),
    u8="seed",
)
"""One record: step costs, settings, where the replay stands between two calls, addresses of the tables."""
