"""Attribute names of model calls in OpenTelemetry spans: which names say the same, and what kind of span it is.

Sources: log_formats.md §2b and §2c (OpenTelemetry GenAI, old and new names; vLLM's and SGLang's engine spans), the
OpenInference conventions, Vercel's AI SDK telemetry, OpenLLMetry (traceloop), Langfuse's and LangSmith's attributes.
Several names of one thing are never added: the first that says something counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transforms.fields.conservation import Usage
from transforms.fields.numbers import count
from transforms.fields.words import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROMPT = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
    "ai.usage.promptTokens", "llm.usage.prompt_tokens", "llm.usage.input_tokens", "gen_ai.response.prompt_tokens",
    "ai.usage.tokens",
)  # fmt: skip
OUTPUT = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
    "ai.usage.outputTokens", "ai.usage.completionTokens", "llm.usage.completion_tokens", "llm.usage.output_tokens",
    "gen_ai.response.completion_tokens",
)  # fmt: skip
CACHED = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_read_tokens",
    "gen_ai.usage.cached_tokens", "gen_ai.usage.cached_input_tokens", "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.input_tokens_details.cached_tokens", "gen_ai.usage.prompt_tokens_details.cached_tokens",
    "gen_ai.usage.details.cache_read_input_tokens", "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cached_tokens", "llm.token_count.prompt_details.cache_read",
    "llm.token_count.prompt_details.cache_input", "llm.usage.cache_read_input_tokens",
    "ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens",
)  # fmt: skip
WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_creation_tokens", "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_write_input_tokens", "gen_ai.usage.cache_write_tokens",
    "gen_ai.usage.input_tokens.cache_write", "gen_ai.usage.details.cache_creation_input_tokens",
    "gen_ai.usage.details.cache_write_tokens", "llm.token_count.prompt_details.cache_write",
    "llm.usage.cache_creation_input_tokens", "ai.usage.inputTokenDetails.cacheWriteTokens",
)  # fmt: skip
REASONING = (
    "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning_output_tokens",
    "gen_ai.usage.output_tokens.reasoning", "gen_ai.usage.output_tokens_details.reasoning_tokens",
    "gen_ai.usage.completion_tokens_details.reasoning_tokens", "gen_ai.usage.details.reasoning_tokens",
    "gen_ai.usage.thinking_tokens", "llm.token_count.completion_details.reasoning", "llm.usage.reasoning_tokens",
    "ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens",
)  # fmt: skip
TOTAL = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total", "ai.usage.totalTokens")

CALL_ID = ("gen_ai.response.id", "gen_ai.request.id", "ai.response.id", "llm.response.id")
MODEL = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.model_name", "llm.request.model",
    "embedding.model_name", "ai.response.model", "ai.model.id", "langfuse.observation.model.name",
)  # fmt: skip
SESSION = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id", "ai.telemetry.metadata.sessionId",
    "traceloop.association.properties.session_id", "traceloop.association.properties.conversation_id",
)  # fmt: skip
TENANT = (
    "tenant.id", "user.id", "enduser.id", "gen_ai.user.id", "langfuse.user.id", "ai.telemetry.metadata.userId",
    "traceloop.association.properties.user_id", "service.namespace",
)  # fmt: skip
AGENT = ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id")
REPLICA = ("service.instance.id", "k8s.pod.name")
FINISH = (
    "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason",
    "llm.finish_reason", "ai.response.finishReason", "ai.finishReason",
)  # fmt: skip
LIMIT = ("gen_ai.request.max_tokens", "gen_ai.request.max_output_tokens", "llm.request.max_tokens",
         "ai.settings.maxOutputTokens", "ai.settings.maxTokens")  # fmt: skip
CHOICES = ("gen_ai.request.choice.count", "gen_ai.request.n", "llm.request.n")
ERROR = ("error.type", "exception.type", "gen_ai.error.type")
HTTP_CODE = ("http.response.status_code", "http.status_code")
QUEUE = "gen_ai.latency.time_in_queue"
E2E = "gen_ai.latency.e2e"
TTFT = "gen_ai.latency.time_to_first_token"
ENGINE = (TTFT, E2E, QUEUE, "gen_ai.latency.time_in_model_inference", "gen_ai.latency.time_in_model_prefill")
FIRST_TOKEN_S = (TTFT, "gen_ai.response.time_to_first_chunk")
FIRST_TOKEN_MS = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")
FIRST_CHUNK_AT = "langfuse.observation.completion_start_time"
FIRST_TOKEN_EVENTS = frozenset((
    "First Token Stream Event", "gen_ai.content.chunk", "llm.content.completion.chunk", "first_token",
    "llm.first_token", "gen_ai.first_token", "ai.stream.firstChunk",
))  # fmt: skip
PARAMETERS = "llm.invocation_parameters"
OUTPUT_MESSAGES = "gen_ai.output.messages"
VERCEL_CALLS = "ai.response.toolCalls"

OPERATION = "gen_ai.operation.name"
REQUEST_TYPE = "llm.request.type"
VERCEL = "ai.operationId"
MCP = "mcp.method.name"
TOOL = ("gen_ai.tool.name", "gen_ai.tool.call.id", "ai.toolCall.name", "tool.name")
KINDS = (
    "openinference.span.kind", "langfuse.observation.type", "langsmith.span.kind", "traceloop.span.kind",
    "gen_ai.span.kind", "mlflow.spanType",
)  # fmt: skip

WORDS = {
    "chat": "chat", "text_completion": "chat", "generate_content": "chat", "completion": "chat", "responses": "chat",
    "llm": "chat", "chat_model": "chat", "generation": "chat",
    "embeddings": "embedding", "embedding": "embedding",
    "rerank": "rerank", "reranker": "rerank",
    "execute_tool": "tool", "tool": "tool",
    "invoke_agent": "agent", "create_agent": "agent", "agent": "agent",
    "invoke_workflow": "other", "workflow": "other", "chain": "other", "task": "other", "retrieval": "other",
    "retriever": "other", "guardrail": "other", "evaluator": "other", "span": "other", "prompt": "other",
    "parser": "other", "event": "other",
}  # fmt: skip
"""What an operation or kind, in lower case, makes of a span: a call of that operation, a tool, an agent, or neither."""
NAMES = ("chat", "text_completion", "generate_content", "embeddings", "execute_tool", "invoke_agent", "create_agent",
         "invoke_workflow")  # fmt: skip
"""Operations that the name of a span begins with, as the conventions have it."""
ENGINE_SPAN = "llm_request"
"""vLLM's span of a request."""

