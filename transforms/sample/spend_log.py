"""Rows as LiteLLM's gateway writes them into its spend log: one JSON object a line, no text of prompt or answer."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from transforms.sample.attempts import MICROSECONDS, Attempts
from transforms.sample.calls import (
    ABORTED,
    CACHED,
    EMBEDDING,
    ERROR,
    FALLBACK,
    HEALTH,
    LENGTH,
    LIMITED,
    TIMEOUT,
    TOO_LONG,
    UNAVAILABLE,
)
from transforms.sample.services import CHAT, FIRST_DAY, Service, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

MIDNIGHT = datetime.fromisoformat(FIRST_DAY).replace(tzinfo=UTC)
EPOCH_US = round(MIDNIGHT.timestamp()) * MICROSECONDS
DAY_SECONDS = 86_400
CLOCK = [f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(DAY_SECONDS)]

FAILURES = {
    ERROR: {"error_code": "500", "error_class": "InternalServerError"},
    UNAVAILABLE: {"error_code": "503", "error_class": "ServiceUnavailableError"},
    TIMEOUT: {"error_code": "408", "error_class": "Timeout"},
    LIMITED: {"error_code": "429", "error_class": "RateLimitError"},
    TOO_LONG: {"error_code": "400", "error_class": "ContextWindowExceededError"},
    ABORTED: {"error_code": "499", "error_class": "CancelledError"},
}
"""LiteLLM's code and exception class of each way to fail."""

CHECKER = "litellm-internal-health-check"
"""Key, team and tag of the gateway's own checks (BerriAI/litellm#12880)."""

EMBEDDER = "bge-m3"
ORGANIZATION = "example"
NOBODY = Tenant("", 0.0, 0, 0, is_streaming=False)


class Call(NamedTuple):
    """One row of `Attempts` as plain numbers."""

    start_us: int
    first_us: int
    end_us: int
    uid: int
    attempt: int
    outcome: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    limit_tokens: int
    tool_calls: int
    tool_results: int
    replica: int
    session_uid: int
    agent_uid: int
    tenant: int
    user: int
    is_opening: int


def spend_log(attempts: Attempts, service: Service) -> Iterator[bytes]:
    """One line of JSON for each of `attempts`, newline included."""
    columns = zip(*(getattr(attempts, f.name).tolist() for f in fields(Attempts)), strict=True)
    for values in columns:
        yield orjson.dumps(_record(Call(*values), service), option=orjson.OPT_APPEND_NEWLINE)


def _record(call: Call, service: Service) -> dict[str, Any]:
    """The spend-log row of one attempt; failures carry no tokens, as LiteLLM writes them."""
    outcome = call.outcome
    is_failed = outcome in FAILURES
    tenant = service.tenants[call.tenant] if call.tenant >= 0 else NOBODY
    prompt, output = (0, 0) if is_failed else (call.prompt_tokens, call.output_tokens)
    number = f"{call.uid:016x}"
    is_seen = tenant.is_streaming and (outcome <= LENGTH or outcome == ABORTED)
    return {
        "request_id": _request_id(call, number, is_failed=is_failed),
        "call_type": "aembedding" if outcome == EMBEDDING else "acompletion",
        "api_key": _key(service.name, tenant.name),
        "spend": 0.0,
        "total_tokens": prompt + output,
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "startTime": _stamp(call.start_us),
        "endTime": _stamp(call.end_us),
        "completionStartTime": _stamp(call.first_us if is_seen else call.end_us),
        **_backend(service.model_group, service.backend_model, outcome, call.replica + 1),
        **_asker(tenant.name, call.user),
        "metadata": _metadata(call, has_reasoning=service.has_reasoning),
        "cache_hit": _cache_hit(outcome, has_cache=service.has_gateway_cache),
        "cache_key": number if service.has_gateway_cache and outcome not in (EMBEDDING, HEALTH) else "Cache OFF",
        "request_tags": [CHECKER] if outcome == HEALTH else [],
        "session_id": f"{call.session_uid:016x}",
        "status": "failure" if is_failed else "success",
        "litellm_call_id": f"call-{number}",
        "agent_id": f"{call.agent_uid:016x}" if call.agent_uid else None,
        "proxy_server_request": _request(outcome, call.limit_tokens, call.tool_results, call.is_opening),
        "response": _response(outcome, call.tool_calls),
    }


