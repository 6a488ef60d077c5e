"""Spans of traces split, reordered and repeated over lines and batches: no request lost, doubled or invented."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from spans import agent, chat, in_batches, kept, line, span, tool, with_rest

from transforms.batches import Batch
from transforms.finish import finish
from transforms.fleet import Source
from transforms.sources import langfuse, otel

WAIT_S = 2.0


@dataclass
class Story:
    """Spans of one trace, and the calls an honest count finds in them: tokens in, out and the logged tool wait."""

    number: int
    spans: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[int, int, float | None, str | None]] = field(default_factory=list)
    at_s: float = 0.0

    def name(self) -> str:
        return f"{len(self.spans) + 1:x}"

    def add(self, make, parent: str | None, took_s: float, **more: Any) -> str:
        name = self.name()
        trace = f"{self.number + 1:032x}"
        self.spans.append(make(name, parent, self.at_s, self.at_s + took_s, trace=trace, **more))
        return name

    def call(self, parent: str, shape: str, wait_s: float | None, of_agent: str | None) -> None:
        prompt = 100 * self.number + len(self.calls) + 1
        usage = {"gen_ai__usage__input_tokens": prompt, "gen_ai__usage__output_tokens": prompt + 1}
        outer = parent
        if shape in ("wrapped", "served"):
            outer = self.add(chat, parent, 1.0, **usage, gen_ai__request__model="m")
            outer = self.add(span, outer, 1.0, name="POST")
        if shape == "served":
            usage = {"gen_ai__usage__prompt_tokens": prompt, "gen_ai__usage__completion_tokens": prompt + 1,
                     "gen_ai__latency__time_in_queue": 0.1}  # fmt: skip
            self.add(span, outer, 1.0, name="llm_request", **usage)
        elif shape == "failed":
            self.add(span, outer, 1.0, error=True, gen_ai__operation__name="chat")
        elif shape == "summed":
            outer = self.add(span, parent, 1.0, name="run", **usage, gen_ai__request__model="m")
            self.add(chat, outer, 1.0, **usage)
        else:
            self.add(chat, outer, 1.0, **usage)
        failed = shape == "failed"
        self.calls.append((0 if failed else prompt, 0 if failed else prompt + 1, wait_s, of_agent))
        self.at_s += 1.0


SHAPES = st.sampled_from(("plain", "wrapped", "served", "failed", "summed"))


@st.composite
def stories(draw) -> Story:
    """An agent that calls, waits for tools and calls again; some tools are sub-agents."""
    story = Story(draw(st.integers(0, 10_000)))
    root = story.add(agent, None, 99.0)
    wait_s = None
    for _ in range(draw(st.integers(1, 4))):
        story.call(root, draw(SHAPES), wait_s, None)
        wait_s = None
        kind = draw(st.sampled_from(("none", "tool", "parallel", "sub-agent")))
        if kind == "sub-agent":
            below = story.add(tool, root, 2.0)
            below = story.add(agent, below, 2.0, gen_ai__agent__name="helper")
            for _ in range(2):
                story.call(below, draw(SHAPES), None, "helper")
            wait_s = WAIT_S
        elif kind != "none":
            for took_s in (1.0, WAIT_S) if kind == "parallel" else (WAIT_S,):
                story.add(tool, root, took_s)
            story.at_s += WAIT_S
            wait_s = WAIT_S
    return story


@st.composite
def files(draw) -> tuple[list[Story], list[bytes], list[int]]:
    """Stories, their spans shuffled over lines (some twice), and the sizes of the batches these come in."""
    told = draw(st.lists(stories(), min_size=1, max_size=3, unique_by=lambda s: s.number))
    spans = [s for story in told for s in story.spans]
    spans += draw(st.lists(st.sampled_from(spans), max_size=5))
    order = draw(st.permutations(spans))
    cuts = draw(st.lists(st.integers(1, 6), max_size=len(order)))
    lines, place = [], 0
    for size in [*cuts, len(order)]:
        if order[place : place + size]:
            lines.append(line(*order[place : place + size]))
        place += size
    return told, lines, draw(st.lists(st.integers(1, 4), max_size=len(lines)))


def seen(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("session_id", "prompt_tokens", "output_tokens", "logged_tool_wait_s", "agent_id")
    unknown = ("", 0, 0, 0, "")
    return sorted(tuple(row[name] or none for name, none in zip(names, unknown, strict=True)) for row in rows)


def meant(told: list[Story]) -> list[tuple[Any, ...]]:
    return sorted(
        (f"{story.number + 1:032x}", prompt, output, wait_s or 0, of_agent or "")
        for story in told
        for prompt, output, wait_s, of_agent in story.calls
    )


@settings(max_examples=150, deadline=None)
@given(files())
def test_every_call_comes_out_once_however_its_spans_arrive(case) -> None:
    told, lines, sizes = case
    frames, counted = in_batches(lines, sizes)
    rows = kept(frames)
    assert seen(rows.to_dicts()) == meant(told)
    assert len(rows) == sum(map(len, frames)), "nothing is left for the committer to drop"
    assert counted == sum(written.count(b'"spanId"') for written in lines)


@settings(max_examples=100, deadline=None)
@given(files(), st.integers(1, 12))
def test_a_small_window_loses_no_request_and_counts_every_span(case, limit) -> None:
    told, lines, sizes = case
    frames, counted = in_batches(lines, sizes, limit=limit)
    rows = kept(frames)
    assert {(r[0], r[1]) for r in seen(rows.to_dicts())} >= {(r[0], r[1]) for r in meant(told)}
    assert counted == sum(written.count(b'"spanId"') for written in lines)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
KEYS = st.sampled_from((
    "resourceSpans", "scopeSpans", "spans", "attributes", "key", "value", "stringValue", "intValue", "arrayValue",
    "values", "kvlistValue", "traceId", "spanId", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano", "status",
    "code", "events", "name", "gen_ai.operation.name", "gen_ai.usage.input_tokens", "observations", "trace", "id",
    "type", "startTime", "usageDetails", "input", "output", "metadata", "modelParameters", "level",
))  # fmt: skip
JUNK = st.recursive(
    st.one_of(LEAVES, st.sampled_from(("chat", "GENERATION", "1772359200000000000", "2026-03-01T10:00:00Z"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(JUNK, st.sampled_from((otel, langfuse)))
def test_no_json_is_a_traceback(value, module) -> None:
    source = Source(module.FORMAT, "x", **module.DEFAULTS)
    record = {"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]} if module is otel else value
    for written in (json.dumps(record).encode(), json.dumps(value).encode(), json.dumps(value).encode()[:-1]):
        carry: dict[str, Any] = {}
        parsed = module.canonicalise(Batch("x", [written], [0], carry), source)
        whole = with_rest(module, parsed, carry, source)
        finish(whole.rows, module.FORMAT, "x")
        assert len(whole.rows) + len(whole.rejects) + whole.ignored + whole.duplicates >= 1
