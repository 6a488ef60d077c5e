"""How far a figure is to be trusted: results carry the weakest word among their inputs."""

from __future__ import annotations

MEASURED, CALIBRATED, MODELLED, ASSUMED = "measured", "calibrated", "modelled", "assumed"
FROM_STRONGEST = (MEASURED, CALIBRATED, MODELLED, ASSUMED)


def weakest(*words: str) -> str:
    """Weakest of `words`; `measured` where there are none."""
    return max(words, key=FROM_STRONGEST.index, default=MEASURED)
