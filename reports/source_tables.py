"""Printed tables of what the figures rest on: files read, records rejected, assumptions and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from reports.assumption_words import assumption_word
from reports.blocks import Column, Table, table, text
from reports.marts import ALL, rows
from reports.printed import percent, whole
from reports.words import about_word, deployment_word, file_word

if TYPE_CHECKING:
    from reports.marts import Marts

MOST_ROWS = 200
"""Most rows of a printed table; the warehouse has the rest."""

HASH_DIGITS = 12


def data_quality(marts: Marts) -> Table:
    """What was read from each file, and how much of it is unknown."""
    return table("Records read, by file", _first(rows(marts, "mart_data_quality")), [
        Column("source_file", "File", file_word, is_text=True),
        Column("source", "Format", text, is_text=True),
        Column("status", "Status", text, is_text=True),
        Column("read_rows", "Read", whole),
        Column("loaded_rows", "Loaded", whole),
        Column("duplicates_rows", "Duplicates", whole),
        Column("rejected_rows", "Rejected", whole),
        Column("ignored_rows", "Ignored", whole),
        Column("chat_rows", "Chat rows this week", whole),
        Column("unknown_prompt_ratio", "No prompt length", percent),
        Column("unknown_output_ratio", "No output length", percent),
        Column("unknown_ttft_ratio", "No TTFT", percent),
        Column("unknown_e2e_ratio", "No E2E", percent),
        Column("unknown_session_ratio", "No session", percent),
        Column("content_sha256", "SHA-256", _hash, is_text=True),
    ], "mart_data_quality",
        note="Counts records: one an attempt, of any operation and week; only chat rows are of this week. "
        + _left_out(marts, "mart_data_quality"),
    )  # fmt: skip


def counts(marts: Marts) -> Table:
    """From chat requests to the attempts that the plan is made from."""
    frame = rows(marts, "mart_counts").sort(pl.col("deployment_id") == ALL, "deployment_id")
    return table("From the requests of the headline to what the plan counts", frame, [
        Column("deployment_id", "Deployment", deployment_word, is_text=True),
        Column("requests", "Chat requests", whole),
        Column("cache_requests", "Answered by the gateway's cache", whole),
        Column("turned_away_requests", "Turned away before a replica", whole),
        Column("backend_requests", "Seen by a replica", whole),
        Column("attempts_requests", "Attempts", whole),
        Column("usable_requests", "Lengths known", whole),
        Column("unknown_requests", "Lengths unknown", whole),
        Column("failed_requests", "Failed requests", whole),
    ], "mart_counts",
        note="The headline counts chat requests. Less those of the cache and those turned away they are the ones a "
        "replica saw; each retry of these is one more attempt; the plan is made from attempts of known lengths.",
    )  # fmt: skip


def rejects(marts: Marts) -> Table:
    """Why records were rejected."""
    frame = rows(marts, "mart_rejects").sort("rejected_rows", "source_file", "reason", descending=[True, False, False])
    return table("Rejected records, by reason", _first(frame), [
        Column("source_file", "File", file_word, is_text=True),
        Column("reason", "Reason", text, is_text=True),
        Column("rejected_rows", "Records", whole),
    ], "mart_rejects", empty="No record was rejected.", note=_left_out(marts, "mart_rejects"))  # fmt: skip


def assumptions(marts: Marts) -> Table:
    """Every assumption with its label and where it comes from."""
    frame = rows(marts, "mart_assumptions").sort("deployment_id", "name").with_columns(meaning=pl.col("name"))
    return table("Assumptions and settings", _first(frame), [
        Column("deployment_id", "About", about_word, is_text=True),
        Column("name", "Name", text, is_text=True),
        Column("meaning", "What it is", assumption_word, is_text=True),
        Column("value_text", "Value", text, is_text=True),
        Column("unit", "Unit", text, is_text=True),
        Column("provenance", "Label", text, is_text=True),
        Column("source_text", "Where from", text, is_text=True),
    ], "mart_assumptions", note=_left_out(marts, "mart_assumptions"))  # fmt: skip


def warnings(marts: Marts) -> Table:
    """All warnings of the week, then all notes."""
    frame = rows(marts, "mart_warnings").sort("severity", "deployment_id", "code", descending=[True, False, False])
    return table("Warnings, then notes", frame, [
        Column("severity", "Kind", text, is_text=True),
        Column("deployment_id", "About", about_word, is_text=True),
        Column("code", "Code", text, is_text=True),
        Column("text", "Text", text, is_text=True),
    ], "mart_warnings", empty="No warnings.",
        note="A warning may change what is decided; a note says how the figures came about.")  # fmt: skip


def _hash(value: Any) -> str:
    return text(None if value is None else str(value)[:HASH_DIGITS])


def _first(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.head(MOST_ROWS)


def _left_out(marts: Marts, name: str) -> str:
    total = rows(marts, name).height
    return "" if total <= MOST_ROWS else f"The first {MOST_ROWS} of {total:,} rows; the rest is in {name}."
