"""Which labelled pictures belong together: by their folder, the time they were taken, their file, or a column."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from PIL import Image

from ..data.reading.walk import Report
from ..errors import UsageError, printable
from .listing import labelled
from .picture import Picture, unboxed

FOLDER, TIME, PICTURE = "folder", "time", "picture"
_SECONDS = 60.0  # Between two pictures of a group, unless another number is given.
_EXIF, _TAKEN, _CHANGED = 0x8769, 0x9003, 0x0132


def grouped(source: Path, by: str | None, report: Report = warnings.warn) -> list[Picture]:
    """Labelled pictures with their groups.

    Args:
        source: See `labelled`.
        by: ``"folder"``: the folder within its class folder that a picture is in. ``"time"``: at most 60 seconds lie
            between one picture and the next, or as many as ``"time:SECONDS"`` says, by the time in their EXIF data.
            ``"picture"``: boxes of one picture. Anything else is the column of a CSV file. None: each is by itself.
        report: See `labelled`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat/first/1.png", "cat/first/2.png", "dog/1.png"):
        ...     (folder / name).parent.mkdir(parents=True, exist_ok=True)
        ...     (folder / name).touch()
        >>> [each.group for each in grouped(folder, "folder", print)]
        Folders within a class folder belong to its class: cat/first.
        ['cat/first', 'cat/first', '']
    """
    kind, _, seconds = (by or "").partition(":")
    known = by is None or by in (FOLDER, PICTURE) or kind == TIME
    found = labelled(source, report, None if known else by)
    if by is None:
        return found
    root, depth = (source, 1) if source.is_dir() else (source.parent, 0)  # pictures so deep have no folder of their own
    if by == FOLDER:
        folders = (_beside(each.path.parent, root) for each in found)
        names = [each.as_posix() if len(each.parts) > depth else "" for each in folders]
    elif by == PICTURE:
        places = (unboxed(each.path) for each in found)
        names = [_beside(file, root).as_posix() if box else "" for file, box in places]
    elif kind == TIME:
        names = _by_time(found, _seconds_of(seconds), report)
    else:
        names = [each.group for each in found]
    if not any(names):
        raise UsageError(f"No pictures of {source} belong together by '{by}': leave out the groups.")
    return [each._replace(group=printable(name)) for each, name in zip(found, names, strict=True)]


def _beside(folder: Path, other: Path) -> Path:
    return folder.relative_to(other) if folder.is_relative_to(other) else folder


def _seconds_of(text: str) -> float:
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"Groups by time take a number of seconds above 0, such as time:300, but got 'time:{text}'.")
    return seconds


def _by_time(pictures: Sequence[Picture], seconds: float, report: Report) -> list[str]:
    times = [_taken(each) for each in pictures]
    names, before, group = [""] * len(pictures), None, ""
    for time, place in sorted((time, place) for place, time in enumerate(times) if time is not None):
        if before is None or (time - before).total_seconds() > seconds:
            group = time.isoformat(" ")
        names[place], before = group, time
    if missing := times.count(None):
        report(f"Pictures without a time in their EXIF data: {missing:,}; each is a group of its own.")
    return names


def _taken(picture: Picture) -> datetime | None:
    """When a picture was taken, if it says so."""
    file, _ = unboxed(picture.path)
    try:
        with Image.open(file) as image:
            exif = image.getexif()
        text = exif.get_ifd(_EXIF).get(_TAKEN) or exif.get(_CHANGED)
        return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    except Exception:  # of any damage; a picture that cannot be read is named when it is decoded
        return None
