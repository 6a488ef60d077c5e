"""What a run of the schedule leaves to read where nobody watched it: Markdown, kept by Prefect as its artifact."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


def failed_markdown(line: str, parameters: Mapping[str, Any]) -> str:
    """What a failed run says: what, where and what to do, and how to look further and to run it by hand."""
    place = f"--home {parameters['home']} --fleet {parameters['fleet']}"
    return (
        f"# kvledger {parameters['command']} failed\n\n{line}\n\n"
        f"Nothing is half-written. Look with `kvledger doctor {place}`, mend it, and run `kvledger review {place}`, "
        "or wait for the next run: it takes up what this one left.\n"
    )


def done_markdown(done: Sequence[str], parameters: Mapping[str, Any], ended_at: datetime) -> str:
    """What a run did, its decision and the path of its report, as Markdown."""
    stamp = ended_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = "\n".join(f"- {line}" for line in done)
    return f"# kvledger {parameters['command']}, {stamp}\n\n{lines}\n"
