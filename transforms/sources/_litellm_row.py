"""Shape of a row of LiteLLM's spend log: only what is used, the texts of prompts and answers are passed over.

Source: litellm/proxy/schema.prisma 1.110.2 (log_formats.md §1a).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A number of tokens that fits the lake's int64; anything beyond is settled leniently."""


class Details(msgspec.Struct):
    """`prompt_tokens_details` and `completion_tokens_details`."""

    cached_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct):
    """`usage_object` and `additional_usage_values` of the metadata."""

    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None


class ErrorInformation(msgspec.Struct):
    """Code and class of a failure."""

    error_code: str | int | None = None
    error_class: str | None = None


class Parameters(msgspec.Struct):
    """What the caller asked for."""

    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    max_output_tokens: Count | None = None
    n: Count | None = None


class Block(msgspec.Struct):
    """A part of a message's content; only its kind."""

    type: str | None = None


class Message(msgspec.Struct):
    """A message of the prompt: who speaks, and of content only the kinds of its parts."""

    role: str | None = None
    content: str | list[Block] | None = None


class Request(Parameters):
    """`proxy_server_request`."""

    messages: list[Message] | None = None


class Answer(msgspec.Struct):
    """`message` of a choice."""

    tool_calls: list[msgspec.Raw] | None = None


class Choice(msgspec.Struct):
    """One of the `choices` of a response."""

    finish_reason: str | None = None
    message: Answer | None = None


class Response(msgspec.Struct):
    """`response`."""

    choices: list[Choice] | None = None
    stop_reason: str | None = None
    content: list[Block] | None = None


class Metadata(msgspec.Struct):
    """`metadata`."""

    status: str | None = None
    usage_object: Usage | None = None
    additional_usage_values: Usage | None = None
    error_information: ErrorInformation | None = None
    attempted_retries: Count | None = None
    session_id: str | None = None
    agent_id: str | None = None
    queue_time_seconds: float | None = None
    model_parameters: Parameters | None = None
    internal_call_origin: str | None = None


class Row(msgspec.Struct):
    """One row of the spend log (or of the error log, whose names stand at the end)."""

    request_id: str | None = None
    litellm_call_id: str | None = None
    call_type: str | None = None
    api_key: str | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    startTime: str | float | None = None  # noqa: N815 - the log's own names
    endTime: str | float | None = None  # noqa: N815
    completionStartTime: str | float | None = None  # noqa: N815
    model: str | None = None
    model_id: str | None = None
    model_group: str | None = None
    custom_llm_provider: str | None = None
    user: str | None = None
    team_id: str | None = None
    organization_id: str | None = None
    end_user: str | None = None
    cache_hit: str | bool | None = None
    session_id: str | None = None
    agent_id: str | None = None
    status: str | None = None
    mcp_namespaced_tool_name: str | None = None
    request_tags: list[str] | str | None = None
    metadata: Metadata | str | None = None
    proxy_server_request: Request | str | None = None
    response: Response | str | None = None
    exception_type: str | None = None
    status_code: str | None = None
    litellm_model_name: str | None = None
