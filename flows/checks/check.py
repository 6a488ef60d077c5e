"""One finding of `kvledger doctor`: ok, warn or fail, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`state` is "ok", "warn" (works, but) or "fail" (a run will be refused); `todo` is empty where it is ok."""

    name: str
    state: str
    text: str
    todo: str = ""

    @property
    def line(self) -> str:
        """The finding as one line for a terminal."""
        return f"{self.state:<4}  {self.name}: {self.text}{'; ' if self.todo else ''}{self.todo}"


def ok(name: str, text: str) -> Check:
    """A finding that is as it should be."""
    return Check(name, "ok", text)


def warn(name: str, text: str, todo: str) -> Check:
    """A finding that a run survives."""
    return Check(name, "warn", text, todo)


def fail(name: str, text: str, todo: str) -> Check:
    """A finding that a run does not survive."""
    return Check(name, "fail", text, todo)


def halves(line: str) -> tuple[str, str]:
    """What is wrong, and what to do: the two halves of an error's line."""
    text, _, todo = line.partition("; ")
    return text, todo
