"""A replay whose replicas come and go: stopped at each look of the autoscaler, and run on with what it asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.fleet_control.autoscaler import Autoscaler, Seen
from transforms.planner.fleet_control.backlog import backlog_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_memory import Memory
    from transforms.planner.replay.replay_types import Settings
    from transforms.planner.replay.step_costs import StepCosts


@dataclass
class Stay:
    """One replica's time in the fleet, seconds of the trace."""

    replica: int
    ordered_s: float
    on_s: float
    off_s: float = np.inf


@dataclass
class Fleet:
    """Replicas of a replay in time; `memory.world` is told who takes arrivals."""

    memory: Memory
    settings: Settings
    costs: StepCosts
    autoscaler: Autoscaler
    first_replicas: int
    stays: list[Stay] = field(default_factory=list)
    next_look_s: float = 0.0

    def begin(self) -> None:
        """Let the first replicas take arrivals, and no others."""
        start_s = float(self.memory.world["start_s"][0])
        self.stays = [Stay(number, start_s, start_s) for number in range(self.first_replicas)]
        self.next_look_s = start_s
        self._tell(start_s)

    def look(self) -> None:
        """Order or dismiss replicas by what there is to see now, and say when to look again."""
        now_s, rules = self.next_look_s, self.autoscaler.rules
        current = [stay for stay in self.stays if stay.off_s > now_s]
        wanted = self.autoscaler.wanted(self._seen(now_s, len(current)))
        taken = {stay.replica for stay in current}
        free = [n for n in range(self.settings.replicas) if n not in taken and not self._is_draining(n)]
        for number in free[: max(wanted - len(current), 0)]:
            self.stays.append(Stay(number, now_s, now_s + rules.start_up_s))
        for stay in self._least_busy(current)[: max(len(current) - wanted, 0)]:
            stay.off_s = now_s
        self._tell(now_s)
        starts = [stay.on_s for stay in self.stays if stay.on_s > now_s and stay.off_s > now_s]
        self.next_look_s = min([now_s + rules.tick_s, *starts])

    def paid_replica_s(self, end_s: float) -> float:
        """Replica-seconds from each order to the end of the last request a dismissed replica still had."""
        rows = self.memory.tables["requests"]
        total = 0.0
        for stay in self.stays:
            own = (rows["replica"] == stay.replica) & (rows["arrived"] >= stay.on_s) & (rows["arrived"] < stay.off_s)
            drained_s = float(np.nanmax(rows["end"][own], initial=stay.off_s if stay.off_s < np.inf else end_s))
            total += (min(drained_s, end_s) if stay.off_s < np.inf else end_s) - stay.ordered_s
        return total

    def _replicas(self) -> NDArray[Any]:
        return self.memory.tables["replicas"]

    def _is_draining(self, number: int) -> bool:
        return bool(self._replicas()["outstanding"][number] > 0)

    def _least_busy(self, current: list[Stay]) -> list[Stay]:
        """Replicas by what they still have to do; those not started yet first."""
        outstanding = self._replicas()["outstanding"]
        return sorted(current, key=lambda stay: (stay.on_s <= self.next_look_s, outstanding[stay.replica], -stay.on_s))

    def _seen(self, now_s: float, count: int) -> Seen:
        replicas = self._replicas()
        used = float((self.settings.pool.units - replicas["free"]).sum()) / self.settings.pool.units
        return Seen(now_s, used, backlog_s(self.memory, self.settings, self.costs), count)

    def _tell(self, now_s: float) -> None:
        on = {stay.replica for stay in self.stays if stay.on_s <= now_s < stay.off_s}
        replicas = self._replicas()
        replicas["is_off"] = [number not in on for number in range(len(replicas))]
        self.memory.world["on_count"] = len(on)
