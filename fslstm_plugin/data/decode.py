"""An image file of any format and mode as uint8 RGB, as a viewer shows it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ..errors import DataError, require_positive

# Pillow registers these formats without reading them, except EPS, for which it runs another program on an untrusted
# file.
_NOT_READ = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}

_PHONES = (".heic", ".heif")  # Pillow reads them with a plugin only; without it they are reported, not skipped.

# What Pillow would report on a damaged or huge file is reported below, once and with the file's name.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def allow_pixels(most: int) -> None:
    """Allow pictures of up to this many pixels in this process, in place of Pillow's bound of 89 million.

    Args:
        most: Width times height. A picture takes three bytes per pixel, and several are decoded at a time.

    Raises:
        UsageError: If it is not positive.
    """
    require_positive(max_pixels=most)
    Image.MAX_IMAGE_PIXELS = most


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _NOT_READ)


@cache
def picture_suffixes() -> frozenset[str]:
    """Endings, in lower case, of the files that hold pictures.

    Example:
        >>> {".jpg", ".png", ".tif", ".webp"} <= picture_suffixes(), ".csv" in picture_suffixes()
        (True, False)
    """
    formats = set(_formats())
    return frozenset({*_PHONES} | {ending for ending, name in Image.registered_extensions().items() if name in formats})


def read_picture(source: Path | bytes) -> Image.Image:
    """Decode an image: in RGB, upright by its EXIF orientation, on white where it is transparent.

    Of an animation it is the first frame. Of 16 bits per channel the upper 8 count.

    Args:
        source: A file, or the encoded bytes.

    Returns:
        An image of the mode RGB.

    Raises:
        DataError: If it cannot be read, is truncated, no image, larger than :func:`allow_pixels` says, or of 32 bits
            per channel; the message has its path.
    """
    name = source if isinstance(source, Path) else f"of {len(source)} bytes"
    file = source if isinstance(source, Path) else io.BytesIO(source)
    with _saying_why(name), Image.open(file, formats=_formats()) as image:
        return _decoded(image, name)


def decode_picture(image: Image.Image) -> Image.Image:
    """An image that is open in Pillow, or was made with it, as :func:`read_picture` gives it.

    Args:
        image: The image, which stays as it is.

    Raises:
        DataError: As :func:`read_picture` does.

    Example:
        >>> decode_picture(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    name = getattr(image, "filename", "") or "in memory"
    with _saying_why(name):
        return _decoded(image, name)


@contextmanager
def _saying_why(name: object) -> Iterator[None]:
    """Make what Pillow raises on an image that it cannot read a `DataError` with its name."""
    try:
        yield
    except DataError:
        raise
    except Image.DecompressionBombError as error:
        raise DataError(
            f"The image {name} has more than {Image.MAX_IMAGE_PIXELS:,} pixels: if this is no attempt to fill the "
            "memory, raise the bound with --max-pixels."
        ) from error
    except Exception as error:  # Pillow's decoders raise errors of any type on damaged files
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"Cannot read the image {name}: {error.strerror}.") from error
        plugin = ", or needs a plugin of Pillow's: save it as JPEG" if str(name).lower().endswith(_PHONES) else ""
        raise DataError(f"The image {name} is truncated or no image ({error}){plugin}.") from error


def read_rgb(source: Path | bytes, image_size: int | None = None) -> np.ndarray:
    """The pixels of an image as :func:`read_picture` decodes it.

    Args:
        source: A file, or the encoded bytes.
        image_size: Height and width in pixels: the shorter side is resized to it (bicubic) and the centre
            of the longer one kept. None, the default, leaves the image as large as it is.

    Returns:
        uint8 ``(H, W, 3)``.

    Raises:
        DataError: As :func:`read_picture` does.

    Example:
        >>> import io
        >>> png = io.BytesIO()
        >>> Image.new("L", (6, 4), 128).save(png, "png")
        >>> read_rgb(png.getvalue()).shape, read_rgb(png.getvalue(), 2).shape
        ((4, 6, 3), (2, 2, 3))
    """
    image = read_picture(source)
    return np.asarray(image if image_size is None else fit_square(image, image_size))


def fit_square(image: Image.Image, image_size: int) -> Image.Image:
    """The centre square of an image, resized (bicubic) to ``image_size`` pixels per side if it has another size.

    Example:
        >>> fit_square(Image.new("RGB", (80, 60)), 32).size
        (32, 32)
    """
    if image.size == (image_size, image_size):
        return image
    return ImageOps.fit(image, (image_size, image_size), Image.Resampling.BICUBIC)


def _decoded(image: Image.Image, name: object) -> Image.Image:
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise Image.DecompressionBombError
    return _on_white(_eight_bits(_upright(image), image.format, name))


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data that is damaged says nothing about the pixels
        return image


def _eight_bits(image: Image.Image, kind: str | None, name: object) -> Image.Image:
    """The image with 8 bits per channel, scaled, not clipped as by Pillow."""
    if not image.mode.startswith(("I", "F")):
        return image
    # Older versions of Pillow give the 16 bits of a PNG as integers of 32.
    if not image.mode.startswith("I;16") and not (image.mode == "I" and kind in ("PNG", "PPM")):
        raise DataError(
            f"The image {name} has pixels of the mode {image.mode}, but 8 or 16 bits per channel were expected."
        )
    values = np.asarray(image).astype(np.int64)
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    white = Image.new("RGBA", pixels.size, "white")
    return Image.alpha_composite(white, pixels).convert("RGB")
