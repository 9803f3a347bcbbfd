"""Provenance of a number."""

from __future__ import annotations

import shlex
import sys
from datetime import date
from pathlib import Path

from .. import __version__


def made_now() -> dict[str, str]:
    """What every JSON file says of itself: the command as typed, the version of this package, and the date."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    command = command.encode("utf-8", "backslashreplace").decode()  # file names need not be valid text
    return {"command": command, "version": __version__, "date": date.today().isoformat()}
