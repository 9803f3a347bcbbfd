"""The process of the command line, and its end."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from .main import run


def start() -> None:
    """Run the command line, and end without the destructors of the libraries.

    Those of PyTorch's build for CUDA read more than 100 MB from disk to return what the system takes back by itself.
    Threads have ended by then, and what other modules registered with ``atexit`` is done.
    """
    code = 1  # of an exception that nobody caught

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # none, or closed
                stream.flush()
        os._exit(code)

    atexit.register(leave)  # The first that is registered is the last that is called.
    try:
        run()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    code = 0
