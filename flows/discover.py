"""Which files there are to read, and what each one is to us: new, grown, changed, unchanged, or not worth reading."""

from __future__ import annotations

import glob
import hashlib
import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flows.manifest import GENERATION, Entry, base_name
from flows.reading.formats import AUTO, module_of, with_defaults
from flows.reading.look import Look, emptiness, look
from flows.reading.recognise import check_format, recognised
from flows.records import read_record
from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from transforms.fleet import Source

HASH_BYTES = 4 << 20
SETTINGS_HEX = 16


@dataclass(frozen=True)
class Found:
    """One file that a source names: `is_named` where it stands on the command line itself, not in a folder or glob.

    `ordinal` is its place, from 0, among the run's files of the same format that are spread at the same rate.
    """

    path: Path
    source: Source
    source_file: str
    is_named: bool
    identifiers: str
    """"hashed" or "plain": how tenants are kept."""
    ordinal: int = 0


@dataclass(frozen=True)
class Plan:
    """What is done with one file.

    `action`: "read" (all of it), "resume" (from `start`), "unchanged", "empty" or "refused" (with `reason`).
    `entry` is its row of the manifest from earlier runs. `seen` is None unless it is read.
    """

    found: Found
    action: str
    size_bytes: int = 0
    sha256: str = ""
    seen: Look | None = None
    start: int = 0
    entry: Entry | None = None
    reason: str = ""


def find_files(sources: Sequence[Source], base: Path, identifiers: str) -> list[Found]:
    """The files of `sources`, whose relative paths begin at `base`; in order of source and name, none twice.

    InputError where a source matches nothing.
    """
    files: dict[Path, Found] = {}
    for source in sources:
        matched = list(_expand(source, base, identifiers))
        if not matched:
            raise InputError(f"{source.path}: no such file; check the path (relative paths begin at {base})")
        for found in matched:
            files.setdefault(found.path, found)
    seen: Counter[tuple[str, float | None]] = Counter()
    numbered = []
    for found in files.values():
        way = (found.source.format, found.source.session_rate_per_s)
        numbered.append(replace(found, ordinal=seen[way]))
        seen[way] += 1
    return numbered


def _expand(source: Source, base: Path, identifiers: str) -> Iterator[Found]:
    path = base / Path(source.path).expanduser()
    if path.is_dir():
        for file in _files_below(path):
            yield Found(file, source, file.relative_to(path).as_posix(), is_named=False, identifiers=identifiers)
    elif path.exists():
        yield Found(path, source, path.name, is_named=True, identifiers=identifiers)
    elif glob.has_magic(source.path):
        fixed = Path(*(part for part in _fixed_parts(path)))
        for name in sorted(glob.glob(str(path), recursive=True)):  # noqa: PTH207 - absolute patterns too
            file = Path(name)
            if file.is_file():
                yield Found(file, source, file.relative_to(fixed).as_posix(), is_named=False, identifiers=identifiers)


def _fixed_parts(pattern: Path) -> Iterator[str]:
    for part in pattern.parts:
        if glob.has_magic(part):
            return
        yield part


