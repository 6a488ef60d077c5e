"""Whatever happens to a good file, no row is lost, doubled or invented; fast and slow ways of reading agree."""

from __future__ import annotations

import gzip
import json
import math
from datetime import datetime
from zoneinfo import ZoneInfo

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.reading.lines import LineBatch, LineReader
from flows.reading.rows import read_rows
from flows.reading.typed import typed_rows
from transforms.batches import Batch
from transforms.fields import columns, numbers
from transforms.fields.clock import Clock
from transforms.finish import finish
from transforms.fleet import Source
from transforms.sources import litellm

MAP = {"request_id": "id", "arrived_at": "t", "prompt_tokens": "p"}
SOURCE = Source("mapped", "", map=MAP)


def good(n):
    return b'{"id":"r%d","t":%d,"p":%d}' % (n, 1_772_359_200 + n, n)


def read(folder, data, name="a.jsonl"):
    path = folder / name
    path.write_bytes(data)
    return read_rows(path, SOURCE)


TEXTS = st.binary(max_size=400).map(lambda data: data.replace(b"\x00", b"\n"))


@given(TEXTS, st.lists(st.integers(1, 60), max_size=12), st.integers(1, 90))
def test_lines_do_not_depend_on_chunks(data, sizes, batch_bytes):
    chunks, rest = [], data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    reader = LineReader([*chunks, rest], 0, batch_bytes, max_line_bytes=50)
    seen = [pair for batch in reader.batches() for pair in zip(batch.positions, batch.lines, strict=True)]
    wanted, position = [], 0
    *lines, tail = data.split(b"\n")
    for line in lines:
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if text and len(text) <= 50 and len(line) <= 50:
            wanted.append((position, text))
        position += len(line) + 1
    assert [pair for pair in seen if len(pair[1]) <= 50 and pair in wanted] == wanted
    assert (reader.tail == tail) or len(tail) > 50


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_row_is_lost_doubled_or_invented(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("p")
    numbers_ = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=40))
    lines = [good(n) for n in numbers_]
    bad = st.sampled_from([b"", b"nonsense", b"[1]", good(7)[:-3], good(3)[4:], b"\xff\xfe", b'{"t":true}', b"   "])
    mixed = list(lines)
    for line in data.draw(st.lists(bad, max_size=6)):
        mixed.insert(data.draw(st.integers(0, len(mixed))), line)
    text = b"\n".join(mixed) + b"\n"
    kind = data.draw(st.sampled_from(["plain", "crlf", "gz", "members"]))
    if kind == "crlf":
        text = text.replace(b"\n", b"\r\n")
    if kind in ("gz", "members"):
        half = len(text) // 2 if kind == "members" else 0
        text = gzip.compress(text[:half]) + gzip.compress(text[half:])
    found = read(folder, text)
    assert sorted(found.rows["request_id"].to_list()) == sorted({f"r{n}" for n in numbers_})
    assert found.duplicates == len(numbers_) - len(set(numbers_))
    blank = sum(not line.strip() for line in mixed)
    assert len(found.rows) + found.duplicates + len(found.rejects) + blank == len(mixed)
    assert found.ignored == blank


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 420), st.booleans())
def test_a_cut_file_keeps_its_whole_lines(tmp_path_factory, cut, is_gzip):
    folder = tmp_path_factory.mktemp("c")
    text = b"".join(good(n) + b"\n" for n in range(12))
    data = (gzip.compress(text, 0) if is_gzip else text)[: max(cut, 30)]
    found = read(folder, data)
    kept = len(found.rows)
    assert found.rows["request_id"].to_list() == [f"r{n}" for n in range(kept)]
    assert not found.rejects
    if not is_gzip:
        assert kept in (data.count(b"\n"), data.count(b"\n") + 1)


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-100, 100_000),
    st.floats(),
    st.sampled_from(["", " ", "12", "-3", "1e2", "1,234", "1,23", "14.5", "14.0", "nan", "inf", "x", "true", "0x1f"]),
)


def scalar(function, value):
    flags = []
    try:
        return function(value, flags), None, flags
    except ValueError as error:
        return None, str(error), flags


def is_rejected(column, row):
    return column.reasons is not None and column.reasons[row] is not None


@given(st.lists(CELLS, min_size=1, max_size=30))
def test_columns_of_numbers_agree_with_single_numbers(values):
    cells = pl.Series([None if v is None else json.dumps(v) for v in values], dtype=pl.String)
    for whole, single in ((columns.counts, numbers.count), (columns.amounts, numbers.amount)):
        column = whole(cells, is_json=True)
        for n, value in enumerate(values):
            wanted, reason, flags = scalar(single, value)
            got = column.values[n]
            assert (got is None) == (wanted is None), (value, got, wanted)
            assert got is None or math.isclose(got, wanted, rel_tol=1e-15)
            assert is_rejected(column, n) == (reason is not None), (value, reason)
            assert any(where[n] for _, where in column.flags) == bool(flags), (value, flags)


