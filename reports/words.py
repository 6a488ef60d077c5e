"""The vocabulary of the warehouse's keys in a reader's words."""

from __future__ import annotations

from reports.blocks import text
from reports.marts import ALL
from reports.printed import shortened
from reports.theme import PHASE_LABELS

FILE_LENGTH = 80
NOBODY = "(none)"
LABELS = (
    "measured: counted in the logs; calibrated: computed with step times fitted to measured runs; "
    "modelled: computed from logged lengths and arrivals; assumed: rests on a figure nobody measured here "
    "(data sheet, default). A result has the weakest label of what it is made from."
)
"""What the words for trust mean, for readers who meet them for the first time."""
AGAIN = (
    "The same logs, fleet file, catalog and versions give the same figures. PATH stands for a folder of the machine "
    "that made this report; other paths start where it was made."
)
"""What stands above the commands that make a report again."""


def demand_word(demand: str | None) -> str:
    """A demand in words: "KV memory", "compute" or "latency"."""
    words = {"kv": "KV memory", "compute": "compute", "latency": "latency", "none": "nothing"}
    return words.get(demand or "", text(demand))


def phase_word(phase: str | None) -> str:
    """A phase in words."""
    return {"tool_wait": PHASE_LABELS["tool_wait"], ALL: "all held"}.get(phase or "", text(phase))


def gap_word(kind: str | None) -> str:
    """A kind of gap in words."""
    return {"tool": "tool wait", "user": "user think time"}.get(kind or "", text(kind))


def mover_word(mover: str | None) -> str:
    """What moved the week's figures, in words."""
    words = {"rate": "request rate", "mix": "mix of models and tenants", "cache_hits": "cache hits",
             "tool_waits": "tool waits", "residual": "residual"}  # fmt: skip
    return words.get(mover or "", text(mover))


def measure_word(measure: str | None) -> str:
    """A latency measure in words."""
    return {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}.get(measure or "", text(measure))


def about_word(deployment_id: str | None) -> str:
    """A deployment's name, or "whole fleet"."""
    return "whole fleet" if deployment_id in (ALL, None) else shortened(str(deployment_id))


def gpu_word(gpu_id: str | None) -> str:
    """A GPU's name in the catalog, or "all"."""
    return "all" if gpu_id == ALL else text(gpu_id)


def deployment_word(deployment_id: str | None) -> str:
    """A deployment's name, "all deployments", or "served by none"."""
    words = {ALL: "all deployments", NOBODY: "served by none"}
    return words.get(deployment_id or NOBODY, shortened(text(deployment_id)))


def file_word(path: str | None) -> str:
    """A log file's path, its middle left out only where it is longer than FILE_LENGTH."""
    return shortened(text(path), FILE_LENGTH)


def model_word(model: str | None) -> str:
    """A model's name, or "all models"."""
    return "all models" if model == ALL else shortened(text(model))
