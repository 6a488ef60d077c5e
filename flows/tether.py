"""Runs a Python module for as long as the process that started it lives, however that process ends.

Run by path with the standard library alone: ``python -P tether.py MODULE ARGUMENT…``. Standard input is the tether:
nobody writes to it, and the system closes it when its other end dies, by SIGKILL or power of the out-of-memory
killer too.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys
import threading
import time

GRACE_S = 3.0
"""How long a module may take to stop by itself before it is killed."""

LAZY_COLLECTION_OBJECTS = 50_000
"""Objects between garbage collections: a large framework is imported a tenth faster than with Python's 700 or 2,000."""


def _follow(tether_fd: int) -> None:
    """End this process soon after the other end of the tether is gone."""
    while os.read(tether_fd, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Run the module named first with the arguments after it, tethered to whoever holds standard input's other end."""
    tether_fd = os.dup(0)
    nothing_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing_fd, 0)
    os.close(nothing_fd)
    threading.Thread(target=_follow, args=(tether_fd,), name="tether", daemon=True).start()
    gc.set_threshold(LAZY_COLLECTION_OBJECTS, 20, 20)
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
