"""What a run needs from outside: the fleet file, the logs it names, and Prefect's server."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from flows.checks.check import Check, fail, halves, ok, warn
from flows.discover import find_files
from flows.fetching import objects_of
from flows.object_store import is_url, read_secrets
from flows.processes import recorded
from flows.review import check_request
from transforms.errors import KvledgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.fleet import LoadedFleet
    from flows.home import Home
    from transforms.fleet import Source

ANSWER_TIMEOUT_S = 5.0


def surroundings(home: Home, loaded: LoadedFleet | KvledgerError) -> Iterator[Check]:
    """Findings on the fleet file (or why it cannot be read), its sources, and Prefect's server."""
    yield _fleet(home, loaded)
    if not isinstance(loaded, KvledgerError):
        yield from _sources(home, loaded)
    yield _server(home)


def _fleet(home: Home, loaded: LoadedFleet | KvledgerError) -> Check:
    if isinstance(loaded, KvledgerError):
        return fail("fleet", *halves(str(loaded)))
    try:
        check_request(home, loaded, week=None)
    except KvledgerError as error:
        return fail("fleet", *halves(str(error)))
    found = f"{loaded.path}: {len(loaded.fleet.deployments)} deployments, {len(loaded.fleet.sources)} sources"
    if loaded.is_example:
        return warn("fleet", f"the example, {found}", f"write your own to {home.fleet}")
    return ok("fleet", found)


def _sources(home: Home, loaded: LoadedFleet) -> Iterator[Check]:
    for source in loaded.fleet.sources:
        name = f"source {source.name or source.path}"
        try:
            read_secrets(home)
            sizes = _sizes(source, loaded)
        except KvledgerError as error:
            text, todo = halves(str(error))
            yield fail(name, text, "kvledger sample makes it" if loaded.is_example else todo)
        except OSError as error:
            yield fail(name, f"{error.filename} cannot be read ({error.strerror})", "mend its permissions")
        else:
            yield ok(name, f"{len(sizes):,} files, {sum(sizes) / (1 << 20):,.1f} MiB, format {source.format}")


def _sizes(source: Source, loaded: LoadedFleet) -> list[int]:
    """Bytes of each file or object that a source names."""
    if is_url(source.path):
        return [stored.size_bytes for stored in objects_of(source.path)[2]]
    files = find_files([source], loaded.base, loaded.fleet.privacy.identifiers)
    return [file.path.stat().st_size for file in files]


def _server(home: Home) -> Check:
    url = os.environ.get("PREFECT_API_URL")
    if url:
        trouble = unanswered(url)
        if trouble is None:
            return ok("prefect", f"the server at {url} answers")
        return fail(
            "prefect",
            f"no answer from the server at {url} ({trouble})",
            "start it, unset PREFECT_API_URL, or pass --no-prefect",
        )
    state = recorded(home.prefect / "server.json")
    if state == "orphaned":
        return warn("prefect", "a server that a killed run left behind still lives", "the next run ends it")
    return ok("prefect", "a server of its own for each run" + (", one runs now" if state == "running" else ""))


def unanswered(url: str) -> str | None:
    """Why Prefect's API at `url` does not say that it is healthy; None where it does."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=ANSWER_TIMEOUT_S):  # noqa: S310 - the user's own
            return None
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
