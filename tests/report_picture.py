"""The first screen of a report as a picture: `python tests/report_picture.py REVIEW.html PICTURE.png`."""

from __future__ import annotations

import sys
from pathlib import Path

from report_browser import DESKTOP, headless, opened

LARGEST_BYTES = 300_000


def picture(report: Path, target: Path) -> int:
    """Write the first screen of `report` to `target`; its size in bytes, refused above LARGEST_BYTES."""
    with headless() as chromium:
        page, _ = opened(chromium, report.resolve(), DESKTOP)
        drawn: bytes = page.screenshot(animations="disabled")
    if len(drawn) > LARGEST_BYTES:
        raise SystemExit(f"{target} would have {len(drawn):,} bytes, above {LARGEST_BYTES:,}")
    target.write_bytes(drawn)
    return len(drawn)


if __name__ == "__main__":
    print(f"{sys.argv[2]}: {picture(Path(sys.argv[1]), Path(sys.argv[2])):,} bytes")
