"""One service's traffic from seed to times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.sample.agents import plan_agents
from transforms.sample.calls import Calls, Chains, Plan, Sessions, join
from transforms.sample.chat import plan_chat
from transforms.sample.mishaps import with_health_checks, with_mishaps
from transforms.sample.services import AGENT, CHAT, DAY_S, SUMMARISER, Service, service_called
from transforms.sample.simulation import Timings, simulate
from transforms.sample.summariser import plan_summaries

if TYPE_CHECKING:
    from collections.abc import Callable

PLANS: dict[str, Callable[[np.random.Generator, int, int, float], Plan]] = {
    CHAT.name: plan_chat,
    AGENT.name: plan_agents,
    SUMMARISER.name: plan_summaries,
}


@dataclass(frozen=True)
class Traffic:
    """What a service did: who, in which chains, what, and when."""

    sessions: Sessions
    chains: Chains
    calls: Calls
    timings: Timings


def traffic_of(name: str, seed: int, days: int, scale: float) -> Traffic:
    """The first `days` days of the service called `name`; fewer days give the same rows as more days begin with."""
    service = service_called(name)
    plan = join([plan_day(service, seed, day, scale) for day in range(days)])
    timings = simulate(plan, service, days * DAY_S)
    return Traffic(plan.sessions, plan.chains, plan.calls, timings)


def plan_day(service: Service, seed: int, day: int, scale: float) -> Plan:
    """All that `service` plans for sessions that start on `day`, whatever the other days are."""
    sequence = np.random.SeedSequence([seed, service.number, day])
    rng = np.random.default_rng(sequence)
    identity = int(sequence.generate_state(1, np.uint64)[0])
    plan = PLANS[service.name](rng, identity, day, scale)
    return with_health_checks(with_mishaps(plan, service, rng), identity, day)
