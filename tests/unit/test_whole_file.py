"""Files that commands write: whole or not at all, and one line where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.whole_file import whole_file
from transforms.errors import HomeError


def test_a_file_appears_whole(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a.txt") as aside:
        aside.write_text("a")
        assert not (tmp_path / "a.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_path_that_names_no_file_or_lies_in_a_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="is a folder; name a file"), whole_file(Path("/")):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="cannot be written"), whole_file(tmp_path / "file" / "a.txt") as aside:
        aside.write_text("a")
