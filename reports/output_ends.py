"""The table of what ended outputs: which were cut, and so say nothing about how long they would have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.blocks import Column, Table, table, text
from reports.marts import some
from reports.printed import compact, percent, whole

if TYPE_CHECKING:
    from reports.marts import Marts


def output_ends(marts: Marts, deployment_id: str) -> Table | None:
    """One row a reason with its share, this week and the last; None without outputs of known lengths."""
    frame = some(marts, "mart_output_ends", deployment_id=deployment_id)
    if frame is None:
        return None
    return table("What ended outputs", frame.sort("requests", "reason", descending=[True, False]), [
        Column("reason_text", "Ended by", text, is_text=True),
        Column("requests", "Requests", whole),
        Column("share_ratio", "Share", percent),
        Column("previous_share_ratio", "Week before", percent, is_optional=True),
        Column("output_total_tokens", "Their output tokens", compact),
        Column("output_max_tokens", "Longest", whole),
    ], "mart_output_ends",
        note="By the first cause that holds: it failed; prompt and output fill max_model_len; the log says cut (status "
        "length) or, silent on that, the caller's limit is reached. Censored: cut before its own end, so its length is "
        "only a lower bound of what the model would have said.",
    )  # fmt: skip
