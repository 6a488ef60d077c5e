"""What each number of the fleet file may be: one table, one check, one line that names file, table and key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Deployment, Engine, Fleet


@dataclass(frozen=True)
class Limit:
    """Smallest and largest value of a key, both allowed (`is_above`: the smallest is not), and its unit in words."""

    low: float
    high: float = math.inf
    unit: str = ""
    is_above: bool = False

    def allows(self, value: float) -> bool:
        """Whether `value` is a number within the limit."""
        return math.isfinite(value) and self.low <= value <= self.high and not (self.is_above and value == self.low)

    @property
    def words(self) -> str:
        """The limit as "must be …" goes on."""
        low = f"above {self.low:.15g}" if self.is_above else f"at least {self.low:.15g}"
        high = f" and at most {self.high:.15g}" if math.isfinite(self.high) else ""
        return f"{low}{high}{self.unit and ' ' + self.unit}"


TOKENS, SEQUENCES, BYTES, SECONDS, GPUS = "tokens", "requests", "bytes", "seconds", "ways"
ENGINE: Mapping[str, Limit] = {
    "tensor_parallel_size": Limit(1, 1024, GPUS),
    "pipeline_parallel_size": Limit(1, 1024, GPUS),
    "data_parallel_size": Limit(1, 1024, GPUS),
    "decode_context_parallel_size": Limit(1, 1024, GPUS),
    "max_model_len": Limit(1, 1 << 30, TOKENS),
    "max_num_seqs": Limit(1, 1 << 20, SEQUENCES),
    "max_num_batched_tokens": Limit(1, 1 << 30, TOKENS),
    "gpu_memory_utilization": Limit(0, 1, "of the GPU's memory", is_above=True),
    "kv_cache_memory_bytes": Limit(1, 1 << 50, BYTES),
    "block_size": Limit(1, 1 << 20, TOKENS),
    "long_prefill_token_threshold": Limit(0, 1 << 30, TOKENS),
    "speculative_tokens": Limit(0, 1024, TOKENS),
    "drafter_layers": Limit(0, 1024, "layers"),
    "activation_bytes": Limit(0, 1 << 50, BYTES),
    "non_torch_bytes": Limit(0, 1 << 50, BYTES),
    "weights_bytes": Limit(1, 1 << 50, BYTES),
    "cuda_graph_bytes": Limit(0, 1 << 50, BYTES),
}
SLO: Mapping[str, Limit] = {
    "ttft_p95_s": Limit(0, 86_400, SECONDS, is_above=True),
    "tpot_p95_s": Limit(0, 3600, SECONDS, is_above=True),
}
DEPLOYMENT: Mapping[str, Limit] = {"replicas": Limit(0, 1_000_000, "(0: none runs today)")}
PLANNING: Mapping[str, Limit] = {
    "headroom_ratio": Limit(0, 10, "(0.3 keeps 30 % free above the peak)"),
    "spare_replicas": Limit(0, 10_000, "replicas"),
    "lead_time_days": Limit(0, 3650, "days"),
    "horizon_weeks": Limit(1, 520, "weeks"),
}
WAREHOUSE: Mapping[str, Limit] = {"keep_versions": Limit(0, 1000, "earlier warehouses (0: none)")}
SOURCE: Mapping[str, Limit] = {
    "block_tokens": Limit(1, 1 << 20, TOKENS),
    "session_rate_per_s": Limit(0, 1e6, "sessions per second", is_above=True),
}
BATCH_LIMITS = {"engine.max_num_batched_tokens", "engine.max_num_seqs"}
PRICE = Limit(0, 10_000, "USD per GPU-hour")


def check_limits(fleet: Fleet, where: str) -> None:
    """Nothing, if every number of `fleet` can be; else ConfigError naming file, table, key, value and limit."""
    for source in fleet.sources:
        _check(source, SOURCE, f"{where}: source '{source.name or source.path}'")
    for deployment in fleet.deployments:
        at = f"{where}: deployment '{deployment.name}'"
        _check(deployment, DEPLOYMENT, at)
        _check(deployment.engine, ENGINE, f"{at}: [engine]")
        _check(deployment.slo, SLO, f"{at}: [slo]")
        _check_words(deployment, at)
        if deployment.given >= BATCH_LIMITS:
            check_scheduling(deployment.engine, f"{at}: [engine]")
    _check(fleet.planning, PLANNING, f"{where}: [planning]")
    _check(fleet.warehouse, WAREHOUSE, f"{where}: [warehouse]")
    for gpu, usd in fleet.prices.items():
        _check_one(gpu, usd, PRICE, f"{where}: [prices]")
    if fleet.privacy.identifiers not in ("hashed", "plain"):
        raise ConfigError(f'{where}: [privacy] identifiers must be "hashed" or "plain"')


def check_scheduling(engine: Engine, at: str) -> None:
    """ConfigError where vLLM refuses the batch limits at start-up (SchedulerConfig, the same in all versions)."""
    tokens = engine.max_num_batched_tokens
    if not engine.name.startswith("vllm"):
        return
    if tokens < engine.max_num_seqs:
        raise ConfigError(
            f"{at} max_num_batched_tokens = {tokens} is below max_num_seqs = {engine.max_num_seqs}: vLLM does not "
            "start so; raise the one or lower the other"
        )
    if not engine.enable_chunked_prefill and engine.max_model_len is not None and tokens < engine.max_model_len:
        raise ConfigError(
            f"{at} max_num_batched_tokens = {tokens} is below max_model_len = {engine.max_model_len} without chunked "
            "prefill: vLLM does not start so; raise it or set enable_chunked_prefill"
        )


def _check(table: Any, limits: Mapping[str, Limit], at: str) -> None:
    for key, limit in limits.items():
        _check_one(key, getattr(table, key), limit, at)


def _check_one(key: str, value: float | None, limit: Limit, at: str) -> None:
    if value is not None and not limit.allows(value):
        raise ConfigError(f"{at} {key} = {value} must be {limit.words}")


def _check_words(deployment: Deployment, at: str) -> None:
    for key in ("name", "model", "gpu"):
        if not getattr(deployment, key).strip():
            raise ConfigError(f"{at} {key} must not be empty")
    if not deployment.serves or not all(pattern.strip() for pattern in deployment.serves):
        raise ConfigError(f'{at} serves must name at least one model; ["*"] takes what no other deployment serves')
