"""Traces of nested records (spans, observations): a window of them in memory, and the rows they give as they fill.

A trace comes in pieces, in any order. A Window keeps the last traces of a file part; each batch is taken in and every
trace it touches is worked out anew from all that is known of it (_calls.py). A row that changes by what came later is
given again with a higher precedence and replaces the earlier one; one that turns out to be the sum of its children is
given again with the flag `aggregate`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.sources._calls import Fate, calls_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transforms.sources._nodes import Node, Row

AGGREGATE = "aggregate"
WINDOW_NODES = 50_000
"""Nodes a Window keeps, some 50 MB: more than exporters flush within the minutes a trace is written in."""
PRECEDENCE_STEP = 1_000_000


@dataclass
class Trace:
    """What is known of one trace, how often that grew, and the rows given so far, by identity."""

    nodes: dict[str, Node] = field(default_factory=dict)
    updates: int = 0
    given: dict[str, Row] = field(default_factory=dict)


@dataclass
class Absorbed:
    """What a batch of nodes gave: rows (new or replacing), requests that repeat one, nodes that are no request."""

    rows: list[Row] = field(default_factory=list)
    duplicates: int = 0
    ignored: int = 0


@dataclass
class Window:
    """The traces seen last, at most `limit` nodes of them; the one touched longest ago is forgotten first."""

    limit: int = WINDOW_NODES
    traces: OrderedDict[str, Trace] = field(default_factory=OrderedDict)
    size: int = 0

    def absorb(self, nodes: Iterable[Node]) -> Absorbed:
        """Take in the nodes of a batch; gives the rows of the traces they touch that are new or changed."""
        out = Absorbed()
        requests: Counter[str] = Counter()
        fresh: dict[str, set[str]] = {}
        for node in nodes:
            trace = self.traces.setdefault(node.trace, Trace())
            known = trace.nodes.get(node.span)
            if known is None or node.says_more_than(known):
                trace.nodes[node.span] = node
                trace.updates += 1
                self.size += known is None
            added = fresh.setdefault(node.trace, set())
            if known is None:
                added.add(node.span)
            requests[node.trace] += node.is_request
            out.ignored += not node.is_request
        for name, added in fresh.items():
            self.traces.move_to_end(name)
            _give(self.traces[name], added, requests[name], out)
        self._forget()
        return out

    def _forget(self) -> None:
        while self.size > self.limit:
            _, trace = self.traces.popitem(last=False)
            self.size -= len(trace.nodes)


def _give(trace: Trace, added: set[str], requests: int, out: Absorbed) -> None:
    """Add to `out` what is new in `trace`, of whose nodes `added` came now, in `requests` records of requests."""
    calls, fates = calls_of(trace.nodes)
    rank_at = min(trace.updates, PRECEDENCE_STEP - 1)
    now = {}
    for call in calls:
        row = call.row | {"precedence": call.rank * PRECEDENCE_STEP + rank_at}
        now[call.identity] = row
        before = trace.given.get(call.identity)
        if before is None or (row["request_id"] is not None and _content(row) != _content(before)):
            out.rows.append(row)
            requests -= before is None
    for identity, row in trace.given.items():
        if identity not in now and row["request_id"] is not None:
            now[identity] = row
            if AGGREGATE not in row["flags"]:
                rank = row["precedence"] // PRECEDENCE_STEP
                flags = [*row["flags"], AGGREGATE]
                now[identity] = row | {"flags": flags, "precedence": rank * PRECEDENCE_STEP + rank_at}
                out.rows.append(now[identity])
    trace.given = now
    sums = sum(fates.get(span) is Fate.SUM for span in added)
    out.ignored += sums
    out.duplicates += max(requests - sums, 0)


def _content(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("precedence", "source_position")}
