"""Scenario files: one named by its path, or by the name of one that ships in data/scenarios."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from flows.shipped import shipped
from transforms.errors import ConfigError, nearest
from transforms.planner.whatif.scenarios import parse_scenario

if TYPE_CHECKING:
    from transforms.planner.whatif.scenarios import Scenario

SUFFIX = ".toml"


def read_scenario(named: str) -> Scenario:
    """The scenario of the file at path `named`, or of the shipped one of that name; ConfigError where it is none."""
    path = Path(named)
    if path.suffix != SUFFIX:
        path = shipped("data", "scenarios", f"{named}{SUFFIX}")
        if not path.is_file():
            known = shipped_scenarios()
            raise ConfigError(
                f"--scenario {named}: no scenario of that name{nearest(named, known)}; "
                f"name a file.toml, or one of: {', '.join(known)}"
            )
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"scenario {path} cannot be read ({error.strerror}); name a file.toml") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"scenario {path} is not valid TOML: {error}") from error
    return parse_scenario(document, f"scenario {path}")


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that ship, sorted."""
    return sorted(path.stem for path in shipped("data", "scenarios").glob(f"*{SUFFIX}"))
