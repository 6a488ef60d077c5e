"""`kvledger ingest`: log files into the lake, each row once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.options import DEFAULT_HOME, FleetOption, HomeOption, JsonOption, NoPrefectOption, WaitOption
from flows.home import Home, locked, open_home
from flows.log import log_to_home
from flows.printing import print_json, print_line, print_note
from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.execution import Stages
    from flows.fleet import LoadedFleet
    from flows.ingest import IngestResult
    from transforms.fleet import Privacy, Source

PathsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="PATH…", help="Files, folders or patterns.", show_default=False)
]
FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the logs, or auto.")]
RebuildOption = Annotated[
    bool, typer.Option("--rebuild", help="Read anew what was read before; without PATH all sources of the fleet file.")
]
MapOption = Annotated[Path | None, typer.Option("--map", help="Mapping file for --format mapped.")]
TimezoneOption = Annotated[str | None, typer.Option(help="Zone of time stamps that name none.")]
TimeUnitOption = Annotated[str | None, typer.Option(help="Unit of numeric time stamps: s, ms, us, ns.")]
OriginOption = Annotated[str | None, typer.Option(help="Instant that relative time stamps count from.")]
FileOrderOption = Annotated[str | None, typer.Option(help="arrival: lines are in order of arrival.")]
CachedOption = Annotated[str | None, typer.Option(help="inside or outside the prompt's count.")]
ReasoningOption = Annotated[str | None, typer.Option(help="inside or outside the output's count.")]
ZeroOption = Annotated[str | None, typer.Option(help="What 0 tokens mean: missing or zero.")]
BlockOption = Annotated[int | None, typer.Option(help="Tokens in a block of prefix ids.", min=1)]
RateOption = Annotated[float | None, typer.Option(help="Spreads weka sessions in time.", min=0)]


def ingest(
    paths: PathsArgument = None,
    *,
    log_format: FormatOption = None,
    rebuild: RebuildOption = False,
    map_file: MapOption = None,
    timezone: TimezoneOption = None,
    time_unit: TimeUnitOption = None,
    origin: OriginOption = None,
    file_order: FileOrderOption = None,
    cached_tokens: CachedOption = None,
    reasoning_tokens: ReasoningOption = None,
    zero_usage: ZeroOption = None,
    block_tokens: BlockOption = None,
    session_rate_per_s: RateOption = None,
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    wait: WaitOption = 0.0,
    no_prefect: NoPrefectOption = False,
    json: JsonOption = False,
) -> None:
    """Read log files into the lake: every request once, whatever was read before."""
    from flows.fleet import load_fleet
    from transforms.source_settings import check_settings

    settings: dict[str, Any] = {
        "timezone": timezone,
        "time_unit": time_unit,
        "origin": origin,
        "file_order": file_order,
        "cached_tokens": cached_tokens,
        "reasoning_tokens": reasoning_tokens,
        "zero_usage": zero_usage,
        "block_tokens": block_tokens,
        "session_rate_per_s": session_rate_per_s,
        "map": _mapping(log_format, map_file),
    }
    check_settings(settings, "", is_flags=True)
    loaded = load_fleet(fleet, Home(home))
    sources: Sequence[Source]
    if paths:
        sources, base = _named(paths, log_format, settings, Home(home).catalog), Path.cwd()
    else:
        sources, base = _of_fleet(loaded, Home(home).catalog, is_rebuild=rebuild), loaded.base
    place = open_home(home)
    asked = Asked(sources, base, loaded.fleet.privacy, is_rebuild=rebuild)
    result = _run(place, asked, wait_s=wait, no_prefect=no_prefect)
    for warning in result.warnings:
        print_note(f"warning: {warning.text}")
    if json:
        print_json(result.summary())
    else:
        _print(result)


@dataclass(frozen=True)
class Asked:
    """What to read: sources, where their relative paths begin, how tenants are kept, whether all is read anew."""

    sources: Sequence[Source]
    base: Path
    privacy: Privacy
    is_rebuild: bool


def _named(paths: list[str], log_format: str | None, settings: dict[str, Any], catalog: Path) -> list[Source]:
    """The sources that the command line names."""
    from flows.sources import check_format
    from transforms.fleet import Source

    if log_format is None:
        raise ConfigError("ingest needs --format: the name of the logs' format, or auto")
    check_format(log_format, catalog)
    return [Source(log_format, path, **settings) for path in paths]


def _of_fleet(loaded: LoadedFleet, catalog: Path, *, is_rebuild: bool) -> Sequence[Source]:
    """The sources of the fleet file, which a rebuild without paths reads."""
    from flows.sources import check_sources

    if not is_rebuild:
        raise ConfigError(
            "ingest needs a PATH and its format, such as kvledger ingest logs/ --format auto (or --rebuild, for all "
            "sources of the fleet file)"
        )
    if not loaded.fleet.sources:
        raise ConfigError(f"fleet file {loaded.path} has no [[sources]]; name the logs on the command line")
    check_sources(loaded.fleet.sources, catalog, loaded.path)
    return loaded.fleet.sources


def _run(place: Home, asked: Asked, *, wait_s: float, no_prefect: bool) -> IngestResult:
    from flows.execution import execution
    from flows.progress import progress

    def body(stages: Stages) -> IngestResult:
        from flows.ingest import ingest as ingest_files

        return stages.run(
            "ingest",
            ingest_files,
            place,
            asked.sources,
            base=asked.base,
            privacy=asked.privacy,
            progress=progress,
            executor=stages.executor,
            is_rebuild=asked.is_rebuild,
        )

    with locked(place, wait_s), execution(place, no_prefect=no_prefect) as way:
        log_to_home(place)
        return way.run("ingest", body)


def _mapping(log_format: str | None, map_file: Path | None) -> dict[str, Any] | None:
    from flows.reading.formats import MAPPED, read_mapping
    from transforms.mapping import parse_mapping

    if log_format == MAPPED and map_file is None:
        raise ConfigError("--format mapped needs --map FILE.toml, which says which field is which column")
    if map_file is None:
        return None
    document = read_mapping(map_file)
    parse_mapping(document, f"mapping file {map_file}")
    return document


def _print(result: IngestResult) -> None:
    from flows.notes import left_out

    for file in result.files:
        counts = f"{file.loaded:,} loaded, {file.duplicates:,} duplicates, {file.rejected:,} rejected of {file.read:,}"
        print_line(f"{file.source_file}: {file.status} ({file.source}): {file.reason or counts}")
    total = {count: f"{result.total(count):,}" for count in ("read", "loaded", "duplicates", "rejected")}
    print_line("{read} read = {loaded} loaded + {duplicates} duplicates + {rejected} rejected".format_map(total))
    if told := left_out(result.files):
        print_line(told)