TIMES = st.one_of(
    st.none(),
    st.integers(0, 10**19),
    st.integers(1_772_000_000, 1_772_900_000),
    st.datetimes(min_value=datetime(1971, 1, 1)).map(lambda d: d.isoformat(" ")),  # noqa: DTZ001 - wall clock
    st.sampled_from([
        "2026-10-25 02:30:00", "2026-03-29 02:30:00", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00.1234567+01:00",
        "2026-03-01", "2026-02-30 10:00:00", "x", "", "1772359200", "1772359200.5", "-5",
    ]),
)  # fmt: skip


@given(st.lists(TIMES, min_size=1, max_size=12), st.booleans())
def test_columns_of_instants_agree_with_single_instants(values, in_order):
    zone = ZoneInfo("Europe/Berlin")
    cells = pl.Series([None if v is None else json.dumps(v) for v in values], dtype=pl.String)
    column = columns.instants(cells, Clock(zone, None, in_order, {}), is_json=True)
    clock = Clock(zone, None, in_order, {})
    for n, value in enumerate(values):
        wanted, reason, flags = scalar(clock.instant_us, value)
        assert column.values[n] == wanted, value
        assert is_rejected(column, n) == (reason is not None), value
        assert sorted(word for word, where in column.flags if where[n]) == sorted(flags), value


def spend_rows():
    count = st.one_of(st.none(), st.integers(0, 9000))
    text = st.one_of(st.none(), st.sampled_from(["", "a", "chat-8b", "x/y"]))
    details = st.one_of(st.none(), st.fixed_dictionaries({"cached_tokens": count}))
    usage = st.fixed_dictionaries({"prompt_tokens_details": details, "cache_read_input_tokens": count})
    error = st.fixed_dictionaries({"error_code": text, "error_class": text})
    retries = st.one_of(st.none(), st.integers(0, 3))
    metadata = {"usage_object": st.one_of(st.none(), usage), "attempted_retries": retries, "session_id": text}
    calls = st.fixed_dictionaries({"tool_calls": st.one_of(st.none(), st.lists(st.just({"id": "c"}), max_size=2))})
    reasons = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter"])
    choice = st.fixed_dictionaries({"finish_reason": reasons, "message": calls})
    role = st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "assistant", "system"])})
    asked = st.fixed_dictionaries({"max_tokens": count, "messages": st.lists(role, max_size=4)})
    stamps = [f"2026-03-01 10:00:0{s}.250000" for s in (0, 1, 2)]
    texts = dict.fromkeys(
        ("litellm_call_id", "model", "model_group", "custom_llm_provider", "team_id", "user", "session_id"), text
    )
    return st.fixed_dictionaries({
        **texts,
        "request_id": st.sampled_from(["r1", "r2_cache_hit1764.25", "b_batch_cost", "r4"]),
        "call_type": st.sampled_from(["acompletion", "aembedding", "", "call_mcp_tool", "pass_through_endpoint"]),
        "startTime": st.just(stamps[0]), "endTime": st.just(stamps[2]),
        "completionStartTime": st.sampled_from([None, stamps[1], stamps[2]]),
        "prompt_tokens": count, "completion_tokens": count,
        "status": st.sampled_from(["success", "failure", None]),
        "cache_hit": st.sampled_from(["True", "False", "None", ""]),
        "request_tags": st.lists(st.sampled_from(["a", "health-check"]), max_size=2),
        "metadata": st.fixed_dictionaries({**metadata, "error_information": st.one_of(st.none(), error)}),
        "response": st.one_of(st.just({}), st.fixed_dictionaries({"choices": st.lists(choice, max_size=2)})),
        "proxy_server_request": st.one_of(st.just({}), asked),
    })  # fmt: skip


@settings(deadline=None)
@given(st.lists(spend_rows(), min_size=1, max_size=6), st.booleans())
def test_typed_spend_rows_agree_with_lenient_ones(rows, is_nested_text):
    if is_nested_text:
        for row in rows:
            row.update({name: json.dumps(row[name]) for name in ("metadata", "response", "proxy_server_request")})
    lines = [json.dumps(row).encode() for row in rows]
    positions = list(range(len(lines)))
    source = Source("litellm", "", timezone="UTC", zero_usage="missing")
    typed, odd = typed_rows(LineBatch(lines, positions), litellm.SHAPE, litellm.LENIENT_IF)
    assert typed is not None
    assert not odd.lines
    fast = litellm.canonicalise(Batch("f", [], [], {}, typed), source)
    slow = litellm.canonicalise(Batch("f", lines, positions, {}), source)
    assert finish(fast.rows, "litellm", "f").equals(finish(slow.rows, "litellm", "f"), null_equal=True)
    assert (fast.ignored, fast.rejects) == (slow.ignored, slow.rejects)