def _request_id(call: Call, number: str, *, is_failed: bool) -> str:
    if is_failed:
        return f"{number}-{call.attempt}"
    if call.outcome == CACHED:
        return f"chatcmpl-{number}_cache_hit{(EPOCH_US + call.start_us) / MICROSECONDS:.6f}"
    return f"embd-{number}" if call.outcome == EMBEDDING else f"chatcmpl-{number}"


@cache
def _key(service: str, team: str) -> str:
    """Hash that stands for the API key of a team, as LiteLLM stores it."""
    return sha256(f"{service}/{team}".encode()).hexdigest() if team else CHECKER


def _stamp(at_us: int) -> str:
    """The instant `at_us` after the first midnight as "YYYY-MM-DD HH:MM:SS.ffffff", UTC."""
    seconds, microseconds = divmod(at_us, MICROSECONDS)
    day, second = divmod(seconds, DAY_SECONDS)
    return f"{_date(day)} {CLOCK[second]}.{microseconds:06d}"


@cache
def _date(day: int) -> str:
    return (MIDNIGHT + timedelta(days=day)).strftime("%Y-%m-%d")


@cache
def _backend(group: str, model: str, outcome: int, replica: int) -> dict[str, str]:
    """Where the attempt went: nowhere on a gateway cache hit, to the chat on a fallback."""
    if outcome == FALLBACK:
        group, model = CHAT.model_group, CHAT.backend_model
    elif outcome == EMBEDDING:
        group, model, replica = EMBEDDER, f"hosted_vllm/BAAI/{EMBEDDER}", 1
    is_nowhere = outcome == CACHED
    return {
        "model": model,
        "model_id": "" if is_nowhere else f"{group}-{replica}",
        "model_group": group,
        "custom_llm_provider": "hosted_vllm",
        "api_base": "" if is_nowhere else f"http://{group}-{replica}.example/v1",
    }


@cache
def _asker(team: str, user: int) -> dict[str, str]:
    return {
        "user": f"{team}-{user:04d}" if team else CHECKER,
        "team_id": f"team-{team}" if team else CHECKER,
        "organization_id": ORGANIZATION,
        "end_user": "",
    }


def _metadata(call: Call, *, has_reasoning: bool) -> dict[str, Any]:
    failure = FAILURES.get(call.outcome)
    reasoning = {"reasoning_tokens": call.reasoning_tokens} if has_reasoning else None
    usage = {"prompt_tokens_details": {"cached_tokens": call.cached_tokens}, "completion_tokens_details": reasoning}
    return {
        "status": "failure" if failure else "success",
        "usage_object": None if failure else usage,
        "attempted_retries": call.attempt - 1,
        "attempted_fallbacks": int(call.outcome == FALLBACK),
        "error_information": failure,
    }


def _cache_hit(outcome: int, *, has_cache: bool) -> str:
    """LiteLLM's text: the gateway's own response cache, "None" where it is off."""
    if outcome == CACHED:
        return "True"
    return "False" if has_cache and outcome <= LENGTH else "None"


@cache
def _request(outcome: int, limit_tokens: int, tool_results: int, is_opening: int) -> dict[str, Any]:
    """The caller's limit and the roles of the turn's new messages, without any text."""
    if outcome == EMBEDDING:
        return {}
    asked = [{"role": "system"}, {"role": "user"}] if is_opening else [{"role": "user"}]
    return {"max_tokens": limit_tokens, "messages": [{"role": "tool"}] * tool_results or asked}


@cache
def _response(outcome: int, tool_calls: int) -> dict[str, Any]:
    """Why the answer ended and how many tools it asked for, without any text."""
    if outcome in FAILURES or outcome == EMBEDDING:
        return {}
    reason = "length" if outcome == LENGTH else "tool_calls" if tool_calls else "stop"
    return {"choices": [{"finish_reason": reason, "message": {"tool_calls": [{"type": "function"}] * tool_calls}}]}
