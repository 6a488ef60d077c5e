"""TGI's router log: Rust durations, JSON and text, failures, lines that end no request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.batches import Batch, Head, Parsed
from transforms.fleet import Source
from transforms.sources import tgi

END_US = 1_746_063_075_500_000  # 2025-05-01T01:31:15.5Z
PARAMETERS = 'GenerateParameters { best_of: None, max_new_tokens: Some(20), stop: ["a\\"b"], adapter_id: None }'
TIMES = {"total_time": "1.5s", "validation_time": "213.5µs", "queue_time": "51.2ms", "inference_time": "1.44s",
         "time_per_token": "72ms"}  # fmt: skip


def text_line(message: str = "Success", level: str = " INFO", spans: str | None = None) -> bytes:
    pairs = " ".join(f'{name}="{value}"' for name, value in TIMES.items())
    where = f'generate{{parameters={PARAMETERS} {pairs} seed="Some(1)"}}: ' if spans is None else spans
    target = "text_generation_router::server: router/src/server.rs:422: "
    return f"2025-05-01T01:31:15.500000Z {level} {where}{target}{message}".encode()


def json_line(message: str = "Success", level: str = "INFO", **span: Any) -> bytes:
    inner = {"name": "generate", "parameters": PARAMETERS, **TIMES, **span}
    return json.dumps(
        {"timestamp": "2025-05-01T01:31:15.500000Z", "level": level, "message": message,
         "target": "text_generation_router::server", "line_number": 422, "span": inner, "spans": [{"name": "generate"}]}
    ).encode()  # fmt: skip


def parse(*lines: bytes) -> Parsed:
    parsed = tgi.canonicalise(Batch("tgi.log", list(lines), list(range(len(lines)))), Source("tgi", "x"))
    assert len(parsed.rows) + len(parsed.rejects) + parsed.ignored == len(lines)
    return parsed


@pytest.mark.parametrize("line", [text_line(), json_line()])
def test_a_request_began_its_total_time_before_its_line(line: bytes) -> None:
    row = parse(line).rows.row(0, named=True)
    assert row["arrived_at"] == END_US - 1_500_000
    assert (row["e2e_s"], row["queue_s"], row["requested_output_tokens"]) == (1.5, 0.0512, 20)
    assert (row["status"], row["flags"]) == ("ok", ["usage_missing"])
    assert "output_tokens" not in row


def test_json_and_text_say_the_same() -> None:
    text, document = parse(text_line()).rows, parse(json_line()).rows
    assert text.equals(document)


def test_colours_of_a_terminal_are_taken_off() -> None:
    line = (
        text_line().replace(b"generate{", b"\x1b[1mgenerate\x1b[0m\x1b[1m{\x1b[0m").replace(b"2025", b"\x1b[2m2025", 1)
    )
    assert parse(line).rows["e2e_s"].to_list() == [1.5]
    assert tgi.recognise(Head("x", text=[line.decode()]))


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1.23s", 1.23), ("51.2ms", 0.0512), ("213µs", 0.000213), ("213μs", 0.000213), ("750ns", 7.5e-7), ("0ns", 0.0),
     ("94.5us", 9.45e-5), ("3s", 3.0)],
)  # fmt: skip
def test_durations(written: str, seconds: float) -> None:
    assert tgi.duration_s(written) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(0, 10**13))
def test_every_duration_rust_writes_is_read(nanoseconds: int) -> None:
    """Rust's Debug of a Duration: the largest unit that leaves a whole part, with the fraction's zeros cut."""
    unit, size = next(
        (u, s) for u, s in (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1)) if nanoseconds >= s or s == 1
    )
    whole, part = divmod(nanoseconds, size)
    fraction = f"{part:0{len(str(size)) - 1}}".rstrip("0") if part else ""
    written = f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"
    assert tgi.duration_s(written) == pytest.approx(nanoseconds / 1e9, rel=1e-12)


@pytest.mark.parametrize("written", ["", "1.2", "fast", "-1s", "1h", "1.2.3s", None, 7])
def test_what_is_no_duration(written: Any) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        tgi.duration_s(written)


def test_failures_inside_a_requests_span() -> None:
    parsed = parse(
        json_line("Input validation error: `inputs` must have less than 10 tokens", "ERROR", total_time=None),
        json_line("Model is overloaded", "ERROR", total_time=None),
        json_line("Request failed during generation: CUDA out of memory", "ERROR", total_time=None),
        text_line("Input validation error: too long", "ERROR", spans="chat_completions{seed=1}:generate{x=1}: "),
    )
    assert parsed.rows["status"].to_list() == ["rejected", "rejected", "error", "rejected"]
    assert parsed.rows["arrived_at"].to_list() == [END_US] * 4
    assert all("arrival_from_response" in flags for flags in parsed.rows["flags"])


def test_lines_that_end_no_request_are_ignored() -> None:
    parsed = parse(
        text_line("Connected", spans=""),
        b"thread 'main' panicked at router/src/main.rs:1:1:",
        json_line("Token", "DEBUG"),
        b'{"timestamp":"2025-05-01T01:31:15Z","level":"WARN","message":"x","target":"text_generation_launcher"}',
        text_line("Success", spans="health{}: "),
    )
    assert (len(parsed.rows), parsed.ignored) == (0, 5)


def test_times_in_a_users_stop_word_are_not_the_requests() -> None:
    line = text_line().replace(b'a\\"b', b'total_time=\\"99s\\"')
    assert parse(line).rows["e2e_s"].to_list() == [1.5]


def test_damage_is_rejected() -> None:
    parsed = parse(json_line()[:-5], json_line(queue_time="fast"), json_line(total_time="99999999999s"), json_line())
    assert [reject.reason for reject in parsed.rejects] == ["not JSON", "not a duration", "time out of range"]
    assert len(parsed.rows) == 1


@pytest.mark.parametrize("odd", [[], {}, "x", 7, True, None])
@pytest.mark.parametrize("name", ["span", "spans", "message", "level", "target", "timestamp", "fields"])
def test_fields_of_any_kind_are_survived(name: str, odd: Any) -> None:
    parse(json.dumps(json.loads(json_line()) | {name: odd}).encode())
