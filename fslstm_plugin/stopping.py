"""Signals that end a training: their exit codes, and what they do while no training runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import FSLSTMError

# Ctrl-C, and what schedulers send before they kill; Windows has no SIGUSR1.
STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
STOPPED = "Stopped; nothing was left half-written."
_WAIT = 0.05  # seconds


class Interrupted(FSLSTMError):
    """The training was stopped from outside; it can be continued.

    Args:
        message: The sentence for the user.
        number: The signal. The exit code is 130 after Ctrl-C, as usual; after a scheduler's warning it is 75, a
            temporary failure (``EX_TEMPFAIL``), so that a job script can queue the job again.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
        self.exit_code = 130 if number == signal.SIGINT else 75


def listen(handler: Callable[..., None], numbers: Iterable[int] = STOP_SIGNALS) -> dict[int, Any]:
    """Set a handler for signals; the previous ones, none outside the main thread, where Python delivers no signals.

    A signal that comes while PyTorch is imported waits until that has ended: an exception that meets PyTorch's C++ code
    aborts the process. Windows lets no signal wait.
    """

    def handle(number: int, frame: object) -> None:
        importing = getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)
        if importing and hasattr(signal, "pthread_kill"):
            again = threading.Timer(_WAIT, signal.pthread_kill, [threading.get_ident(), number])
            again.daemon = True  # A command that ends meanwhile ends.
            again.start()
        else:
            handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handle) for number in numbers}


@contextmanager
def listening(handler: Callable[..., None], numbers: Iterable[int] = STOP_SIGNALS) -> Iterator[None]:
    """Set a handler for signals, by default the stop signals, while the block runs."""
    old = listen(handler, numbers)
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


class _Stop(BaseException):
    """Passes, like KeyboardInterrupt, through code that catches every Exception, as some imports do."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let a stop signal end a command at once, with its exit code, until a training takes over the signals.

    It is made to be entered before the imports and the data, which take seconds to minutes; as a decorator, too.

    Raises:
        Interrupted: If one comes.

    Example:
        >>> with stoppable():
        ...     signal.raise_signal(signal.SIGTERM)
        Traceback (most recent call last):
        ...
        fslstm_plugin.stopping.Interrupted: Stopped while no step was being trained; nothing is lost. ...
    """

    def stop(number: int, _: object) -> NoReturn:
        raise _Stop(number)

    try:
        with listening(stop):
            yield
    except _Stop as stopped:
        raise Interrupted(
            "Stopped while no step was being trained; nothing is lost. Type the same command again, or continue with "
            "--resume if it has made its run already.",
            stopped.args[0],
        ) from None
