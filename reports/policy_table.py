"""The table of what keeping KV through tool waits costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.blocks import Column, Table, table, text
from reports.marts import some
from reports.printed import gib_s, gpu_hours, percent, seconds, usd_per_hour, yes_no

if TYPE_CHECKING:
    from reports.marts import Marts


def policies(marts: Marts, deployment_id: str) -> Table | None:
    """One row a policy with what it holds, computes anew and saves; None without tool waits."""
    frame = some(marts, "mart_tool_wait_policies", deployment_id=deployment_id)
    if frame is None:
        return None
    order = ("is_today", "saving_gpu_s", "policy")
    return table("What to do with KV while a tool runs", frame.sort(*order, descending=[True, True, False]), [
        Column("policy_text", "Policy", text, is_text=True),
        Column("is_today", "Today's", yes_no),
        Column("is_best", "Cheapest", yes_no),
        Column("break_even_s", "Break-even", seconds),
        Column("pool_full_ratio", "Pool full", percent),
        Column("held_byte_s", "Holds", gib_s),
        Column("held_gpu_s", "Keeps from others", gpu_hours),
        Column("recompute_gpu_s", "Computes anew", gpu_hours),
        Column("saving_gpu_s", "Saves", gpu_hours),
        Column("saving_usd_per_hour", "Saves, money", usd_per_hour, is_optional=True),
        Column("note", "Note", text, is_text=True, is_optional=True),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_tool_wait_policies",
        note="GPU hours of the covered time. Break-even: the wait, at the median context, from which computing anew is "
        "cheaper than holding on a full pool. Pool full: of what keeping every context would hold, the share at "
        "seconds when KV is full with it; at other times holding keeps nobody out.",
    )  # fmt: skip
