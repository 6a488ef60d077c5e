"""A file that a command names is there whole or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from transforms.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Lend a path beside `path` to write to; it becomes `path` when the block ends well, and is gone otherwise.

    HomeError where it cannot be written.
    """
    if not path.name:
        raise HomeError(f"{path} is a folder; name a file")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        raise HomeError(f"{path} cannot be written ({error.strerror or error}); name another file") from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
