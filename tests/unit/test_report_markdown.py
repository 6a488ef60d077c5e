"""Markdown: the decision fits a screen, and no name breaks a table or becomes markup."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from report_week import CLOSING, HOSTILE, empty_week, full_page, page_of

from reports.assumption_words import assumption_word
from reports.markdown import escaped, markdown, tables_markdown
from reports.terminal import decision_lines

SCREEN_LINES = 45
TABLES = "review-tables.md"


def test_the_decision_fits_a_screen() -> None:
    """Four deployments, two warnings: the whole text, with decision, reason, confidence, assumptions and actions."""
    lines = markdown(full_page(), TABLES).splitlines()
    assert len(lines) <= SCREEN_LINES
    top = "\n".join(lines)
    assert "coding-agent: add 6 GPUs." in lines[0]
    assert "| coding-agent | add 6 GPUs | 22 | 20–26 | 16 | 18 | KV memory |" in top
    for said in ("**Warnings**", "- Why: ", "- How sure: ", "- Assumed: KV memory, router", "- Worth doing: ", TABLES):
        assert said in top


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    width = None
    for line in [*markdown(full_page(), TABLES).splitlines(), *tables_markdown(full_page()).splitlines()]:
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.split(r"(?<!\\)\|", line))
        assert width in (None, cells), line
        width = cells


def test_each_count_of_cut_outputs_says_how_it_counts() -> None:
    text = tables_markdown(full_page())
    assert "| Logged as cut (status length) |" in text
    assert "By the first cause that holds: it failed; prompt and output fill max\\_model\\_len" in text


def test_every_assumption_says_what_it_is() -> None:
    text = tables_markdown(full_page()).replace("\\", "")
    assert "| compute_efficiency_ratio | share of the data sheet's peak FLOP/s that is reached | 0.45 |" in text
    assert "| headroom_ratio | spare capacity to keep above the peak | 0.3 |" in text
    assert assumption_word("max_num_seqs") == "setting of the engine"


def test_hostile_names_stay_text() -> None:
    text = markdown(full_page(), TABLES) + tables_markdown(full_page())
    assert not re.search(r"(?<!\\)<", text)
    assert escaped(HOSTILE) in text
    assert escaped(CLOSING) in text


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Z", "Cc")), max_size=60))
def test_escaped_is_one_line_without_live_marks(words: str) -> None:
    line = escaped(words)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)(\\\\)*[|<`*]", line)


def test_an_empty_week_is_short_and_says_so() -> None:
    text = markdown(page_of(empty_week()), TABLES)
    assert "nothing to decide" in text.splitlines()[0]


def test_terminal_lines_cannot_move_the_cursor() -> None:
    page = page_of(empty_week())
    object.__setattr__(page, "warnings", ("evil \x1b[2J\x9b name \u202e txet",))
    lines = decision_lines(page)
    assert lines[-1] == "warning: evil [2J name  txet"
