"""A picture's file, with what is known of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ..storage.tables import path_text


class Picture(NamedTuple):
    """A picture's file.

    Args:
        path: Its place, with the box of a part behind it, see `boxes`.
        label: Its class as `class_name` keeps it, None where it is not known.
        group: What it belongs together by with others, see `grouping`; empty where it is by itself.
    """

    path: Path
    label: str | None = None
    group: str = ""

    @property
    def name(self) -> str:
        """Its name in predictions and classifiers: its path from the root as text, see `path_text`."""
        return path_text(os.path.abspath(self.path))
