"""Glyphs: characters of five scripts in the fonts that matplotlib ships; nothing is downloaded.

Train classes are Latin, Greek, digits and signs, val classes Cyrillic, test classes Armenian and Georgian, so
that a model meets new scripts, not only new letters. No two characters look alike, whether as they are or
mirrored, because training usually flips images. Every image has its own font, pose, colours, background and
noise.

The images follow from `Glyphs.version` alone. Random numbers come from PCG64 and the arithmetic avoids
functions that differ between processors; what remains is the FreeType in Pillow, whose versions may differ by
a few grey levels along the edges of a letter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Generator
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ...errors import DataError, UsageError
from ...extras import needs_extra
from ..base import Dataset, Split
from ..prepared import RawSplit

CHARACTERS = {
    "train": "ABCDEFGHJKLMNPQRSTUVWXYZabefghmnrt234578&@%#?*ΓΔΘΞΠΣΦΨΩαγδζλμξσω",
    "val": "БДЖИЛЦЧШЫЮЯЭЪЂЊѢ",
    "test": "ԱԲԴԶԹԺԽԾՃՖაბგდზლოფჩხ",
}
IMAGES_PER_CLASS = 300

_SANS, _SERIF = ("", "-Bold", "-Oblique", "-BoldOblique"), ("", "-Bold", "-Italic", "-BoldItalic")
_STYLES = {"Sans": _SANS, "SansMono": _SANS, "Serif": _SERIF}
_DEJAVU = [f"DejaVu{family}{style}" for family, styles in _STYLES.items() for style in styles]
_STIX = ["STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"]
_FONTS = {"train": _DEJAVU + _STIX, "val": _DEJAVU + _STIX, "test": _DEJAVU}  # STIX has no Armenian or Georgian


class Glyphs(Dataset):
    """Drawn characters, 64/16/20 classes of 300 images; prepared on first use, in seconds.

    Example:
        >>> {split: len(set(characters)) for split, characters in CHARACTERS.items()} == dict(GLYPHS.classes)
        True
    """

    name = "glyphs"
    title = "Glyphs"
    version = 2
    image_size = 32
    classes: ClassVar = {split: len(characters) for split, characters in CHARACTERS.items()}
    images_per_class = IMAGES_PER_CLASS

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """Draw the splits; a source is refused. See `Dataset.read`."""
        if source is not None:
            raise UsageError(f"{self.title} are drawn by the plugin: they take no archive or folder.")
        for split, characters in CHARACTERS.items():
            report(f"Drawing the {split} images.")
            images = {
                unicodedata.name(character).lower(): draw(character, _FONTS[split], self.image_size, self.version)
                for character in characters
            }
            yield RawSplit(split, images, np.asarray)

    def load(self, root: Path, split: str) -> Split:
        """Open one split, made first if it is not there, or damaged; see `Dataset.load`."""
        try:
            return super().load(root, split)
        except DataError:
            self.prepare(root)
            return super().load(root, split)


class Glyphs84(Glyphs):
    """The same characters at 84x84, for models made for miniImageNet."""

    name = "glyphs-84"
    title = "Glyphs at 84x84"
    image_size = 84


def draw(character: str, fonts: list[str], image_size: int, version: int) -> np.ndarray:
    """All images of one class, uint8 ``(300, image_size, image_size, 3)``.

    The fonts are matplotlib's that have the character, without ``.ttf``; the version seeds the random numbers with it.
    """
    random = np.random.Generator(np.random.PCG64([version, ord(character)]))
    masks = [_mask(character, font, image_size) for font in fonts]
    chosen = random.integers(len(fonts), size=IMAGES_PER_CLASS)
    poses = _poses(random, masks[0].width, image_size)
    letters = [
        masks[font].transform((image_size, image_size), Image.Transform.AFFINE, tuple(pose), Image.Resampling.BILINEAR)
        for font, pose in zip(chosen, poses, strict=True)
    ]
    return _paint(random, np.stack([np.asarray(letter) for letter in letters]))


def _mask(character: str, font: str, image_size: int) -> Image.Image:
    """The character in white on black, filling a square."""
    with needs_extra("Drawing glyphs in matplotlib's fonts", "report"):
        from matplotlib import get_data_path

    path = Path(get_data_path(), "fonts", "ttf", f"{font}.ttf")
    side = image_size * 3 // 2  # larger than it will appear, so that rotation does not blur it
    face = ImageFont.truetype(str(path), side, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (4 * side, 4 * side))
    ImageDraw.Draw(canvas).text((2 * side, 2 * side), character, fill=255, font=face, anchor="mm")
    return ImageOps.pad(canvas.crop(canvas.getbbox()), (side, side))


def _poses(random: np.random.Generator, side: int, image_size: int) -> np.ndarray:
    """Affine maps from image to mask coordinates, ``(300, 6)``: turned, slanted, scaled and shifted."""
    half_tangent, slant, extent, *shift = random.uniform(
        [[-0.12], [-0.2], [0.6], [-0.06], [-0.06]],
        [[0.12], [0.2], [0.9], [0.06], [0.06]],
        (5, IMAGES_PER_CLASS),
    )
    # Sine and cosine by the half-angle formulas: those of the C library differ between processors.
    cosine = (1 - half_tangent**2) / (1 + half_tangent**2)
    sine = 2 * half_tangent / (1 + half_tangent**2)
    scale = side / (extent * image_size)
    a, b = scale * (cosine + slant * sine), scale * (slant * cosine - sine)
    d, e = scale * sine, scale * cosine
    x, y = (image_size * (0.5 + part) for part in shift)
    return np.stack([a, b, side / 2 - a * x - b * y, d, e, side / 2 - d * x - e * y], axis=1)


def _paint(random: np.random.Generator, letters: np.ndarray) -> np.ndarray:
    """Masks ``(n, s, s)`` to images: a colour gradient, the letter in a lighter colour, and noise."""
    n, size = letters.shape[:2]
    start, change, difference = random.uniform([[[0]], [[-40]], [[80]]], [[[106]], [[40]], [[150]]], (3, n, 3)).astype(
        np.float32
    )[:, :, None, None, :]
    direction = random.uniform(-1, 1, (2, n, 1, 1, 1)).astype(np.float32)
    ramp = np.linspace(-0.5, 0.5, size, dtype=np.float32)[:, None]
    background = start + change * (direction[0] * ramp[:, None] + direction[1] * ramp)
    opacity = random.uniform(0.6, 1, (n, 1, 1, 1)).astype(np.float32) * (letters[..., None] / np.float32(255))
    noise = random.random((n, size, size, 3), dtype=np.float32) - np.float32(0.5)
    strength = random.uniform(10, 60, (n, 1, 1, 1)).astype(np.float32)
    image = background + opacity * difference + strength * noise
    return np.rint(image.clip(0, 255)).astype(np.uint8)


GLYPHS = Glyphs()
GLYPHS_84 = Glyphs84()
