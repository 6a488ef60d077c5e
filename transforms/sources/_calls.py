"""The model calls of one trace: its leaves, told by one node or by several (client and engine, one for each choice).

The leaf rule: a node with a request below it that carries usage is not a request itself but its sum or its wrapper. A
request without usage below a request is the same call seen from inside. Nodes with the same call id that overlap in
time are one call; a wrapper of one call lends it what only the wrapper knows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from transforms.sources._nodes import agent_of, ancestors, scope_of
from transforms.sources._tool_waits import add_tools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.sources._nodes import Node, Row

OUTPUT_PARTIAL = "output_partial"
TIMES = frozenset(("arrived_at", "ended_at", "first_token_at", "queue_s", "ttft_s", "e2e_s", "source_position"))


class Fate(Enum):
    """What becomes of a request node: a call's leading node, one that repeats a call, or the sum of several."""

    CALL = "call"
    REPEAT = "repeat"
    SUM = "sum"


@dataclass
class Call:
    """One model call; `lead` is its first node, `scope` the tool or agent it runs in."""

    identity: str
    lead: Node
    row: Row
    rank: int
    scope: str


@dataclass(frozen=True)
class _Tree:
    """The nodes of one trace with what was found out about them."""

    nodes: Mapping[str, Node]
    above: Mapping[str, list[Node]]
    wrapped: Mapping[str, set[str]]
    common: Mapping[str, str | None]


def calls_of(nodes: Mapping[str, Node]) -> tuple[list[Call], dict[str, Fate]]:
    """The calls of a trace in order of arrival, and the fate of every request node, by span."""
    requests = sorted((n for n in nodes.values() if n.is_request), key=lambda n: (n.start_us, n.span))
    above = {n.span: ancestors(n, nodes) for n in requests}
    wrapped = _wrapped(requests, above)
    tree = _Tree(nodes, above, wrapped, {name: _common(name, nodes) for name in ("session", "tenant")})
    leaves = [n for n in requests if n.span not in wrapped]
    groups = _groups([n for n in leaves if n.has_usage or not _is_inside(above[n.span], wrapped)])
    calls = [_call(group, tree) for group in groups]
    _name_apart(calls)
    add_tools(calls, nodes)
    return calls, _fates(requests, groups, tree)


def _wrapped(requests: Sequence[Node], above: Mapping[str, list[Node]]) -> dict[str, set[str]]:
    """Request nodes with a request below them that carries usage, each with the leaves among these."""
    below: dict[str, set[str]] = defaultdict(set)
    for node in requests:
        if node.has_usage:
            for outer in above[node.span]:
                if outer.is_request:
                    below[outer.span].add(node.span)
    return {span: {leaf for leaf in leaves if leaf not in below} for span, leaves in below.items()}


def _is_inside(above: Sequence[Node], wrapped: Mapping[str, set[str]]) -> bool:
    outer = next((n for n in above if n.is_request), None)
    return outer is not None and outer.span not in wrapped


def _groups(leaves: Sequence[Node]) -> list[list[Node]]:
    """Leaves by call: those of the same call id that overlap in time, in order of arrival."""
    groups: list[list[Node]] = []
    last: dict[str, list[Node]] = {}
    for node in leaves:
        group = last.get(node.call) if node.call else None
        if group is not None and node.start_us <= max(n.end_us or n.start_us for n in group):
            group.append(node)
            continue
        groups.append([node])
        if node.call:
            last[node.call] = groups[-1]
    return groups


def _fates(requests: Sequence[Node], groups: Sequence[Sequence[Node]], tree: _Tree) -> dict[str, Fate]:
    place = {n.span: number for number, group in enumerate(groups) for n in group}
    fates = dict.fromkeys((n.span for n in requests), Fate.REPEAT)
    fates.update(dict.fromkeys((group[0].span for group in groups), Fate.CALL))
    for span, below in tree.wrapped.items():
        if not tree.nodes[span].is_marked or len({place[leaf] for leaf in below}) > 1:
            fates[span] = Fate.SUM
    return fates


def _call(group: Sequence[Node], tree: _Tree) -> Call:
    lead = group[0]
    above, spans = tree.above[lead.span], {n.span for n in group}
    outer = [n for n in above if n.is_request and n.is_marked and tree.wrapped.get(n.span, set()) <= spans]
    engines, clients = [n for n in group if n.is_engine], [n for n in group if not n.is_engine]
    others = [*([_merged(clients)] if engines and clients else []), *(n.row for n in outer)]
    row = _merged(engines or clients)
    for other in others:
        row = _filled(row, other)
    named = next((n for n in [*clients, *outer, *group] if n.call), lead)
    identity = named.call or lead.span
    told = [*group, *outer, *above]
    row |= {
        "request_id": None if lead.is_anonymous and not named.call else identity + lead.id_suffix,
        "session_id": next((n.session for n in told if n.session), tree.common["session"]) or lead.fallback_session,
        "tenant": next((n.tenant for n in told if n.tenant), tree.common["tenant"]),
        "agent_id": next((n.agent for n in [*group, *outer] if n.agent), None) or agent_of(above),
        "flags": sorted(set(row.get("flags", ()))),
    }
    rank = max(n.rank for n in [*group, *outer]) + bool(others)
    return Call(identity, lead, row, rank, scope_of(lead, above))


def _merged(group: Sequence[Node]) -> Row:
    """One row of nodes that tell of the same call; an engine writes one span for each of n choices."""
    row = dict(max(group, key=lambda n: (n.row.get("output_tokens") or 0, n.has_usage)).row)
    if len(group) > 1:
        for node in group:
            row = _filled(row, node.row)
        row["arrived_at"] = min(n.start_us for n in group)
        row["ended_at"] = max((n.end_us for n in group if n.end_us is not None), default=None)
        for name in ("queue_s", "ttft_s", "first_token_at"):
            row[name] = min((n.row[name] for n in group if n.row.get(name) is not None), default=None)
    choices = row.get("choices") or 1
    if choices > 1 and group[0].is_engine:
        for name in ("output_tokens", "reasoning_tokens"):
            known = [n.row[name] for n in group if n.row.get(name) is not None]
            row[name] = sum(known) if known else None
        if len(group) < choices:
            row["flags"] = [*row.get("flags", ()), OUTPUT_PARTIAL]
    return row


def _filled(row: Row, other: Row) -> Row:
    """`row` with what only `other` knows: no times, and a status only where its own is ok."""
    missing = {name: value for name, value in other.items() if name not in TIMES and row.get(name) is None}
    flags = [*row.get("flags", ()), *other.get("flags", ())]
    status = row.get("status") if row.get("status") not in (None, "ok") else other.get("status")
    return row | missing | {"status": status, "flags": flags}


def _common(name: str, nodes: Mapping[str, Node]) -> str | None:
    """The session or tenant that some nodes of a trace name and no other node contradicts."""
    known = {value for n in nodes.values() if (value := getattr(n, name))}
    return known.pop() if len(known) == 1 else None


def _name_apart(calls: Sequence[Call]) -> None:
    """Give later calls that reuse the id of an earlier one (a gateway's cached answer) an id of their own."""
    seen: set[str] = set()
    for call in calls:
        if call.identity in seen:
            call.identity = f"{call.identity}:{call.lead.span}"
            call.row["request_id"] = call.identity + call.lead.id_suffix
        seen.add(call.identity)
