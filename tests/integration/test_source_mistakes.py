"""Mistakes in how a source is described: one line that names the file to mend, before anything is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ingesting import ingested

from flows.fleet import load_fleet
from flows.home import Home
from flows.review import check_request
from flows.sources import check_format, check_sources
from transforms.errors import ConfigError, InputError
from transforms.mapping import BESIDE, PICK_KEYS, TARGETS, parse_mapping

SOURCE = '[[sources]]\nname = "gateway"\nformat = "{form}"\npath = "a.csv"\n{more}\n'
DEPLOYMENT = """
[[deployments]]
name = "chat"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
"""


@pytest.fixture
def told(tmp_path):
    """What `review` says of a fleet file before it starts anything; the path stands first."""

    def check(form="azure", more="", after=""):
        path = tmp_path / "fleet.toml"
        path.write_text(SOURCE.format(form=form, more=more) + DEPLOYMENT + after)
        home = Home(tmp_path / "home")
        with pytest.raises(ConfigError) as refused:
            check_request(home, load_fleet(path, home), None)
        text = str(refused.value)
        assert text.startswith(f"{path}: ")
        assert "\n" not in text
        assert not (tmp_path / "home").exists()
        return text.removeprefix(f"{path}: ")

    return check


@pytest.mark.parametrize(
    ("form", "more", "words"),
    [
        ("azure", 'timezone = "Mars"', "source 'gateway': timezone 'Mars' is unknown"),
        ("azure", 'zero_usage = "mising"', "source 'gateway': zero_usage mising: must be missing or zero"),
        ("azur", "", "source 'gateway': format 'azur' is unknown; did you mean 'azure'?"),
        ("mapped", 'map = "../gw.toml"', "'sources[0].map' must be a table: write the columns under [sources.map], or"),
        ("mapped", "", "source 'gateway': format mapped needs [sources.map]"),
        ("mapped", '[sources.map]\narived_at = "t"', "source 'gateway': [sources.map]: unknown column 'arived_at'"),
        ("mapped", '[sources.map]\nmodel = "t"', "source 'gateway': [sources.map]: needs arrived_at"),
    ],
)
def test_mistakes_of_a_source_name_the_fleet_file_and_the_source(told, form, more, words):
    assert words in told(form, more)


def test_an_unknown_zone_of_planning_names_the_fleet_file(told):
    assert "[planning]: timezone 'Mars' is unknown" in told(after='[planning]\ntimezone = "Mars"\n')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('arrived_at = { field = "t", unti = "ms" }', "unknown key 'unti' in 'arrived_at'; did you mean 'unit'?"),
        ('arrived_at = { field = "t", unit = "min" }', "unit 'min' in 'arrived_at' must be one of"),
        ("arrived_at = { field = 5 }", "'field' of 'arrived_at' must be the name of a field, not 5"),
        ('arrived_at = { field = "t", missing = "0" }', "'missing' of 'arrived_at' must be a list of texts"),
        ("arrived_at = 5", "'arrived_at' must be a field's name or a table"),
        ("arrived_at = []", "needs arrived_at"),
        ('arrived_at = "t"\nignore = "mcp"', "'ignore' must be a table"),
        ('arrived_at = "t"\n[ignore]\npresnt = ["a"]', "unknown key 'presnt' in [ignore]; did you mean 'present'?"),
        ('arrived_at = "t"\n[ignore]\npresent = "a"', "'present' in [ignore] must be a list of field names"),
        ('arrived_at = "t"\n[settings]\ntimezone = "Mars"', "[settings]: timezone 'Mars' is unknown"),
        ('arrived_at = "t"\n[settings]\nzone = "UTC"', "unknown key 'zone' in [settings]"),
    ],
)
def test_mistakes_of_a_mapping_name_its_file(tmp_path, text, words):
    folder = tmp_path / "catalog" / "formats"
    folder.mkdir(parents=True)
    path = folder / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        check_format("mine", tmp_path / "catalog")
    assert str(refused.value).startswith(f"mapping file {path}: ")
    assert words in str(refused.value)


def test_every_shipped_format_can_be_used(tmp_path):
    from flows.reading.formats import format_names
    from transforms.fleet import Source

    check_sources([Source(name, "x") for name in format_names() if name != "mapped"], tmp_path, tmp_path)


def test_the_readme_names_every_column_and_key_of_a_mapping():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    tables = text[text.index("Columns a mapping may set") : text.index("`kvledger ingest gateway.jsonl")]
    named = set(re.findall(r"`([a-z_0-9]+)`", tables))
    assert named >= {*TARGETS, *PICK_KEYS}
    assert {f"[{table}" for table in BESIDE} == set(re.findall(r"\[(?:ignore|recognise|settings)", tables))
    columns = tables[: tables.index("A column is")]
    assert set(re.findall(r"`([a-z_0-9]+)`", columns)) - {"stg_requests"} == set(TARGETS)


def test_settings_of_a_mapping_hold(tmp_path):
    log = tmp_path / "a.csv"
    log.write_text("t,n\n2026-03-01 10:00:00,5\n")
    mapping = {"arrived_at": "t", "prompt_tokens": "n", "settings": {"timezone": "UTC"}}
    assert parse_mapping(mapping).fields == ("t", "n")
    assert ingested(tmp_path / "home", log, form="mapped", mapping=mapping).total("loaded") == 1


def test_ingest_names_the_mapping_file_and_makes_no_home(tmp_path):
    (tmp_path / "a.csv").write_text("t\n1\n")
    (tmp_path / "m.toml").write_text('arrived_at = "t"\nprompt_token = "n"\n')
    command = [sys.executable, "-m", "flows.cli", "ingest", "a.csv", "--format", "mapped", "--map", "m.toml"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "kvledger: mapping file m.toml: unknown column 'prompt_token'; did you mean 'prompt_tokens'?\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "m.toml"]


def test_a_folder_names_the_file_that_matters(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "README.md").write_text("# Some words, and what is in here\n\nand more words, of no log at all\n")
    (folder / "empty.csv").touch()
    (folder / "rows.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00,10,1\n")
    with pytest.raises(InputError, match=r"one of 3 files: .*/rows\.csv: its time stamps have no zone"):
        ingested(tmp_path / "home", folder, form="auto")
