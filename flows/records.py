"""Records that outlive a run, as JSON beside what they tell of: written whole, and nothing where absent or torn."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_record(path: Path) -> dict[str, Any]:
    """What stands in the record at `path`, or nothing if it is absent or torn."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def write_record(path: Path, told: Mapping[str, Any]) -> None:
    """Put `told` in the record at `path`, whole or not at all; OSError where it cannot be written."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(told), encoding="utf-8")
    aside.replace(path)
