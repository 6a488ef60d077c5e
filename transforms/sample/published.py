"""Published facts the sample is shaped on: quantile curves, and draws that follow them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Curve = Sequence[tuple[float, float]]
"""Pairs (cumulative share, value), both rising; between them the logarithm of the value is linear."""

CHAT_PROMPT_TOKENS: Curve = (
    (0, 2), (0.01, 29), (0.05, 181), (0.25, 396), (0.5, 1_020), (0.75, 1_189), (0.9, 2_735), (0.95, 4_083),
    (0.99, 4_142), (1, 14_050),
)  # fmt: skip
"""Azure Public Dataset, LLM inference 2023, conversation (CC-BY-4.0): ContextTokens."""

CHAT_OUTPUT_TOKENS: Curve = (
    (0, 7), (0.01, 16), (0.05, 41), (0.25, 85), (0.5, 129), (0.75, 395), (0.9, 424), (0.95, 451),
    (0.99, 601), (1, 1_000),
)  # fmt: skip
"""The same trace: GeneratedTokens."""

CHAT_TURNS_MEAN = 2.0
"""LMSYS-Chat-1M (arXiv 2309.11998): 2.0 turns a conversation on average."""

CHAT_MESSAGE_TOKENS_MEAN = 69.5
"""LMSYS-Chat-1M: 69.5 tokens a user message on average."""

AGENT_TURNS: Curve = (
    (0, 3),
    (0.05, 5),
    (0.1, 8),
    (0.25, 21),
    (0.5, 47),
    (0.75, 92),
    (0.95, 228),
    (0.99, 347),
    (1, 500),
)
"""kv-cache-tester (callanjfox, Apache-2.0): requests a session of a coding agent, copies left out."""

AGENT_FIRST_TOKENS: Curve = ((0, 6_343), (0.1, 15_459), (0.25, 18_726), (0.5, 24_202), (0.75, 40_000), (1, 80_000))
"""kv-cache-tester: first prompt of a session; its upper quarter (resumed 1M-token sessions) is cut down (assumed)."""

AGENT_SYSTEM_TOKENS = 17_217
"""kv-cache-tester, trace_0001: 12,974 tokens of tool descriptions and 4,243 of system prompt, the same every turn."""

AGENT_GROWTH_TOKENS: Curve = (
    (0, 55), (0.1, 187), (0.25, 331), (0.5, 664), (0.75, 1_577), (0.9, 3_680), (0.95, 6_455),
    (0.99, 16_345), (1, 60_000),
)  # fmt: skip
"""kv-cache-tester: growth of the prompt from turn to turn where it grows; the last hundredth is cut down (assumed)."""

AGENT_OUTPUT_TOKENS: Curve = (
    (0, 30), (0.01, 57), (0.1, 102), (0.25, 137), (0.5, 218), (0.75, 433), (0.9, 909), (0.95, 1_513), (0.99, 3_795),
    (1, 18_195),
)  # fmt: skip
"""kv-cache-tester: output tokens of a request, thinking included."""

TOOL_WAIT_S: Curve = (
    (0, 0.2), (0.01, 2), (0.1, 4), (0.25, 5), (0.5, 8), (0.75, 19), (0.9, 68), (0.95, 134), (0.99, 610), (0.999, 2_880),
    (1, 14_400),
)  # fmt: skip
"""kv-cache-tester: wait for tools p50 8, p90 68, p99 610 s; its maximum of 37,415 s is cut to four hours (assumed)."""

AGENT_USER_WAIT_S: Curve = (
    (0, 1), (0.1, 5), (0.25, 28), (0.5, 95), (0.75, 314), (0.9, 1_179), (0.95, 2_953), (0.99, 4_558), (1, 14_400),
)  # fmt: skip
"""kv-cache-tester: gaps before a prompt the user typed; cut to four hours (assumed)."""

AGENT_USER_TURN_RATIO = 0.16
"""kv-cache-tester: 3,851 of 23,756 turns carry a text of the user, the others tool results."""

SUBAGENT_TURNS: Curve = ((0, 4), (0.25, 7), (0.5, 10), (0.75, 12), (0.95, 17), (1, 17))
"""kv-cache-tester: requests of a sub-agent."""

DOCUMENT_PROMPT_TOKENS: Curve = (
    (0, 891), (0.1, 964), (0.25, 2_307), (0.5, 6_909), (0.75, 15_367), (0.9, 27_367), (0.95, 39_551), (0.99, 85_400),
    (1, 126_195),
)  # fmt: skip
"""Mooncake FAST'25 conversation trace (Apache-2.0): input_length."""

DOCUMENT_OUTPUT_TOKENS: Curve = (
    (0, 1), (0.05, 10), (0.1, 24), (0.25, 157), (0.5, 350), (0.75, 472), (0.9, 597), (0.95, 698),
    (0.99, 1_119), (1, 2_000),
)  # fmt: skip
"""The same trace: output_length."""

FAILED_RATIO = 0.03
"""Rough share of rows that fail here; BurstGPT (arXiv 2401.17644) reports over 5 % for some services."""


def draw(curve: Curve, uniform: Floats) -> Floats:
    """Values that follow `curve`, one for each of the `uniform` numbers in [0, 1), in the curve's unit."""
    shares = [share for share, _ in curve]
    logs = [float(np.log(value)) for _, value in curve]
    return np.asarray(np.exp(np.interp(uniform, shares, logs)), dtype=np.float64)


def draw_tokens(curve: Curve, uniform: Floats, factor: float | Floats = 1.0) -> npt.NDArray[np.int64]:
    """Whole tokens (at least 1) that follow `curve` times `factor`."""
    return np.maximum(1, np.rint(draw(curve, uniform) * factor)).astype(np.int64)


def spread(rng: np.random.Generator, count: int) -> Floats:
    """`count` uniform numbers, one in each of as many equal parts of [0, 1), shuffled: totals vary little by chance."""
    return np.asarray(rng.permutation(count) + rng.random(count)) / max(count, 1)
