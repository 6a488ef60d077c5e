"""Finds what ships with the product (SQL, catalog, scenarios, the example fleet): in a checkout or inside a wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent
ROOT = _HERE / "_shipped" if (_HERE / "_shipped").is_dir() else _HERE.parent


def shipped(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. ``shipped("sql", "staging")``."""
    return ROOT.joinpath(*parts)
