"""The report of what-ifs: the scenarios of one run beside today, as HTML, Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.printing import print_note
from flows.report import (
    Reported,
    charts_bundle,
    fleet_flag,
    named_path,
    package_versions,
    put_text,
    week_tables,
)
from flows.warehouse import published
from flows.whole_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.whatif import Told


QUERY = """"select * from mart_scenarios where week = '{week}'\""""


def whatif_report(home: Home, fleet: LoadedFleet, told: Told, command: str, output: Path | None) -> Reported:
    """The report of `told`, under HOME/reports/week=…/whatif.html, .md and -tables.md, the HTML also at `output`.

    `command` is what was typed after the program's name, for the commands that make the report again.
    """
    from reports.html import html
    from reports.markdown import markdown, tables_markdown
    from reports.summary import summary
    from reports.whatif import scenario_rows, whatif_page
    from reports.whatif_terminal import whatif_lines

    with published(home) as connection:
        tables = week_tables(connection, told.week)
    rows = scenario_rows(tables, told.scenarios, told.deployments)
    at = f"--home {named_path(home.root)}"
    again = [
        f"kvledger whatif {command} --week {told.week} {at}{fleet_flag(home, fleet.path)}",
        f"kvledger query {at} {QUERY.format(week=told.week)} --json",
    ]
    page = whatif_page(tables, told.week, rows, package_versions(), again)
    folder = home.reports / f"week={told.week}"
    path = folder / "whatif.html"
    text = html(page, charts_bundle(home))
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        print_note(f"{path} held another what-if and is replaced; --output FILE.html keeps this one apart")
    put_text(folder / "whatif.md", markdown(page, "whatif-tables.md"))
    put_text(folder / "whatif-tables.md", tables_markdown(page))
    put_text(path, text)
    if output is not None:
        with whole_file(output) as aside:
            aside.write_text(text, encoding="utf-8", newline="\n")
        path = output
    return Reported(path, summary(tables, told.week, str(path)), whatif_lines(page), page)
