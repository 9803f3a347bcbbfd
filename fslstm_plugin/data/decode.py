"""One image file of any mode to uint8 RGB."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ..errors import DataError


def read_rgb(source: Path | bytes, image_size: int | None = None) -> np.ndarray:
    """Decode an image as a viewer shows it: in RGB, upright by its EXIF orientation, on white where it is transparent.

    Args:
        source: A file, or the encoded bytes.
        image_size: Height and width in pixels: the shorter side is resized to it (bicubic) and the centre
            of the longer one kept. None, the default, leaves the image as large as it is.

    Returns:
        uint8 ``(H, W, 3)``.

    Raises:
        DataError: If it is truncated, no image, or not of 8 bits a channel; the message has its path.

    Example:
        >>> import io
        >>> png = io.BytesIO()
        >>> Image.new("L", (6, 4), 128).save(png, "png")
        >>> read_rgb(png.getvalue()).shape, read_rgb(png.getvalue(), 2).shape
        ((4, 6, 3), (2, 2, 3))
    """
    name = source if isinstance(source, Path) else f"of {len(source)} bytes"
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            mode, rgb = image.mode, _on_white(_upright(image))
    except Exception as error:  # Pillow's decoders raise whatever comes on damaged files
        raise DataError(f"The image {name} is truncated or no image ({error}).") from error
    if mode.startswith(("I", "F")):  # Pillow would cut off what is above 255
        raise DataError(f"The image {name} has pixels of the mode {mode}, but 8 bits a channel were expected.")
    return np.asarray(rgb if image_size is None else fit_square(rgb, image_size))


def fit_square(image: Image.Image, image_size: int) -> Image.Image:
    """The centre square of an image, resized (bicubic) to ``image_size`` pixels a side if it is of another size.

    Example:
        >>> fit_square(Image.new("RGB", (80, 60)), 32).size
        (32, 32)
    """
    if image.size == (image_size, image_size):
        return image
    return ImageOps.fit(image, (image_size, image_size), Image.Resampling.BICUBIC)


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data that is damaged says nothing about the pixels
        return image


def _on_white(image: Image.Image) -> Image.Image:
    if "transparency" not in image.info and image.mode not in ("LA", "PA", "RGBA", "RGBa"):
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    white = Image.new("RGBA", pixels.size, "white")
    return Image.alpha_composite(white, pixels).convert("RGB")
