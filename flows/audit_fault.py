"""What a failed audit says: one sentence for all audits, and the first rows that they found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN_ROWS = 3
"""Offending rows that a failed audit shows."""


def audit_fault(audit: str, which: str, shown: str) -> DataError:
    """The error of `audit`, which found rows `which` ("that …", "of … whose …"), some of them `shown`."""
    return DataError(f"{audit} found rows {which}, so nothing is published and the old warehouse stands: {shown}")


def named_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Each of `rows` as names and values of its `columns`."""
    return "; ".join(", ".join(f"{c} {v}" for c, v in zip(columns, row, strict=True)) for row in rows)
