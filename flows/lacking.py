"""What an ingest says of a mapping that names fields which no record has: mistyped names read as unknown throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.discover import settings_id
from flows.notes import Note
from flows.profile import is_name
from transforms.errors import nearest
from transforms.sources.mapped import FORMAT, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flows.commit import Staged

LACKING_CODE = "mapped_field_missing"


def lacking_fields(staged: Iterable[Staged]) -> Iterator[Note]:
    """One note per mapping of the user's with the columns of which no file read by it in this run has any field.

    A column with a constant, or one of whose alternatives is there, lacks nothing. What a file that grew brings is not
    judged: a few lines may well lack what is rare. In JSON a field is there where a record has a value for it, or one
    of the first names it.
    """
    by_mapping: dict[str, list[Staged]] = {}
    for file in staged:
        found = file.plan.found
        if found.source.format == FORMAT and file.runs and file.plan.action != "resume":
            by_mapping.setdefault(settings_id(found.source, found.identifiers), []).append(file)
    for files in by_mapping.values():
        told = list(_lacking(files))
        if told:
            more = f" and {len(files) - 1:,} other{'s' * (len(files) > 2)}" if len(files) > 1 else ""  # noqa: PLR2004 - plural
            yield Note(LACKING_CODE, f"{files[0].key[1]}{more}: {'; '.join(told)}")


def _lacking(files: list[Staged]) -> Iterator[str]:
    there = {name for file in files for part in file.parts for name in part["fields"]}
    known = [name for name in there if is_name(name)]
    for column, picks in fields_of(files[0].plan.found.source).picks.items():
        wanted = [pick.field for pick in picks]
        if all(wanted) and there.isdisjoint(wanted):
            listed = " or ".join(f"'{name}'" for name in wanted)
            yield f"{column}: no record has the field {listed}{nearest(wanted[0], known)}"
