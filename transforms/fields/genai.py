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

    Told = Mapping[str, Sequence[Any]]

MEANINGS: dict[str, tuple[str, ...]] = {
    "prompt": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
        "ai.usage.promptTokens", "llm.usage.prompt_tokens", "llm.usage.input_tokens", "gen_ai.response.prompt_tokens",
        "ai.usage.tokens",
    ),
    "output": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "ai.usage.outputTokens", "ai.usage.completionTokens", "llm.usage.completion_tokens",
        "llm.usage.output_tokens", "gen_ai.response.completion_tokens",
    ),
    "cached": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.cache_read_tokens", "gen_ai.usage.cached_tokens", "gen_ai.usage.cached_input_tokens",
        "gen_ai.usage.input_tokens.cached", "gen_ai.usage.input_tokens_details.cached_tokens",
        "gen_ai.usage.prompt_tokens_details.cached_tokens", "gen_ai.usage.details.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.details.cached_tokens",
        "llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_input",
        "llm.usage.cache_read_input_tokens", "ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens",
    ),
    "written": (
        "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_creation_tokens", "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_write_input_tokens", "gen_ai.usage.cache_write_tokens",
        "gen_ai.usage.input_tokens.cache_write", "gen_ai.usage.details.cache_creation_input_tokens",
        "gen_ai.usage.details.cache_write_tokens", "llm.token_count.prompt_details.cache_write",
        "llm.usage.cache_creation_input_tokens", "ai.usage.inputTokenDetails.cacheWriteTokens",
    ),
    "reasoning": (
        "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning_output_tokens",
        "gen_ai.usage.output_tokens.reasoning", "gen_ai.usage.output_tokens_details.reasoning_tokens",
        "gen_ai.usage.completion_tokens_details.reasoning_tokens", "gen_ai.usage.details.reasoning_tokens",
        "gen_ai.usage.thinking_tokens", "llm.token_count.completion_details.reasoning", "llm.usage.reasoning_tokens",
        "ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens",
    ),
    "total": (
        "gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total", "ai.usage.totalTokens",
    ),
    "call": ("gen_ai.response.id", "gen_ai.request.id", "ai.response.id", "llm.response.id"),
    "model": (
        "gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.model_name", "llm.request.model",
        "embedding.model_name", "ai.response.model", "ai.model.id", "langfuse.observation.model.name",
    ),
    "session": (
        "gen_ai.conversation.id", "session.id", "langfuse.session.id", "ai.telemetry.metadata.sessionId",
        "traceloop.association.properties.session_id", "traceloop.association.properties.conversation_id",
    ),
    "tenant": (
        "tenant.id", "user.id", "enduser.id", "gen_ai.user.id", "langfuse.user.id", "ai.telemetry.metadata.userId",
        "traceloop.association.properties.user_id", "service.namespace",
    ),
    "agent": ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name", "agent_name", "graph.node.id"),
    "replica": ("service.instance.id", "k8s.pod.name"),
    "finish": (
        "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.response.finish_reason",
        "llm.finish_reason", "ai.response.finishReason", "ai.finishReason", "finish_reason",
    ),
    "limit": (
        "gen_ai.request.max_tokens", "gen_ai.request.max_output_tokens", "llm.request.max_tokens",
        "ai.settings.maxOutputTokens", "ai.settings.maxTokens",
    ),
    "choices": ("gen_ai.request.choice.count", "gen_ai.request.n", "llm.request.n"),
    "error": ("error.type", "gen_ai.error.type"),
    "exception": ("exception.type",),
    "http_code": ("http.response.status_code", "http.status_code"),
    "queue_s": ("gen_ai.latency.time_in_queue",),
    "e2e_s": ("gen_ai.latency.e2e",),
    "engine_ttft_s": ("gen_ai.latency.time_to_first_token",),
    "engine": ("gen_ai.latency.time_in_model_inference", "gen_ai.latency.time_in_model_prefill"),
    "first_chunk_s": ("gen_ai.response.time_to_first_chunk",),
    "first_chunk_ms": ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk"),
    "first_chunk_at": ("langfuse.observation.completion_start_time",),
    "parameters": ("llm.invocation_parameters",),
    "answer": ("gen_ai.output.messages",),
    "calls": ("ai.response.toolCalls",),
    "operation": ("gen_ai.operation.name",),
    "kind": (
        "openinference.span.kind", "langfuse.observation.type", "langsmith.span.kind", "gen_ai.span.kind",
        "mlflow.spanType",
    ),
    "traceloop": ("traceloop.span.kind",),
    "request_type": ("llm.request.type",),
    "vercel": ("ai.operationId",),
    "mcp": ("mcp.method.name",),
    "tool": ("gen_ai.tool.name", "gen_ai.tool.call.id", "ai.toolCall.name", "tool.name"),
    "asked": (),
}  # fmt: skip
"""What is asked of a span, and the attributes that answer it, the most trusted first.

"asked" has the tools an answer asks for, one attribute each (OpenInference, OpenLLMetry): names as in _ASKED.
"""

