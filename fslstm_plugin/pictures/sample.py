"""Drawings to try the commands on: boats, fish, flowers, houses, trees; cars and clocks, which are none of these."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ..errors import UsageError
from ..storage.files import subfolder
from ..storage.folders import whole_folder

_SIZE, _FINER = (160, 120), 3  # Pixels, and how much finer it is drawn.
_LABELLED, _NEW, _OTHERS = 5, 7, 4  # Pictures of each class; of cars and of clocks.

Colour = tuple[int, ...]


class _Pen:
    """Draws in units of the picture's height, around a random place, in random colours."""

    def __init__(self, random: np.random.Generator) -> None:
        width, height = (side * _FINER for side in _SIZE)
        self.image = Image.new("RGB", (width, height), tuple(random.integers(170, 245, 3).tolist()))
        self._draw, self._height = ImageDraw.Draw(self.image), height
        bright = [230, int(random.integers(60, 200)), 40]
        self.random, self.colour = random, tuple(random.permutation(bright).tolist())
        self._size = random.uniform(0.75, 1.1)
        self._place = random.uniform(0.45, 0.9), random.uniform(0.48, 0.6)

    def ground(self, colour: Colour, height: float = 0.72) -> None:
        self._draw.rectangle((0, height * self._height, 10 * self._height, self._height), fill=colour)

    def polygon(self, *points: tuple[float, float], fill: Colour | None = None) -> None:
        self._draw.polygon([self._at(*point) for point in points], fill=fill or self.colour)

    def oval(self, x: float, y: float, width: float, height: float, fill: Colour | None = None) -> None:
        corners = (*self._at(x - width, y - height), *self._at(x + width, y + height))
        self._draw.ellipse(corners, fill=fill or self.colour)

    def line(self, *points: tuple[float, float], fill: Colour, width: float = 0.02) -> None:
        self._draw.line([self._at(*point) for point in points], fill=fill, width=round(width * self._height))

    def _at(self, x: float, y: float) -> tuple[float, float]:
        left, top = self._place
        return (left + self._size * x) * self._height, (top + self._size * y) * self._height


_BROWN, _DARK, _WHITE, _GREEN, _SEA = (110, 70, 40), (50, 50, 60), (250, 250, 245), (70, 150, 70), (60, 110, 180)


def _boat(pen: _Pen) -> None:
    pen.ground(_SEA)
    pen.polygon((-0.3, 0.15), (0.3, 0.15), (0.2, 0.28), (-0.2, 0.28), fill=_BROWN)
    pen.line((0, 0.15), (0, -0.38), fill=_DARK)
    pen.polygon((0.02, -0.36), (0.02, 0.1), (0.26, 0.1))
    pen.polygon((-0.02, -0.28), (-0.02, 0.1), (-0.2, 0.1), fill=_WHITE)


def _fish(pen: _Pen) -> None:
    pen.ground(_SEA, height=0)
    pen.oval(0, 0, 0.3, 0.16)
    pen.polygon((-0.24, 0), (-0.45, -0.16), (-0.45, 0.16))
    pen.oval(0.18, -0.04, 0.03, 0.03, fill=_WHITE)
    for _ in range(4):
        x, y = pen.random.uniform(-0.3, 0.4), pen.random.uniform(-0.4, -0.2)
        pen.oval(x, y, 0.02, 0.02, fill=(190, 220, 245))


def _flower(pen: _Pen) -> None:
    pen.ground(_GREEN, height=0.85)
    pen.line((0, 0), (0, 0.4), fill=(50, 120, 50), width=0.03)
    petals = int(pen.random.integers(5, 8))
    for number in range(petals):
        angle = 2 * math.pi * number / petals
        pen.oval(0.15 * math.cos(angle), -0.1 + 0.15 * math.sin(angle), 0.09, 0.09)
    pen.oval(0, -0.1, 0.09, 0.09, fill=(250, 210, 60))


