"""One record of a trace (a span, an observation) as the formats with traces see it, and its place among the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, Any]
REQUEST, TOOL, AGENT, OTHER = "request", "tool", "agent", "other"
MAX_DEPTH = 256
"""Nodes that are looked at above one: deeper nesting is damage."""


@dataclass(slots=True)
class Node:
    """One span or observation; `row` (of requests) are its own canonical columns, instants in us.

    `span` is unique inside `trace`. `call` is the source's id of the model call, which a client's span and the engine's
    may share; `id_suffix` makes it unique among traces; an anonymous node has no id that would hold in another file.
    `is_marked`: the node names itself a request; else it only carries usage. `rank` settles between two records of one
    node and two rows of one call: the higher.
    """

    trace: str
    span: str
    parent: str | None
    role: str
    start_us: int
    end_us: int | None = None
    row: Row = field(default_factory=dict)
    has_usage: bool = False
    is_marked: bool = True
    is_engine: bool = False
    is_anonymous: bool = False
    call: str | None = None
    id_suffix: str = ""
    rank: int = 0
    session: str | None = None
    tenant: str | None = None
    agent: str | None = None
    fallback_session: str | None = None

    @property
    def is_request(self) -> bool:
        """Whether the node may be a model call."""
        return self.role == REQUEST

    def says_more_than(self, other: Node) -> bool:
        """Whether this record of a node replaces another one of the same node."""
        return self._fullness() > other._fullness()

    def _fullness(self) -> tuple[Any, ...]:
        output = self.row.get("output_tokens")
        return self.rank, self.is_request, self.has_usage, self.end_us is not None, output or 0


def ancestors(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    """The known nodes above `node`, nearest first."""
    found: list[Node] = []
    seen = {node.span}
    above = nodes.get(node.parent or "")
    while above is not None and above.span not in seen and len(found) < MAX_DEPTH:
        seen.add(above.span)
        found.append(above)
        above = nodes.get(above.parent or "")
    return found


def scope_of(node: Node, above: list[Node]) -> str:
    """The span of the tool or agent that `node` runs in; else the span that the topmost known one names as parent."""
    inside = next((n.span for n in above if n.role in (TOOL, AGENT)), None)
    return inside or (above[-1] if above else node).parent or ""


def agent_of(above: list[Node]) -> str | None:
    """The sub-agent that what lies below `above` runs in: the nearest agent, unless that one is the outermost."""
    inside = [n for n in above if n.role in (AGENT, TOOL)]
    nearest = next((n for n in inside if n.role == AGENT), None)
    if nearest is None or nearest is inside[-1]:
        return None
    return nearest.agent or nearest.span