FIRST_TOKEN_EVENTS = frozenset((
    "First Token Stream Event", "gen_ai.content.chunk", "llm.content.completion.chunk", "first_token",
    "llm.first_token", "gen_ai.first_token", "ai.stream.firstChunk",
))  # fmt: skip
ENGINE = ("engine_ttft_s", "e2e_s", "queue_s", "engine")
"""Answers that only an engine gives."""
ENGINE_SPAN = "llm_request"
"""vLLM's span of a request."""

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

RESOURCE_PATH = re.compile(r"^(?:.*/)?models/(?=[^/]+$)")
"""What stands before a model's name where a cloud's resource path (projects/…/models/NAME) is its name."""
_PLACES = {name: (meaning, rank) for meaning, names in MEANINGS.items() for rank, name in enumerate(names)}
_ASKED_PLACE = ("asked", 0)
_ASKED = (("llm.output_messages.", ".tool_call.function.name"), ("gen_ai.completion.", ".name"))
_OF_CALLS = ("prompt", "output", "call", "model", "finish")


def wanted(name: str) -> bool:
    """Whether an attribute of that name is used: one of the names above, or the name of a tool the answer asks for."""
    return name in _PLACES or (".tool_calls." in name and _is_asked(name))


def _is_asked(name: str) -> bool:
    return any(name.startswith(start) and name.endswith(end) for start, end in _ASKED)


def told(attributes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What the wanted `attributes` of a span say, by meaning: the values that say something, the most trusted first."""
    found: dict[str, list[Any]] = {}
    ranks: dict[str, int] = {}
    for name, value in attributes.items():
        if value is None or value == "":
            continue
        meaning, rank = _PLACES.get(name, _ASKED_PLACE)
        if meaning not in found:
            found[meaning], ranks[meaning] = [value], rank
        elif rank < ranks[meaning]:
            found[meaning].insert(0, value)
            ranks[meaning] = rank
        else:
            found[meaning].append(value)
    return found


def first(said: Told, meaning: str) -> Any:
    """The most trusted value of that meaning; None where there is none."""
    values = said.get(meaning)
    return values[0] if values else None


def first_text(said: Told, meaning: str) -> str | None:
    """The most trusted name or id of that meaning, as text."""
    for value in said.get(meaning, ()):
        if word := text(value):
            return word
    return None


def tokens(said: Told, meaning: str, flags: list[str]) -> int | None:
    """The first number above zero of that meaning, else zero if one says so; ValueError as `count`."""
    known = None
    for value in said.get(meaning, ()):
        number = count(value, flags)
        if number:
            return number
        known = number if known is None else known
    return known


def usage_of(said: Told, flags: list[str]) -> Usage:
    """The token counts a span carries; ValueError with a fixed reason where one is no whole number."""
    names = ("prompt", "cached", "written", "output", "reasoning", "total")
    return Usage(*(tokens(said, name, flags) for name in names))


def kind_of(name: str, said: Told) -> str | None:
    """What a span says it is: chat, embedding, rerank, tool, agent or other; None where it does not say."""
    request_type = first(said, "request_type")
    task = () if request_type else said.get("traceloop", ())  # a call inside a task has the task's kind
    for word in (*said.get("operation", ()), *said.get("kind", ()), *((request_type,) if request_type else task)):
        if found := _kind(word):
            return found
    if request_type:
        return "chat"
    if "vercel" in said or name.startswith("ai."):
        return _vercel(str(first(said, "vercel") or name))
    if any(meaning in said for meaning in ENGINE):
        return "chat"
    if first(said, "mcp") == "tools/call" or "tool" in said:
        return "tool"
    return _kind_by_name(name, said)


def _kind(word: Any) -> str | None:
    """What a word of an operation or kind says; LiteLLM puts an "a" before the asynchronous ones."""
    if not isinstance(word, str):
        return None
    lower = word.strip().lower()
    return WORDS.get(lower) or WORDS.get(lower.removeprefix("a"))


def _kind_by_name(name: str, said: Told) -> str | None:
    """What the name alone says: a call only where an attribute speaks of a model too."""
    word = name.split(" ", 1)[0]
    found = "chat" if name == ENGINE_SPAN else WORDS[word] if word in NAMES and " " in name else None
    is_call = found not in (None, "tool", "agent", "other")
    return None if is_call and not any(meaning in said for meaning in _OF_CALLS) else found


def _vercel(operation: str) -> str:
    """Only the inner calls of the AI SDK are model calls; what encloses them repeats their sum."""
    operation = operation.split(" ", 1)[0]
    if operation.endswith((".doGenerate", ".doStream")):
        return "chat"
    if operation.endswith(".doEmbed"):
        return "embedding"
    return "tool" if operation == "ai.toolCall" else "other"
