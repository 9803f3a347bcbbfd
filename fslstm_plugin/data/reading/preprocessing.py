"""How a picture becomes a network's input, as data that another program can follow; PyTorch is not imported."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from PIL import Image

from ...normalization import Normalization
from .decode import LONGEST, fitted, shortened

RESIZE_FIRST = ("resize", "crop", "scale", "normalize")


class Preprocessing(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done to an upright RGB picture; heights come before widths, in pixels.

    Example:
        >>> crop = centre_crop(32, Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
        >>> pixels = crop(Image.new("RGB", (80, 60), "white"))
        >>> pixels.shape, float(pixels.min())
        ((3, 32, 32), 1.0)
    """

    size: tuple[int, int]  # Of the input.
    order: tuple[str, ...]  # Of the steps "resize", "crop", "scale" and "normalize".
    resize: int | tuple[int, int]  # Of the shorter side, the longer one in proportion, rounded down; or of both.
    interpolation: str  # Of the resizing, with antialiasing: "bilinear" or "bicubic".
    crop: tuple[int, int] | None  # Of the part that is kept, from the middle; None for the largest square.
    mean: tuple[float, float, float]  # Of red, green and blue, which is subtracted.
    std: tuple[float, float, float]  # By which is divided then.
    scale: float = 1 / 255  # Factor of the pixels, which are 0 to 255.
    channels: str = "RGB"
    max_aspect_ratio: float = LONGEST  # Of a picture that is longer in proportion, the middle is taken first.

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Normalised pixels, float32 ``(3, H, W)``, of an upright RGB picture."""
        # In double precision the product is the quotient by 255, as PyTorch's programs have it.
        pixels = (np.asarray(self._seen(image)).transpose(2, 0, 1) * self.scale).astype(np.float32, order="C")
        mean, std = (np.array(each, dtype=np.float32)[:, None, None] for each in (self.mean, self.std))
        return (pixels - mean) / std

    def _seen(self, image: Image.Image) -> Image.Image:
        """The part of the picture that is seen, in the size of the input."""
        image, resampling = shortened(image, self.max_aspect_ratio), Image.Resampling[self.interpolation.upper()]
        if self.crop is None:
            return fitted(image, (self.size[1], self.size[0]), resampling)
        if isinstance(self.resize, int):
            height, width = (int(self.resize * side / min(image.size)) for side in (image.height, image.width))
        else:
            height, width = self.resize
        top, left = round((height - self.crop[0]) / 2), round((width - self.crop[1]) / 2)
        return image.resize((width, height), resampling).crop((left, top, left + self.crop[1], top + self.crop[0]))


def centre_crop(image_size: int, normalization: Normalization) -> Preprocessing:
    """Preprocessing of the plugin's own backbones, the same as that of prepared data sets.

    The shorter side is resized to the image size (bicubic), and the centre of the longer one kept.
    """
    size, mean, std = (image_size, image_size), normalization.mean, normalization.std
    return Preprocessing(size, ("crop", "resize", "scale", "normalize"), size, "bicubic", None, mean, std)
