"""Provenance of a number."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def command_line() -> str:
    """The command that this process was started with, as typed."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return command.encode("utf-8", "backslashreplace").decode()  # file names need not be valid text
