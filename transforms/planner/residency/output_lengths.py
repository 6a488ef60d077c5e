"""Output lengths of a trace: unknown ones are drawn, seeded, from the known of prompts of like length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transforms.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

LEAST_ROWS = 200
"""A class of prompt lengths has so many known outputs, or is merged with the next."""


def draw_outputs(rows: pl.DataFrame, where: str, seed: int) -> tuple[NDArray[np.int32], int]:
    """Output tokens of each row, and how many of them were unknown and drawn; InputError where none is known.

    Drawn are outputs of answers that ended by themselves, inside classes of prompt length (powers of two, merged
    upwards to LEAST_ROWS known outputs).
    """
    is_unknown = rows["output_tokens"].is_null().to_numpy()
    outputs = rows["output_tokens"].fill_null(0).to_numpy().astype(np.int32)
    if not is_unknown.any():
        return outputs, 0
    is_whole = ~is_unknown & (rows["status"].fill_null("ok") == "ok").to_numpy() & (outputs > 0)
    if not is_whole.any():
        raise InputError(
            f"{where}: no row has the length of a finished output, so there is none to draw from; "
            "replay a trace that has output tokens"
        )
    classes = _classes(rows["prompt_tokens"].to_numpy(), is_whole)
    random = np.random.default_rng(seed)
    for found in np.unique(classes[is_unknown]):
        asked = np.flatnonzero(is_unknown & (classes == found))
        known = outputs[is_whole & (classes == found)]
        outputs[asked] = random.choice(known, len(asked))
    return outputs, int(is_unknown.sum())


def _classes(prompt_tokens: NDArray[np.int64], is_whole: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Class of each row: log2 of its prompt, neighbours merged so that each holds LEAST_ROWS known outputs."""
    powers = np.log2(np.maximum(prompt_tokens, 1)).astype(np.int64)
    counts = np.bincount(powers[is_whole], minlength=int(powers.max()) + 1)
    merged, number, held = np.zeros(len(counts), dtype=np.int64), 0, 0
    for power, count in enumerate(counts):
        merged[power] = number
        held += int(count)
        if held >= LEAST_ROWS:
            number, held = number + 1, 0
    if held < LEAST_ROWS and number > 0:
        merged[merged == number] = number - 1
    return merged[powers]
