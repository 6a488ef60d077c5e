"""The hint behind a name that is not known: the start of a name is nearer than one spelled alike."""

from __future__ import annotations

import pytest

from flows.catalog import load_catalog
from transforms.errors import nearest, nearest_few


@pytest.mark.parametrize(
    ("word", "meant"),
    [("H200", "H200-SXM-141GB"), ("RTX4090", "RTX-4090-24GB"), ("b200", "B200-SXM-180GB"), ("H20", "H20-96GB"),
     ("H100-SXM-8GB", "H100-SXM-80GB")],
)  # fmt: skip
def test_the_start_of_a_name_is_taken_for_it(word: str, meant: str) -> None:
    assert nearest(word, load_catalog(None).gpu_names()) == f"; did you mean '{meant}'?"


def test_a_word_is_never_its_own_hint() -> None:
    assert nearest("requests", ["requests", "reqests"]) == "; did you mean 'reqests'?"
    assert nearest("requests", ["requests"]) == ""


def test_two_letters_are_no_start() -> None:
    assert nearest("ab", ["abcdefghij"]) == ""


def test_of_many_names_the_nearest_few_are_told() -> None:
    known = ["max_num_seqs", "max_num_queued_reqs", "max_model_len", "router", "seed"]
    assert nearest_few("max_num_seq", known).startswith("; did you mean 'max_num_seqs'")
    assert nearest_few("max_num", known) == "; did you mean 'max_num_seqs' or 'max_num_queued_reqs'?"
    assert nearest_few("rooter", known) == "; did you mean 'router'?"
    assert nearest_few("xyzzy", known) == ""
    assert nearest_few("seed", known) == ""
