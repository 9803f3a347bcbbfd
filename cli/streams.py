"""Standard output and error that may fail, while the command still writes its files."""

from __future__ import annotations

import io
import os
import sys


class Stream(io.TextIOWrapper):
    """Text to a stream of the operating system; once that fails, as when the reader of a pipe left, to nowhere.

    So nothing is lost that a command does after it has printed something.
    """

    fault: OSError | None = None  # What went wrong first; None if nothing.

    def write(self, text: str) -> int:
        """Write a text, or remember why not."""
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        """Write what is pending, or remember why not."""
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.fault = self.fault or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # where what is pending goes too
        os.close(nowhere)


def replace(name: str) -> Stream | None:
    """Put a `Stream` in the place of ``sys.stdout`` or ``sys.stderr``; None where that is none, as in a test."""
    stream = getattr(sys, name)
    if type(stream) is not io.TextIOWrapper:
        return None
    stream.flush()
    unclosed = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115  # the stream lives as long as the process
    # A terminal without ± gets an escape.
    found = Stream(unclosed, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)
    setattr(sys, name, found)
    return found
