"""A picture's file, or a part of it: the box that a detector or a person drew around an object.

The name of a part is the file's with the box behind it, ``photo.jpg#xywh=10,20,300,200``, so that tables, classifiers
and corrections keep it as they keep any other name.

Source: W3C, "Media Fragments URI 1.0", section 4.2.2, of which percentages may have decimals here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ..data.reading.decode import read_picture
from ..errors import DataError
from ..storage.tables import path_text

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_BOX = re.compile(f"#xywh=(percent:)?({_NUMBER}(?:,{_NUMBER}){{3}})$")


class Picture(NamedTuple):
    """A picture's file.

    Args:
        path: Its place, with the box of a part behind it, see `boxed`.
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


class Box(NamedTuple):
    """A rectangle from its left upper corner in an upright picture, in pixels or percent of its width and height."""

    x: float
    y: float
    width: float
    height: float
    percent: bool = False

    def __str__(self) -> str:
        unit = "percent:" if self.percent else ""
        return f"xywh={unit}{self.x:.6g},{self.y:.6g},{self.width:.6g},{self.height:.6g}"


def boxed(picture: Path, box: Box | None) -> Path:
    """The name of a part of a picture, or with None of the whole."""
    return picture if box is None else picture.with_name(f"{picture.name}#{box}")


def unboxed(name: Path) -> tuple[Path, Box | None]:
    """The file that a picture or a part of it is in, and its box; None for the whole, also of a file of such a name.

    Example:
        >>> unboxed(Path("a.jpg#xywh=percent:0,12.5,50,50"))
        (PosixPath('a.jpg'), Box(x=0.0, y=12.5, width=50.0, height=50.0, percent=True))
    """
    found = _BOX.search(name.name)
    if found is None or os.path.lexists(name):
        return name, None
    x, y, width, height = map(float, found[2].split(","))
    return name.with_name(name.name[: found.start()]), Box(x, y, width, height, percent=bool(found[1]))


def read_boxed(name: Path) -> Image.Image:
    """A picture, or the part of it that is named, see `read_picture` and `cropped`."""
    file, box = unboxed(name)
    image = read_picture(file)
    return image if box is None else cropped(image, box, file)


def cropped(image: Image.Image, box: Box, file: Path) -> Image.Image:
    """The square around a box, as far as the picture goes: backbones see squares, and would cut off a box's ends.

    Example:
        >>> cropped(Image.new("RGB", (100, 50)), Box(0, 10, 10, 20), Path("a.jpg")).size
        (20, 20)
    """
    wide, high = (image.width / 100, image.height / 100) if box.percent else (1.0, 1.0)
    x, y, width, height = box.x * wide, box.y * high, box.width * wide, box.height * high
    if min(width, height) <= 0 or not (-width < x < image.width and -height < y < image.height):
        raise DataError(f"The box {box} is empty, or not in {file}, which has {image.width} x {image.height} pixels.")
    side = max(width, height)
    left, right = _within(x + width / 2, side, image.width)
    upper, lower = _within(y + height / 2, side, image.height)
    return image.crop((left, upper, right, lower))


def _within(centre: float, side: float, length: int) -> tuple[int, int]:
    """Where a side around a centre begins and ends, moved and cut so that the length holds it."""
    whole = min(max(round(side), 1), length)
    begin = min(max(round(centre - side / 2), 0), length - whole)
    return begin, begin + whole
