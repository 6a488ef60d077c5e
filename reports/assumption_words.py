"""What the inputs of a plan are, for who does not know their names."""

from __future__ import annotations

from reports.blocks import text

MEANINGS = {
    "activation_bytes": "memory a step needs beside weights and KV cache",
    "bandwidth_efficiency_ratio": "share of the data sheet's memory bandwidth that is reached",
    "compute_efficiency_ratio": "share of the data sheet's peak FLOP/s that is reached",
    "duckdb_version": "database the figures were counted with",
    "facts_id": "fingerprint of all that the figures are counted from",
    "gpu_memory_bytes": "memory of one GPU as its driver reports it",
    "gpu_price_usd_per_hour": "price of one GPU",
    "graph_bytes": "memory of the engine's CUDA graphs",
    "headroom_ratio": "spare capacity to keep above the peak",
    "horizon_weeks": "weeks that the forecast looks ahead",
    "identifiers": "how tenants' names are kept",
    "kv_bytes": "memory left for the KV cache of one GPU",
    "kvledger_version": "release that made this report",
    "lead_time_days": "days from the order of a GPU to its first request",
    "link_efficiency_ratio": "share of the data sheet's GPU-to-GPU bandwidth that is reached",
    "non_torch_bytes": "memory that drivers and libraries take on one GPU",
    "rank_load": "how even the load of data-parallel ranks is taken to be",
    "recipe": "fingerprints of what the warehouse is built by",
    "router": "who picks the replica of a request",
    "sequence_overhead_s": "fixed time of a step for each running request",
    "slo_pace_s": "slowest time per output token that the count allows",
    "slo_tpot_p95_s": "promised time per output token (p95)",
    "slo_ttft_p95_s": "promised time to the first token (p95)",
    "spare_replicas": "replicas kept for one that fails",
    "step_overhead_s": "fixed time of each step of the engine",
    "step_time_error_ratio": "how far off the step times are in the median",
    "timezone": "zone of the report's days and hours",
    "warehouse_version": "layout of the warehouse",
    "weights_bytes": "memory of the model's weights on one GPU",
}


def assumption_word(name: str | None) -> str:
    """What the input `name` is; of a setting of the engine that it is one."""
    return MEANINGS.get(name or "", "setting of the engine" if name else text(name))
