"""`--set help` of several commands: every key it takes, one a line, instead of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

ASKED = "help"


def whatif_settings(context: typer.Context, settings: list[str] | None) -> list[str] | None:
    """`settings` as they are; prints what a scenario may set and ends the run where they ask for it."""
    if ASKED in (settings or ()):
        from transforms.planner.whatif.settings import setting_kinds

        _print(setting_kinds(), is_json=bool(context.params.get("json")))
    return settings


def replay_settings(context: typer.Context, settings: list[str] | None) -> list[str] | None:
    """`settings` as they are; prints what a replay may be set and ends the run where they ask for it."""
    if ASKED in (settings or ()):
        from flows.replay_flags import replay_setting_kinds

        _print(replay_setting_kinds(), is_json=bool(context.params.get("json")))
    return settings


def _print(kinds: Mapping[str, str], *, is_json: bool) -> None:
    """Print the keys of `kinds` with what their values are; typer.Exit ends the run."""
    if is_json:
        print_json({"settings": dict(kinds)})
    else:
        wide = max(map(len, kinds))
        print_line("\n".join(f"{key:{wide}}  {words}" for key, words in kinds.items()))
    raise typer.Exit
