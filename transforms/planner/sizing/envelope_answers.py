"""What the back of an envelope says of some quantities: each formula whose inputs are there, its result in its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.errors import ConfigError
from transforms.planner.sizing import arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Given = Mapping[str, float]

COPIES = 2
"""A layer keeps keys and values."""


@dataclass(frozen=True)
class Answer:
    """One figure, its unit, and how it comes about."""

    name: str
    value: float
    unit: str
    formula: str


def _bytes_per_token(given: Given) -> float:
    return COPIES * given["layers"] * given["kv_heads"] * given["head_dim"] * given["dtype"]


def _compute_rate(given: Given) -> float:
    return arithmetic.compute_tokens_per_s(given["parameters"], given["peak"], given["mfu"])


def _one_request(given: Given) -> arithmetic.KvTime:
    return arithmetic.request_kv_time(int(given["prompt"]), int(given["output"]), given["decode"], int(given["kv"]))


def _of_held(given: Given) -> float:
    return arithmetic.kv_bytes(int(given["held"]) * int(given.get("requests", 1)), int(given["kv"]))


def _tpot(given: Given) -> float:
    found = arithmetic.tpot_s(given["e2e"], given["ttft"], int(given["output"]))
    if found is None:
        raise ConfigError("output=1tokens: a single token has no time per further token; give an output of 2 or more")
    return found


Formula = tuple[str, tuple[str, ...], str, str, "Callable[[Given], float]"]

_FORMULAS: tuple[Formula, ...] = (
    ("kv", ("layers", "kv_heads", "head_dim", "dtype"), "bytes per token",
     "2 × layers × KV heads × head dim × bytes (not query heads)", _bytes_per_token),
    ("concurrency", ("rate", "response"), "requests at once", "rate × response time (Little)",
     lambda g: arithmetic.concurrent_requests(g["rate"], g["response"])),
    ("gpus", ("rate", "response", "per_gpu"), "GPUs", "⌈rate × response time × safety ÷ concurrency per GPU⌉",
     lambda g: arithmetic.instances(g["rate"] * g["response"], g.get("safety", 1.0), g["per_gpu"])),
    ("tokens_per_gpu", ("parameters", "peak", "mfu"), "tokens/s", "peak × MFU ÷ (2 × parameters)", _compute_rate),
    ("mfu", ("parameters", "peak", "measured"), "ratio", "measured tokens/s × 2 × parameters ÷ peak",
     lambda g: arithmetic.compute_efficiency(g["measured"], g["parameters"], g["peak"])),
    ("gpus_by_compute", ("rate", "prompt", "output", "tokens_per_gpu"), "GPUs",
     "⌈rate × (prompt + output) ÷ tokens/s per GPU⌉: compute alone, memory and latency left out",
     lambda g: arithmetic.compute_instances(g["rate"], g["prompt"] + g["output"], g["tokens_per_gpu"])),
    ("kv_tokens", ("memory", "kv"), "tokens", "⌊memory ÷ KV bytes per token⌋; no scheduling limit enters",
     lambda g: arithmetic.kv_tokens(int(g["memory"]), int(g["kv"]))),
    ("free_tokens", ("memory", "kv", "held"), "tokens", "tokens that fit − requests × tokens held",
     lambda g: arithmetic.free_tokens(arithmetic.kv_tokens(int(g["memory"]), int(g["kv"])),
                                      [int(g["held"])] * int(g.get("requests", 1)))),
    ("held_bytes", ("held", "kv"), "bytes", "requests × tokens held × KV bytes per token", _of_held),
    ("blocks", ("held", "block"), "blocks", "⌈tokens held ÷ block⌉",
     lambda g: arithmetic.blocks(int(g["held"]), int(g["block"]))),
    ("empty_slots", ("held", "block"), "tokens", "slots of the last block without a token",
     lambda g: arithmetic.empty_slots(int(g["held"]), int(g["block"]))),
    ("empty_bytes", ("held", "block", "kv"), "bytes", "empty slots × KV bytes per token",
     lambda g: arithmetic.kv_bytes(arithmetic.empty_slots(int(g["held"]), int(g["block"])), int(g["kv"]))),
    ("decode_s", ("prompt", "output", "decode", "kv"), "s", "output ÷ decode rate",
     lambda g: _one_request(g).duration_s),
    ("residency_mean_bytes", ("prompt", "output", "decode", "kv"), "bytes", "KV bytes × (prompt + output ÷ 2)",
     lambda g: _one_request(g).residency_mean_bytes),
    ("residency_end_bytes", ("prompt", "output", "decode", "kv"), "bytes", "KV bytes × (prompt + output)",
     lambda g: _one_request(g).residency_end_bytes),
    ("kv_time_byte_s", ("prompt", "output", "decode", "kv"), "byte·s", "mean residency × time (token-linear)",
     lambda g: _one_request(g).kv_time_byte_s),
    ("prefill_budget_tokens", ("budget", "decoding"), "tokens", "token budget − one for each decoding request",
     lambda g: arithmetic.prefill_budget_tokens(int(g["budget"]), int(g["decoding"]))),
    ("prefill_steps", ("budget", "decoding", "prompt"), "steps", "⌈prompt ÷ what the budget leaves⌉",
     lambda g: arithmetic.prefill_steps(int(g["prompt"]), int(g["budget"]), int(g["decoding"]))),
    ("batch_gain_factor", ("batch",), "times", "2B ÷ (B + 1): a rule of thumb capped at 2; the roofline decides",
     lambda g: arithmetic.batch_gain_factor(int(g["batch"]))),
    ("tpot_s", ("e2e", "ttft", "output"), "s", "(E2E − TTFT) ÷ (output − 1)", _tpot),
)  # fmt: skip


def envelope_answers(given: Given) -> list[Answer]:
    """Every figure that the quantities of `given` (base units) lead to, figures found on the way included.

    ConfigError where none does: names what the nearest formula lacks.
    """
    known, answers = dict(given), []
    for name, needed, unit, formula, of in _FORMULAS:
        if name not in given and all(each in known for each in needed):
            value = float(of(known))
            known[name] = value
            answers.append(Answer(name, value, unit, formula))
    if not answers:
        name, lacking = min(
            ((name, [each for each in needed if each not in known]) for name, needed, *_rest in _FORMULAS
             if name not in given and any(each in known for each in needed)),
            key=lambda one: len(one[1]), default=("a figure", ["two quantities at least"]),
        )  # fmt: skip
        raise ConfigError(f"these quantities lead to no figure; {name} also needs {', '.join(lacking)}")
    return answers


def refuse_minimum(given: Given) -> None:
    """Never returns: ConfigError names both limits in their own units, or what it takes to have them."""
    needed = ("tokens_per_gpu", "prompt", "output", "memory", "kv")
    lacking = [name for name in needed if name not in given]
    if lacking:
        raise ConfigError(f"--textbook compares a rate with a stock: refused; to see both give {', '.join(lacking)}")
    length = given["prompt"] + given["output"]
    arithmetic.textbook_capacity(given["tokens_per_gpu"], length, int(given["memory"]), int(given["kv"]))