RESOURCE_PATH = re.compile(r"^(?:.*/)?models/(?=[^/]+$)")
"""What stands before a model's name where a cloud's resource path (projects/…/models/NAME) is its name."""
_NAMES = frozenset((
    *PROMPT, *OUTPUT, *CACHED, *WRITTEN, *REASONING, *TOTAL, *CALL_ID, *MODEL, *SESSION, *TENANT, *AGENT, *REPLICA,
    *FINISH, *LIMIT, *CHOICES, *ERROR, *HTTP_CODE, *ENGINE, *FIRST_TOKEN_S, *FIRST_TOKEN_MS, FIRST_CHUNK_AT,
    PARAMETERS, OUTPUT_MESSAGES, VERCEL_CALLS, OPERATION, REQUEST_TYPE, VERCEL, MCP, *TOOL, *KINDS, "finish_reason",
))  # fmt: skip
_OF_CALLS = (*PROMPT, *OUTPUT, *CALL_ID, *MODEL, *FINISH)
_ASKED = (("llm.output_messages.", ".tool_call.function.name"), ("gen_ai.completion.", ".name"))


def wanted(name: str) -> bool:
    """Whether an attribute of that name is used: one of the names above, or the name of a tool the answer asks for."""
    return name in _NAMES or is_asked_tool(name)


def is_asked_tool(name: str) -> bool:
    """Whether an attribute of that name names a tool call of the answer (OpenInference, OpenLLMetry)."""
    return ".tool_calls." in name and any(name.startswith(start) and name.endswith(end) for start, end in _ASKED)


def first(attributes: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of `names` that says something; None where none does."""
    for name in names:
        value = attributes.get(name)
        if value is not None and value != "":
            return value
    return None


def first_text(attributes: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of `names` that is a name or an id, as text."""
    return next((word for name in names if (word := text(attributes.get(name)))), None)


def tokens(attributes: Mapping[str, Any], names: Sequence[str], flags: list[str]) -> int | None:
    """Tokens under the first of `names` with a number above zero, else zero if one says so; ValueError as `count`."""
    known = None
    for name in names:
        if name in attributes:
            number = count(attributes[name], flags)
            if number:
                return number
            known = number if known is None else known
    return known


def usage_of(attributes: Mapping[str, Any], flags: list[str]) -> Usage:
    """The token counts a span carries; ValueError with a fixed reason where one is no whole number."""
    names = (PROMPT, CACHED, WRITTEN, OUTPUT, REASONING, TOTAL)
    return Usage(*(tokens(attributes, group, flags) for group in names))


def kind_of(name: str, attributes: Mapping[str, Any]) -> str | None:
    """What a span says it is: chat, embedding, rerank, tool, agent or other; None where it does not say."""
    for key in (OPERATION, *KINDS):
        word = attributes.get(key)
        if key == "traceloop.span.kind" and REQUEST_TYPE in attributes:
            word = attributes[REQUEST_TYPE]  # a call inside a task has the kind of the task
        found = _kind(word)
        if found:
            return found
    if isinstance(attributes.get(REQUEST_TYPE), str):
        return _kind(attributes[REQUEST_TYPE]) or "chat"
    if isinstance(attributes.get(VERCEL), str) or name.startswith("ai."):
        return _vercel(str(attributes.get(VERCEL) or name))
    if any(key in attributes for key in ENGINE):
        return "chat"
    if attributes.get(MCP) == "tools/call" or any(key in attributes for key in TOOL):
        return "tool"
    return _kind_by_name(name, attributes)


def _kind(word: Any) -> str | None:
    """What a word of an operation or kind says; LiteLLM puts an "a" before the asynchronous ones."""
    if not isinstance(word, str):
        return None
    lower = word.strip().lower()
    return WORDS.get(lower) or WORDS.get(lower.removeprefix("a"))


def _kind_by_name(name: str, attributes: Mapping[str, Any]) -> str | None:
    """What the name alone says: a call only where an attribute speaks of a model too."""
    word = name.split(" ", 1)[0]
    found = "chat" if name == ENGINE_SPAN else WORDS[word] if word in NAMES and " " in name else None
    is_call = found not in (None, "tool", "agent", "other")
    return None if is_call and not any(key in attributes for key in _OF_CALLS) else found


def _vercel(operation: str) -> str:
    """Only the inner calls of the AI SDK are model calls; what encloses them repeats their sum."""
    operation = operation.split(" ", 1)[0]
    if operation.endswith((".doGenerate", ".doStream")):
        return "chat"
    if operation.endswith(".doEmbed"):
        return "embedding"
    return "tool" if operation == "ai.toolCall" else "other"
