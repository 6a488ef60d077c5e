"""Our own rows as JSON lines, CSV or Parquet: any of the canonical columns by name, `arrived_at` at least.

Lists (`prefix_block_ids`, `flags`) are JSON arrays in a cell of CSV. What another home hashed is hashed again under the
key of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.mapping import TARGETS
from transforms.sources.mapped import UNIT, canonicalise, fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Head

__all__ = ["DEFAULTS", "FORMAT", "UNIT", "canonicalise", "fields_of", "recognise"]

FORMAT = "kvledger"
DEFAULTS: Mapping[str, Any] = {
    "map": {**{name: name for name in TARGETS}, "recognise": {"columns": ["arrived_at"]}},
}
OWN = {"arrived_at", "operation", "served_by", "prompt_tokens", "output_tokens"}


def recognise(head: Head) -> str | None:
    """Why `head` looks like our own rows: columns that only we name so."""
    if set(head.columns) >= OWN or any(record.keys() >= OWN for record in head.records):
        return "columns arrived_at, operation, served_by"
    return None
