"""Readers of every format, fed with damaged files: an error of ours or rows and rejects, never a traceback.

Seeds are the shared cases, each read the way EXPECTED.md says; 30 seconds in `make test`, ten minutes in `make soak`.
"""

from __future__ import annotations

import random
import re
import time
import tomllib
from pathlib import Path

import pytest

from flows.reading.rows import read_rows
from transforms.errors import KvledgerError
from transforms.fleet import Source

ROW = re.compile(r"^\| (?P<name>[^|]+?) \| `(?P<format>[a-z-]+)(?P<words>[^`]*)`")
VALUE = re.compile(rb'(?<=:)\s*("[^"]*"|-?[\d.]+|null|true|false|\{\}|\[\])')
PIECES = (
    b"null", b"true", b'""', b"-1", b"1e400", b"NaN", b'"\\ud800"', b"{}", b"[]", b"99999999999999999999", b"1.5",
    b'"x"', b"\xff", b"\x00", b'"', b",", b"\n", b"{", b"}", b"[1,2]", b'{"a":1}', b'"2026-02-30"', b"\\", b"9" * 5000,
)  # fmt: skip


def seeds(shared_dir):
    """(bytes, name, source) of every case that is one file and can be read."""
    folder = shared_dir / "cases" / "logs"
    for line in (folder / "EXPECTED.md").read_text().splitlines():
        match = ROW.match(line)
        path = folder / match["name"] if match else folder
        if match is None or match["format"] == "auto" or not path.is_file() or path.suffix == ".py":
            continue
        words = match["words"].split()
        options = dict(zip(words[::2], words[1::2], strict=False))
        mapping = options.pop("--map", None)
        settings = {word.removeprefix("--").replace("-", "_"): value for word, value in options.items()}
        if "block_tokens" in settings:
            settings["block_tokens"] = int(settings["block_tokens"])
        fields = tomllib.loads((folder / mapping).read_text()) if mapping else None
        yield path.read_bytes(), path.name, Source(match["format"], "", map=fields, **settings)


def damaged(data, rng):
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(out) + 1)
        end = min(len(out), start + rng.randrange(1, 30))
        kind = rng.randrange(6)
        if kind == 0:
            del out[start:end]
        elif kind in (1, 2):
            out[start : end if kind == 2 else start] = rng.choice(PIECES)
        elif kind == 3:
            out[start:start] = out[start:end]
        elif kind == 4:
            del out[start:]
        elif values := list(VALUE.finditer(out)):
            value = rng.choice(values)
            out[value.start() : value.end()] = rng.choice(PIECES)
    return bytes(out) or b"x"


@pytest.mark.shared
@pytest.mark.parametrize(("seconds", "most"), [(30, 200), pytest.param(600, 10**9, marks=pytest.mark.soak)])
def test_damaged_files_never_end_in_a_traceback(shared_dir, tmp_path, seconds, most):
    found = list(seeds(shared_dir))
    assert len({source.format for _, _, source in found}) >= 10
    rng = random.Random(seconds)
    deadline_s = time.monotonic() + seconds
    trials = 0
    said: set[str] = set()
    while time.monotonic() < deadline_s and trials < most:
        data, name, source = rng.choice(found)
        text = damaged(data, rng)
        path = Path(tmp_path / name)
        path.write_bytes(text)
        try:
            read_rows(path, source, key=b"k" * 32)
        except KvledgerError as error:
            said.add(str(error))
        except Exception as error:
            raise AssertionError(f"trial {trials}, {source.format}, {name}: {text!r}") from error
        trials += 1
    assert trials > 20
    assert not [text for text in said if "\n" in text]
