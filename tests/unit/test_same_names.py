"""Files of one name in several folders: each is counted for itself, in one run and in the next."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake


def folders(tmp_path, form):
    """Three folders that hold a file of the same name with two requests each."""
    paths = []
    for number in range(3):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        path = folder / "requests.jsonl"
        if form == "kvledger":
            lines = [{"request_id": f"r{number}.{n}", "arrived_at": f"2026-03-01T10:0{n}:00Z"} for n in range(2)]
        else:
            stamp = {"sessionId": f"s{number}", "timestamp": "2026-03-01T10:00:00Z", "type": "assistant"}
            usage = {"input_tokens": 1, "output_tokens": 2}
            lines = [
                {**stamp, "uuid": f"u{number}.{n}", "requestId": f"q{number}.{n}",
                 "message": {"id": f"m{number}.{n}", "model": "m", "stop_reason": "end_turn", "usage": usage}}
                for n in range(2)
            ]  # fmt: skip
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        paths.append(path)
    return paths


@pytest.mark.parametrize("form", ["kvledger", "claude-code"])
@pytest.mark.parametrize("named", ["files", "folders", "one folder above"])
def test_every_file_is_counted_for_itself(tmp_path, form, named):
    paths = folders(tmp_path, form)
    given = {"files": paths, "folders": [path.parent for path in paths], "one folder above": [tmp_path / "folder*"]}
    source = given[named] if named != "one folder above" else [f"{tmp_path}/folder*/requests.jsonl"]
    home = tmp_path / "home"
    result = ingested(home, *source, form=form)
    assert counts(result) == (6, 6, 0, 0)
    assert [(file.read, file.loaded, file.duplicates) for file in result.files] == [(2, 2, 0)] * 3
    assert len(lake(home)) == 6
    assert lake(home)["source_file"].n_unique() == 3
    again = ingested(home, *source, form=form)
    assert {file.status for file in again.files} == {"unchanged"}
    assert len(lake(home)) == 6


def test_one_of_them_that_grows_is_read_on(tmp_path):
    paths = folders(tmp_path, "kvledger")
    home = tmp_path / "home"
    ingested(home, *paths, form="kvledger")
    with paths[1].open("a") as file:
        file.write(json.dumps({"request_id": "new", "arrived_at": "2026-03-01T11:00:00Z"}) + "\n")
    result = ingested(home, *paths, form="kvledger")
    assert counts(result) == (1, 1, 0, 0)
    assert [file.status for file in result.files] == ["unchanged", "complete", "unchanged"]
    assert len(lake(home)) == 7


def test_a_copy_of_the_same_name_is_all_duplicates(tmp_path):
    paths = folders(tmp_path, "kvledger")
    paths[2].write_bytes(paths[0].read_bytes())
    assert counts(ingested(tmp_path / "home", *paths, form="kvledger")) == (6, 4, 2, 0)


def test_names_that_an_earlier_run_gave_are_kept(tmp_path):
    paths = folders(tmp_path, "kvledger")
    home = tmp_path / "home"
    ingested(home, paths[1], form="kvledger")
    result = ingested(home, *paths, form="kvledger")
    assert counts(result) == (4, 4, 0, 0)
    assert [file.status for file in result.files] == ["complete", "unchanged", "complete"]
    assert [file.source_file for file in result.files] == ["requests.jsonl~2", "requests.jsonl", "requests.jsonl~3"]
