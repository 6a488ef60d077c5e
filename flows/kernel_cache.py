"""Where the compiled replay kernel is kept: a folder named by what it was compiled from, so that it is never stale."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGE = "transforms.planner"
_SOURCES = ("kernel/*.py", "replay/step_costs.py")
"""Below the package: the kernel, and the fields its records are made of."""


def use_kernel_cache(announce: Callable[[str], None] | None = None) -> Path:
    """Folder that numba keeps the compiled kernel in from now on; call it before the first replay of a process.

    `announce` is told once where nothing is compiled yet: the first replay then takes up to a minute longer. Numba's
    own check looks at one source file only, so it would run old code after a change in another one.
    """
    folder = kernel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    if announce is not None and not any(folder.rglob("run.run-*.nbi")):
        announce("compiling the replay's kernel, once for this version: about a minute")
    return folder


def kernel_folder() -> Path:
    """Folder that the kernel of this version is kept in; it may not be there yet."""
    return _parent() / f"kernel-{_fingerprint()}"


def _parent() -> Path:
    """KVLEDGER_KERNEL_CACHE, else the user's cache folder, else (read-only home) the temporary one."""
    named = os.environ.get("KVLEDGER_KERNEL_CACHE")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvledger"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"kvledger-{os.getuid()}"
    return cache if os.access(cache, os.W_OK) else Path(tempfile.gettempdir()) / f"kvledger-{os.getuid()}"


def _fingerprint() -> str:
    """First 16 hex digits of a hash over the sources and the versions of all that compiles them."""
    digest = hashlib.sha256()
    for part in ("numba", "llvmlite", "numpy"):
        digest.update(f"{part} {version(part)}\n".encode())
    digest.update(f"{platform.python_version()} {platform.machine()}\n".encode())
    spec = find_spec(_PACKAGE)
    folder = Path((spec.origin if spec else None) or "").parent
    for pattern in _SOURCES:
        for path in sorted(folder.glob(pattern)):
            digest.update(f"{path.name}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
