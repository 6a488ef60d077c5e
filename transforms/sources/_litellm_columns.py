"""Columns of LiteLLM rows that come out of their nested objects: usage, limits, tool calls and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from transforms.sources._litellm_row import TEXTS

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGES = ("usage_object", "additional_usage_values")
TOOL_ROLES = ("tool", "function")


def columns_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of SHAPE as flat columns: "" is NULL, and of the nested objects the values that are used."""
    metadata, asked = pl.col("metadata").struct, pl.col("proxy_server_request").struct
    error, own = metadata.field("error_information").struct, metadata.field("model_parameters").struct
    return rows.select(
        *(_filled(pl.col(name)).alias(name) for name in TEXTS),
        "prompt_tokens",
        "source_position",
        "flags",
        output_tokens="completion_tokens",
        tags=pl.col("request_tags").list.join(" "),
        named_status=metadata.field("status"),
        attempted_retries=metadata.field("attempted_retries"),
        named_session_id=_filled(metadata.field("session_id")),
        named_agent_id=_filled(metadata.field("agent_id")),
        queue_s=metadata.field("queue_time_seconds").fill_nan(None),
        call_origin=metadata.field("internal_call_origin"),
        error_code=error.field("error_code"),
        error_class=error.field("error_class"),
        cached_prompt_tokens=_usage("prompt_tokens_details", "cached_tokens", "cache_read_input_tokens"),
        cache_write_tokens=_usage("prompt_tokens_details", "cache_creation_tokens", "cache_creation_input_tokens"),
        reasoning_tokens=_usage("completion_tokens_details", "reasoning_tokens"),
        requested_output_tokens=pl.coalesce(
            given.field(name)
            for given in (own, asked)
            for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")
        ),
        choices=pl.coalesce(own.field("n"), asked.field("n"), _several_choices()),
        tool_results=_tool_results(rows),
        **_answered(),
    )


def _filled(value: pl.Expr) -> pl.Expr:
    """A text; NULL for "" and for an object or a list where a text belongs."""
    is_text = (value != "") & ~value.str.starts_with("{") & ~value.str.starts_with("[")
    return pl.when(is_text).then(value)


def _usage(details: str, name: str, beside: str | None = None) -> pl.Expr:
    """A count of tokens, from wherever the version of the proxy puts it."""
    places: list[pl.Expr] = []
    for usage in USAGES:
        found = pl.col("metadata").struct.field(usage).struct
        places.append(found.field(details).struct.field(name))
        if beside:
            places.append(found.field(beside))
    return pl.coalesce(places)


def _answered() -> dict[str, pl.Expr]:
    """The finish reason, and the tool calls the response asks for; NULL where the response was not logged."""
    response = pl.col("response").struct
    choices = response.field("choices")
    first = choices.list.first().struct
    calls = choices.list.eval(pl.element().struct.field("message").struct.field("tool_calls").list.len())
    used = response.field("content").list.eval(pl.element().struct.field("type") == "tool_use").list.sum()
    return {
        "finish_reason": pl.coalesce(first.field("finish_reason"), response.field("stop_reason")),
        "tool_calls": pl.when(choices.list.len() > 0).then(calls.list.sum()).otherwise(used),
    }


def _several_choices() -> pl.Expr:
    """How many choices the logged response has, where it has more than one."""
    number = pl.col("response").struct.field("choices").list.len().cast(pl.Int64)
    return pl.when(number > 1).then(number)


def _tool_results(rows: pl.DataFrame) -> pl.Series:
    """Results that each prompt adds: those after the last answer among its messages; NULL where none were logged."""
    messages = rows["proxy_server_request"].struct.field("messages")
    roles = messages.list.eval(pl.element().struct.field("role")).list.join("\x1f", ignore_nulls=True)
    known = roles.unique().drop_nulls().to_list()
    results = [_results(text.split("\x1f")) for text in known]
    counted = pl.DataFrame({"roles": known, "results": results}, schema={"roles": pl.String, "results": pl.Int32})
    joined = roles.alias("roles").to_frame().join(counted, on="roles", how="left", maintain_order="left")
    return joined["results"]


def _results(roles: Sequence[str]) -> int:
    results = 0
    for role in reversed(roles):
        if role == "assistant":
            break
        results += role in TOOL_ROLES
    return results
