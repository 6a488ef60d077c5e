"""CONTRIBUTING names files and folders that are there."""

import re


def test_every_path_that_contributing_names_exists(root_dir):
    text = (root_dir / ".github" / "CONTRIBUTING.md").read_text()
    named = {word for word in re.findall(r"`([^`\s]+)`", text) if "/" in word and not set("<>*") & set(word)}
    assert len(named) >= 8
    roots = (root_dir, root_dir / "transforms", root_dir / "data" / "catalog" / "formats")
    assert [word for word in named if not any((root / word).exists() for root in roots)] == []