def _house(pen: _Pen) -> None:
    pen.ground(_GREEN)
    pen.polygon((-0.28, -0.05), (0.28, -0.05), (0.28, 0.3), (-0.28, 0.3), fill=_WHITE)
    pen.polygon((-0.35, -0.05), (0, -0.35), (0.35, -0.05))
    pen.polygon((-0.06, 0.3), (-0.06, 0.1), (0.06, 0.1), (0.06, 0.3), fill=_BROWN)
    for x in (-0.18, 0.18):
        pen.polygon((x - 0.06, 0.03), (x + 0.06, 0.03), (x + 0.06, 0.14), (x - 0.06, 0.14), fill=_SEA)


def _tree(pen: _Pen) -> None:
    pen.ground(_GREEN)
    pen.polygon((-0.05, 0.35), (0.05, 0.35), (0.04, 0), (-0.04, 0), fill=_BROWN)
    for x, y in ((0, -0.2), (-0.14, -0.08), (0.14, -0.08), (0, -0.04)):
        pen.oval(x, y, 0.16, 0.15, fill=(40, int(pen.random.integers(110, 170)), 60))


def _car(pen: _Pen) -> None:
    pen.ground((120, 120, 125))
    pen.polygon((-0.36, 0.05), (0.36, 0.05), (0.36, 0.22), (-0.36, 0.22))
    pen.polygon((-0.2, 0.05), (-0.1, -0.1), (0.12, -0.1), (0.24, 0.05), fill=_WHITE)
    for x in (-0.2, 0.2):
        pen.oval(x, 0.22, 0.08, 0.08, fill=_DARK)


def _clock(pen: _Pen) -> None:
    pen.oval(0, 0, 0.32, 0.32)
    pen.oval(0, 0, 0.27, 0.27, fill=_WHITE)
    for length, width in ((0.15, 0.03), (0.22, 0.02)):
        angle = pen.random.uniform(0, 2 * math.pi)
        pen.line((0, 0), (length * math.cos(angle), length * math.sin(angle)), fill=_DARK, width=width)


_CLASSES: dict[str, Callable[[_Pen], None]] = {
    "boat": _boat, "fish": _fish, "flower": _flower, "house": _house, "tree": _tree,
}  # fmt: skip
_NONE_OF_THEM: dict[str, Callable[[_Pen], None]] = {"car": _car, "clock": _clock}


def draw_sample(folder: Path) -> None:
    """Draw 25 labelled pictures of 5 classes, 43 new ones, of which 8 are of no class, and the same with their labels.

    The folder gets ``labelled/CLASS/``, ``new/`` and ``known/CLASS/``, whole or not at all. Such a sample that is there
    already stays as it is; anything else in its place is refused.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "sample"
        >>> draw_sample(folder)
        >>> [len(list((folder / name).rglob("*.png"))) for name in ("labelled", "new", "known")]
        [25, 43, 43]
    """
    if os.path.lexists(folder):
        if all((folder / name).is_dir() for name in ("new", *(f"labelled/{each}" for each in _CLASSES))):
            return
        raise UsageError(
            f"{folder} already exists and is not a sample of this command: rename it, "
            "or start the command in another folder."
        )
    random = np.random.default_rng(0)
    counts = {**dict.fromkeys(_CLASSES, _NEW), **dict.fromkeys(_NONE_OF_THEM, _OTHERS)}
    new = [name for name, count in counts.items() for _ in range(count)]
    with whole_folder(folder) as drawn:
        for name, draw in _CLASSES.items():
            for number in range(_LABELLED):
                _drawn(draw, random).save(subfolder(subfolder(drawn, "labelled"), name) / f"{name}-{number}.png")
        for number, place in enumerate(random.permutation(len(new)).tolist()):
            name = new[place]
            image = _drawn({**_CLASSES, **_NONE_OF_THEM}[name], random)
            for target in (subfolder(drawn, "new"), subfolder(subfolder(drawn, "known"), name)):
                image.save(target / f"{number:02}.png")


def _drawn(draw: Callable[[_Pen], None], random: np.random.Generator) -> Image.Image:
    pen = _Pen(random)
    draw(pen)
    return pen.image.resize(_SIZE, Image.Resampling.LANCZOS)
