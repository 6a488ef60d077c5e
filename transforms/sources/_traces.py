"""Traces of nested records (spans, observations): a window of open ones, and the rows of those that are done.

A trace comes in pieces, in any order, between pieces of others. It stays open while pieces come; when the window is
full, the one untouched for longest is worked out from all that is known of it (_calls.py) and gives its rows. What
comes of a trace after that is judged alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.sources._calls import Fate, calls_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transforms.sources._nodes import Node, Row

WINDOW_NODES = 50_000
"""Nodes a Window keeps, some 60 MB: more than exporters flush in the minutes in which a trace is written."""
PRECEDENCE_STEP = 1_000_000
"""Between two rows of one call from two files, the higher rank stays, then the one that knows more of its trace."""


@dataclass
class Trace:
    """What is known of one trace, and how many records of requests told of it, repeated ones included."""

    nodes: dict[str, Node] = field(default_factory=dict)
    requests: int = 0


@dataclass
class Given:
    """What done traces gave: rows, requests that repeat a row, records that are no request."""

    rows: list[Row] = field(default_factory=list)
    duplicates: int = 0
    ignored: int = 0


@dataclass
class Window:
    """The open traces, at most `limit` nodes of them."""

    limit: int = WINDOW_NODES
    traces: OrderedDict[str, Trace] = field(default_factory=OrderedDict)
    size: int = 0

    def absorb(self, nodes: Iterable[Node]) -> Given:
        """Take in nodes; gives what the traces held that had to make room."""
        out = Given()
        for node in nodes:
            trace = self.traces.setdefault(node.trace, Trace())
            self.traces.move_to_end(node.trace)
            known = trace.nodes.get(node.span)
            if known is None or node.says_more_than(known):
                trace.nodes[node.span] = node
                self.size += known is None
            trace.requests += node.is_request
            out.ignored += not node.is_request
            while self.size > self.limit:
                self._close(out)
        return out

    def rest(self) -> Given:
        """What the traces still open hold."""
        out = Given()
        while self.traces:
            self._close(out)
        return out

    def _close(self, out: Given) -> None:
        _, trace = self.traces.popitem(last=False)
        self.size -= len(trace.nodes)
        calls, fates = calls_of(trace.nodes)
        known = min(len(trace.nodes), PRECEDENCE_STEP - 1)
        out.rows += [call.row | {"precedence": call.rank * PRECEDENCE_STEP + known} for call in calls]
        sums = sum(fate is Fate.SUM for fate in fates.values())
        out.ignored += sums
        out.duplicates += trace.requests - len(calls) - sums
