"""Tool waits of one trace: which call asked for a tool, which one carries its result, and how long that took."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from transforms.sources._nodes import TOOL, ancestors, scope_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.sources._calls import Call
    from transforms.sources._nodes import Node

SLACK_US = 50_000
"""A call may start this much before the end of the tool it waited for: stamps are taken on both sides of a queue."""


def add_tools(calls: Sequence[Call], nodes: Mapping[str, Node]) -> None:
    """Set tool_calls of the calls that asked for the trace's tools, tool_results and logged_tool_wait_s of the next.

    A tool belongs to the last chat call before it inside the same agent or tool. The wait of parallel tools runs from
    the first one's start (at the earliest the answer's end) to the last one's end. Tools still running when the next
    call starts held nothing up: they count as asked for, without a wait.
    """
    lanes: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda c: (c.row["arrived_at"], c.identity)):
        if call.row.get("operation", "chat") == "chat":
            lanes[call.scope].append(call)
    arrivals = {scope: [call.row["arrived_at"] for call in lane] for scope, lane in lanes.items()}
    asked: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in nodes.values():
        if node.role == TOOL and node.end_us is not None:
            scope = scope_of(node, ancestors(node, nodes))
            place = bisect_right(arrivals.get(scope, ()), node.start_us) - 1
            if place >= 0:
                asked[scope, place].append(node)
    for (scope, place), tools in asked.items():
        _tell(lanes[scope][place : place + 2], tools)


def _tell(pair: Sequence[Call], tools: Sequence[Node]) -> None:
    """Write what `tools` say into the call that asked for them and, where there is one, the call after it."""
    asking = pair[0].row
    asking["tool_calls"] = max(asking.get("tool_calls") or 0, len(tools))
    last_us = max(tool.end_us or 0 for tool in tools)
    if len(pair) == 1 or pair[1].row["arrived_at"] < last_us - SLACK_US:
        return
    pair[1].row["tool_results"] = len(tools)
    first_us = max(min(tool.start_us for tool in tools), min(asking.get("ended_at") or 0, last_us))
    if last_us >= (asking.get("ended_at") or 0) - SLACK_US:
        pair[1].row["logged_tool_wait_s"] = (last_us - first_us) / 1_000_000
