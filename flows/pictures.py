"""The key charts of a report as PNG files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.whole_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from flows.report import Reported


def pictures(reported: Reported) -> list[Path]:
    """The PNG files written to the folder `charts` beside the report, each whole; those of an earlier report go."""
    from reports.pictures import key_charts, png

    folder = reported.html.parent / "charts"
    folder.mkdir(exist_ok=True)
    made = []
    for name, chart in key_charts(reported.page):
        with whole_file(folder / name) as aside:
            aside.write_bytes(png(chart))
        made.append(folder / name)
    for path in set(folder.glob("*.png")) - set(made):
        path.unlink()
    return made
