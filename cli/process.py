"""The process of the command line, and its end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from fslstm_plugin.stopping import STOPPED


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

    if sys.stderr is None:  # closed; print() would take the standard output in its place
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # the stream lives as long as the process
    signal.signal(signal.SIGTERM, _terminated)
    atexit.register(leave)  # Before what imports register: the first that is registered is the last that is called.
    try:
        from .main import run

        run()
    except KeyboardInterrupt as stop:  # before anything else listens for it, or after that
        code = 128 + (stop.args[0] if stop.args else signal.SIGINT)
        print(f"fslstm: {STOPPED}", file=sys.stderr)
        raise SystemExit(code) from None
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    code = 0


def _terminated(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)