def _files_below(folder: Path) -> list[Path]:
    visible = (
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(visible, key=lambda path: path.relative_to(folder).as_posix())


def plan_file(
    found: Found,
    entries: Mapping[tuple[str, str], Entry],
    catalog: Path,
    digests: Digests,
    *,
    is_rebuild: bool = False,
) -> Plan:
    """What to do with one file, given the manifest's entries; in a rebuild a file that was read is read anew.

    InputError, naming what is wrong, where the file stands on the command line itself; else such a file is "refused".
    """
    try:
        plan = _plan(found, entries, catalog, digests, is_rebuild=is_rebuild)
    except InputError as error:
        if found.is_named:
            raise
        return Plan(found, "refused", reason=str(error).removeprefix(f"{found.path}: "))
    return replace(plan, action="read", start=0) if is_rebuild and plan.action == "resume" else plan


def _plan(
    found: Found, entries: Mapping[tuple[str, str], Entry], catalog: Path, digests: Digests, *, is_rebuild: bool
) -> Plan:
    size_bytes = digests.size_bytes(found.path)
    known = [e for (_, name), e in entries.items() if base_name(name) in (found.source_file, found.path.name)]
    known = [e for e in known if found.source.format in (AUTO, e.source)]
    cuts = [e.size_bytes for e in known if e.size_bytes <= size_bytes]
    prefixes = digests.of(found.path, size_bytes, cuts) if cuts else {}
    same = [e for e in known if prefixes.get(e.size_bytes) == e.sha256]
    for entry in () if is_rebuild else same:
        source = with_defaults(replace(found.source, format=entry.source), catalog)
        if entry.size_bytes == size_bytes and entry.settings_id == settings_id(source, found.identifiers):
            found = replace(found, source=source, source_file=entry.source_file)
            return Plan(found, "unchanged", size_bytes, entry.sha256, entry=entry)
    seen = look(found.path)
    if seen.layout == "empty":
        if found.is_named:
            raise InputError(f"{found.path}: {emptiness(seen)}")
        return Plan(found, "empty", size_bytes)
    source = with_defaults(recognised(seen, found.source, catalog), catalog)
    module = module_of(source.format, catalog)
    if not any(entry.source == source.format for entry in same):
        check_format(seen, source, catalog)
    name = found.path.name if getattr(module, "IS_TRANSCRIPT", False) else found.source_file
    plan = Plan(replace(found, source=source, source_file=name), "read", size_bytes, prefixes.get(size_bytes, ""), seen)
    generations = [e for e in entries.values() if e.source == source.format and base_name(e.source_file) == name]
    return _plan_known(plan, [e for e in same if e in generations], generations, module.UNIT)


def _plan_known(plan: Plan, same: list[Entry], generations: list[Entry], unit: str) -> Plan:
    """What to do with a file under whose name `generations` were read before, of which `same` begin like it."""
    if not generations:
        return plan
    found = plan.found
    if not same:
        names = {entry.source_file for entry in generations}
        number = next(n for n in range(2, len(names) + 3) if f"{found.source_file}{GENERATION}{n}" not in names)
        return replace(plan, found=replace(found, source_file=f"{found.source_file}{GENERATION}{number}"))
    entry = max(same, key=lambda e: e.size_bytes)
    plan = replace(plan, found=replace(found, source_file=entry.source_file), entry=entry)
    is_same_way = entry.settings_id == settings_id(found.source, found.identifiers)
    if is_same_way and entry.is_resumable and unit == "line" and entry.size_bytes < plan.size_bytes:
        return replace(plan, action="resume", start=entry.next_offset)
    return plan


def told_apart(plans: Sequence[Plan], entries: Mapping[tuple[str, str], Entry]) -> list[Plan]:
    """`plans`, where files of one format share a name in this run each as a generation of its own.

    Transcripts are known by their base name, and two paths on a command line or two folders may end alike.
    """
    taken = {(plan.found.source.format, plan.found.source_file) for plan in plans if plan.entry is not None}
    out = []
    for plan in plans:
        form, name = plan.found.source.format, plan.found.source_file
        if plan.entry is None and plan.action == "read" and (form, name) in taken:
            own = base_name(name)
            numbers = range(2, len(taken) + len(entries) + 3)
            names = (f"{own}{GENERATION}{number}" for number in numbers)
            name = next(n for n in names if (form, n) not in taken and (form, n) not in entries)
            plan = replace(plan, found=replace(plan.found, source_file=name))  # noqa: PLW2901
        if plan.action == "read":
            taken.add((form, name))
        out.append(plan)
    return out


@dataclass
class Digests:
    """sha256 of files, remembered in `path` by size and time stamps of each: a file that nobody touched is not read."""

    path: Path
    known: dict[str, list[int | str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load what earlier runs remembered; a file that is no JSON counts as none."""
        self.known = read_record(self.path)

    def size_bytes(self, path: Path) -> int:
        """Size of the file; InputError where it cannot be read."""
        try:
            return path.stat().st_size
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); check path and permissions") from error

    def of(self, path: Path, size_bytes: int, cuts: Sequence[int] = ()) -> dict[int, str]:
        """sha256 of the first n bytes of the file, in hex, for n = `size_bytes` and each of `cuts`."""
        known = self.known.get(str(path.absolute()), [])
        if known[:-1] == _stamp(path, size_bytes) and set(cuts) <= {size_bytes}:
            return {size_bytes: str(known[-1])}
        digests = prefix_digests(path, size_bytes, cuts)
        self.remember(path, size_bytes, digests[size_bytes])
        return digests

    def remember(self, path: Path, size_bytes: int, sha256: str) -> None:
        """Keep the sha256 of the first `size_bytes` of the file."""
        self.known[str(path.absolute())] = [*_stamp(path, size_bytes), sha256]

    def save(self) -> None:
        """Remember for the next run; whatever goes wrong here only costs time then."""
        with suppress(OSError):
            self.path.write_text(json.dumps(self.known), encoding="utf-8")


def _stamp(path: Path, size_bytes: int) -> list[int | str]:
    status = path.stat()
    return [size_bytes, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def prefix_digests(path: Path, size_bytes: int, cuts: Sequence[int] = ()) -> dict[int, str]:
    """sha256 of the first n bytes of the file, in hex, for n = `size_bytes` and each of `cuts`."""
    digest = hashlib.sha256()
    out: dict[int, str] = {}
    done = 0
    with path.open("rb") as raw:
        for cut in sorted({*cuts, size_bytes}):
            while done < cut:
                chunk = raw.read(min(HASH_BYTES, cut - done))
                if not chunk:
                    raise InputError(f"{path}: became shorter while it was read; run it again")
                digest.update(chunk)
                done += len(chunk)
            out[cut] = digest.copy().hexdigest()
    return out


def settings_id(source: Source, identifiers: str) -> str:
    """Hash of what decides the rows of a file: format, settings and mapping of its source, how tenants are kept."""
    settings = {k: v for k, v in asdict(source).items() if k not in ("path", "name") and v is not None}
    settings["identifiers"] = identifiers
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:SETTINGS_HEX]
