"""The three services of the sample: what serves them, who uses them, how often, and what changes in the second week."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

FIRST_DAY = "2026-11-09"
"""Monday of 2026-W46, UTC; the sample runs from here."""

MOST_DAYS = 14
"""2026-W46 and 2026-W47."""

DAY_S = 86_400.0


@dataclass(frozen=True)
class Engine:
    """What one replica of a service can do; the figures of a whole replica, all its GPUs together."""

    replicas: int
    weights_read_bytes: float
    linear_params: float
    layers: int
    query_heads: int
    kv_token_bytes: int
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    pool_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    step_overhead_s: float
    compute_ratio: float = 0.5
    bandwidth_ratio: float = 0.75
    head_dim: int = 128
    sequence_overhead_s: float = 2e-5
    request_overhead_s: float = 0.006
    request_jitter_s: float = 0.010


LLAMA_8B_PARAMS = 6.98e9
"""Linear parameters of Llama-3.1-8B without input embedding and lm_head (config.json; 8.03e9 with them)."""

LLAMA_70B_PARAMS = 68.45e9
"""The same of Llama-3.1-70B (70.55e9 with them)."""

LLAMA_8B_KV_TOKEN_BYTES, LLAMA_70B_KV_TOKEN_BYTES = 131_072, 327_680
"""KV bytes of one token under BF16, as the KV account gives them (a contract test holds them to it)."""

H100_FLOP_PER_S, H100_BYTES_PER_S = 989.4e12, 3.35e12
"""NVIDIA H100 SXM5, dense BF16 and HBM3 (data/catalog/gpus)."""

L40S_FLOP_PER_S, L40S_BYTES_PER_S = 362.05e12, 864e9
"""NVIDIA L40S, dense BF16 and GDDR6 (data/catalog/gpus)."""

CHAT_ENGINE = Engine(
    replicas=4,
    weights_read_bytes=15.0e9,
    linear_params=LLAMA_8B_PARAMS,
    layers=32,
    query_heads=32,
    kv_token_bytes=LLAMA_8B_KV_TOKEN_BYTES,
    peak_flop_per_s=H100_FLOP_PER_S,
    bandwidth_bytes_per_s=H100_BYTES_PER_S,
    pool_tokens=440_000,
    max_num_seqs=256,
    max_num_batched_tokens=8_192,
    max_model_len=32_768,
    step_overhead_s=0.0015,
)
AGENT_ENGINE = Engine(
    replicas=6,
    weights_read_bytes=139.0e9,
    linear_params=LLAMA_70B_PARAMS,
    layers=80,
    query_heads=64,
    kv_token_bytes=LLAMA_70B_KV_TOKEN_BYTES,
    peak_flop_per_s=4 * H100_FLOP_PER_S,
    bandwidth_bytes_per_s=4 * H100_BYTES_PER_S,
    pool_tokens=455_000,
    max_num_seqs=64,
    max_num_batched_tokens=4_096,
    max_model_len=131_072,
    step_overhead_s=0.005,
    bandwidth_ratio=0.68,
)
SUMMARY_ENGINE = Engine(
    replicas=4,
    weights_read_bytes=15.0e9,
    linear_params=LLAMA_8B_PARAMS,
    layers=32,
    query_heads=32,
    kv_token_bytes=LLAMA_8B_KV_TOKEN_BYTES,
    peak_flop_per_s=L40S_FLOP_PER_S,
    bandwidth_bytes_per_s=L40S_BYTES_PER_S,
    pool_tokens=188_000,
    max_num_seqs=128,
    max_num_batched_tokens=8_192,
    max_model_len=65_536,
    step_overhead_s=0.002,
)
"""Efficiencies and overheads are assumed; the pools are a little below what the review finds for the engines of
data/fleet.toml (451,390, 469,173 and 194,890 tokens), so that the log never claims more KV than there is."""


@dataclass(frozen=True)
class Tenant:
    """One team of a service: its share of the sessions, its limit of output tokens, and its habits."""

    name: str
    share_ratio: float
    limit_tokens: int
    users: int
    is_streaming: bool = True
    has_retrieval: bool = False


@dataclass(frozen=True)
class Mishaps:
    """How often what goes wrong, each a share of the logical requests (all assumed; together about FAILED_RATIO)."""

    error_retried: float = 0.004
    timeout_retried: float = 0.0015
    limit_retried: float = 0.005
    error_given_up: float = 0.001
    limit_given_up: float = 0.005
    aborted: float = 0.0
    fallback: float = 0.0
    cached: float = 0.0
    too_long: float = 0.0


@dataclass(frozen=True)
class Service:
    """One service: names as the gateway writes them, its engine, its tenants and its mishaps."""

    number: int
    name: str
    model_group: str
    backend_model: str
    engine: Engine
    tenants: tuple[Tenant, ...]
    mishaps: Mishaps
    timeout_s: float
    is_sticky: bool
    has_gateway_cache: bool
    has_reasoning: bool = False


CHAT = Service(
    number=1,
    name="chat",
    model_group="chat-8b",
    backend_model="hosted_vllm/meta-llama/Llama-3.1-8B-Instruct",
    engine=CHAT_ENGINE,
    tenants=(
        Tenant("web", 0.52, 1_000, 4_000),
        Tenant("mobile", 0.24, 256, 2_500),
        Tenant("support", 0.14, 1_000, 90),
        Tenant("intranet", 0.07, 1_000, 300, is_streaming=False, has_retrieval=True),
        Tenant("partners", 0.03, 512, 40),
    ),
    mishaps=Mishaps(aborted=0.012, cached=0.025, too_long=0.0015),
    timeout_s=60.0,
    is_sticky=False,
    has_gateway_cache=True,
)
AGENT = Service(
    number=2,
    name="coding-agent",
    model_group="agent-70b",
    backend_model="hosted_vllm/meta-llama/Llama-3.1-70B-Instruct",
    engine=AGENT_ENGINE,
    tenants=(
        Tenant("platform", 0.38, 8_192, 60),
        Tenant("payments", 0.24, 8_192, 45),
        Tenant("data", 0.18, 8_192, 35),
        Tenant("apps", 0.12, 4_096, 30),
        Tenant("research", 0.08, 16_384, 15),
    ),
    mishaps=Mishaps(aborted=0.01),
    timeout_s=600.0,
    is_sticky=True,
    has_gateway_cache=False,
    has_reasoning=True,
)
SUMMARISER = Service(
    number=3,
    name="summariser",
    model_group="summary-8b",
    backend_model="hosted_vllm/meta-llama/Llama-3.1-8B-Instruct",
    engine=SUMMARY_ENGINE,
    tenants=(
        Tenant("claims", 0.0, 2_000, 1, is_streaming=False),
        Tenant("newsroom", 0.0, 800, 1, is_streaming=False),
        Tenant("legal", 0.0, 2_000, 1, is_streaming=False),
        Tenant("helpdesk", 1.0, 1_000, 120),
    ),
    mishaps=Mishaps(timeout_retried=0.002, fallback=0.002, cached=0.01),
    timeout_s=300.0,
    is_sticky=False,
    has_gateway_cache=True,
)
SERVICES = (CHAT, AGENT, SUMMARISER)
"""Shares fall steeply from tenant to tenant: ServeGen (NSDI'26) finds that a few clients make most of the traffic."""


@dataclass(frozen=True)
class Week:
    """What one week does to a service: factors on sessions a day and on first prompts, and where agents compact."""

    sessions_factor: float = 1.0
    prompt_factor: float = 1.0
    compact_at_ratio: float = 0.75


WEEKS: dict[str, tuple[Week, Week]] = {
    CHAT.name: (Week(), Week(sessions_factor=0.95, prompt_factor=1.3)),
    AGENT.name: (Week(), Week(sessions_factor=1.18, compact_at_ratio=0.88)),
    SUMMARISER.name: (Week(), Week()),
}
"""The second week: 5 % fewer chats with 30 % longer first prompts; 18 % more agent sessions, whose client compacts the
context at 88 % of max_model_len instead of 75 % (tools differ from 60 to 95 %); the summariser changes its mix alone
(the legal team's job in summariser.py). All assumed."""


def week_of(service: Service, day: int) -> Week:
    """The week settings of `service` on `day`, counted from FIRST_DAY."""
    return WEEKS[service.name][min(day // 7, 1)]


def service_called(name: str) -> Service:
    """The service called `name`."""
    return next(service for service in SERVICES if service.name == name)


def file_name(service: Service, day: int) -> str:
    """Name of the log of `service` on `day`, counted from FIRST_DAY."""
    return f"{service.name}-{date.fromisoformat(FIRST_DAY) + timedelta(days=day)}.jsonl.gz"
