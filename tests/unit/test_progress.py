"""Progress bars: drawn on a terminal, silent in a pipe, with --quiet and on a terminal that cannot redraw."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

import pytest

CODE = """
import sys, time
from flows.log import start_logging
from flows.progress import progress
start_logging(verbose=False, quiet="quiet" in sys.argv)
with progress("reading logs", None if "endless" in sys.argv else 3) as advance:
    for _ in range(3):
        advance()
        time.sleep(0.15)
print("done", "rich" in sys.modules)
"""


def on_terminal(*words: str, term: str = "xterm") -> tuple[str, str]:
    """Stdout, and what reached a real pseudo-terminal standing on stderr."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": "80"}
    ran = subprocess.Popen(
        [sys.executable, "-c", CODE, *words], stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment
    )
    os.close(theirs)
    drawn = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # Linux: the other end is closed
            break
        if not chunk:
            break
        drawn += chunk
    os.close(ours)
    answer, _ = ran.communicate(timeout=30)
    assert ran.returncode == 0
    return answer, drawn.decode()


def test_a_terminal_sees_the_bar_and_its_count() -> None:
    answer, drawn = on_terminal()
    assert answer == "done True\n"
    assert "reading logs" in drawn
    assert "3/3" in drawn


def test_work_of_unknown_length_has_a_bar_too() -> None:
    _, drawn = on_terminal("endless")
    assert "reading logs" in drawn
    assert "3/?" in drawn


@pytest.mark.parametrize(("words", "term"), [(["quiet"], "xterm"), ([], "dumb")])
def test_no_bar_where_none_is_wanted(words: list[str], term: str) -> None:
    assert on_terminal(*words, term=term) == ("done False\n", "")


def test_a_pipe_gets_nothing_and_rich_is_not_loaded() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("done False\n", "")
