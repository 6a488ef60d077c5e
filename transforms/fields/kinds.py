"""What a call was and who answered it, from the words of gateways, call types and URL paths."""

from __future__ import annotations

import re
from typing import Any

from transforms.fields.words import UNWRITTEN, squeezed

NOT_A_SERVER = "served_by is not a word we know"
OPERATION_UNKNOWN = "operation_unknown"

SERVERS: dict[str, str] = {
    **dict.fromkeys(("backend", "upstream", "engine", "model", "provider", "origin"), "backend"),
    **dict.fromkeys(("miss", "cachemiss", "bypass", "dynamic", "expired", "nocache"), "backend"),
    **dict.fromkeys(("gatewaycache", "cache", "cached", "cachehit", "hit", "stale", "semanticcache"), "gateway_cache"),
}
"""Squeezed word -> served_by: plain words, and those of X-Cache and CF-Cache-Status headers."""
SILENT = frozenset(("none", "null", "nil", "na"))

CALLS: dict[str, str] = {
    **dict.fromkeys((
        # OpenAI's, Anthropic's and Google's methods, GenAI conventions, LiteLLM's call types
        "chat", "chatcompletion", "chatcompletions", "completion", "completions", "textcompletion", "response",
        "responses", "message", "messages", "anthropicmessages", "generate", "generatetext", "generatecontent",
        "generatecontentstream", "streamgeneratecontent", "textgeneration", "generation", "converse", "conversestream",
        "inference", "llm",
    ), "chat"),
    **dict.fromkeys(("embedding", "embeddings", "embed", "textembedding", "embedcontent"), "embedding"),
    **dict.fromkeys(("rerank", "reranking", "score"), "rerank"),
    **dict.fromkeys(("moderation", "moderations"), "moderation"),
    **dict.fromkeys((
        "batch", "batches", "createbatch", "retrievebatch", "cancelbatch", "listbatch", "listbatches",
        "batchcompletion",
    ), "batch"),
    **dict.fromkeys((
        "other", "image", "images", "imagegeneration", "imagesgenerations", "imageedit", "imagevariation", "video",
        "transcription", "transcriptions", "speech", "audio", "ocr", "search", "tokenize", "counttokens", "realtime",
        "finetuning", "files", "createfile", "health", "models", "passthroughendpoint", "callmcptool", "executetool",
        "invokeagent", "createagent", "invokeworkflow", "retrieval",
    ), "other"),
}  # fmt: skip
"""Squeezed word -> operation."""
_VERSION = re.compile(r"^(?:https?://[^/]+)?/*(?:[\w.-]+/)*?v\d\w*/", re.IGNORECASE)


def server_of(value: Any) -> str | None:
    """`backend` or `gateway_cache` for a cell's value; None for null.

    ValueError for any other word, and for a boolean: true may mean the gateway's cache or the engine's prefix cache.
    """
    word = squeezed(value) if isinstance(value, str) else None
    if value is None or word in SILENT or value in UNWRITTEN:
        return None
    if word not in SERVERS:
        raise ValueError(NOT_A_SERVER)
    return SERVERS[word]


def operation_of(value: Any) -> str | None:
    """One of OPERATIONS for the name of a call, with or without LiteLLM's leading "a", or the path it was sent to.

    None for null, "" for a name that is not known: such a call is kept as `other`, flagged `operation_unknown`.
    """
    if value is None:
        return None
    name = str(value).strip().partition("?")[0]
    if squeezed(name) in SILENT or name in UNWRITTEN:
        return None
    for said in (name, _VERSION.sub("", name), *(name.rpartition(mark)[2] for mark in "/.:")):
        word = squeezed(said)
        for bare in (word, word.removeprefix("a")):
            if bare in CALLS:
                return CALLS[bare]
    return ""
