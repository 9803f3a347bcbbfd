"""An image file of any format and mode as uint8 RGB, as a viewer shows it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ...checks import require
from ...errors import DataError
from ...extras import MissingExtraError
from ...storage.files import require_regular

# Pillow registers these formats without reading them, except EPS, for which it runs another program on an untrusted
# file.
_NOT_READ = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}

_PHONES = (".heic", ".heif", ".hif")  # Without the plugin of the extra "heif" they are reported, not skipped.
_PHONES_BEGIN = tuple(b"ftyp" + brand for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1"))  # at byte 4

_COLOURS = ("RGB;16", "RGBA;16")  # Pillow's names of how they are stored

# Formats whose further images are previews or layers of the first.
_ONE_IMAGE = {"MPO", "PSD"}

LONGEST = 10  # Times the shorter side; a whole strip of 1 x 50,000 pixels, resized, would fill the memory.
BICUBIC = Image.Resampling.BICUBIC

# Of pictures that are read in another way than a user may expect.
PAGES = "Only the first page or frame is read"
FEW_BITS = "Stored with 16 bits per channel, but read as 8, 10, 12 or 14, which hold the greatest value"

_allowed: list[int] = []  # By `allow_pixels`; Pillow's bound if empty.


def allow_pixels(most: int) -> None:
    """Allow pictures of up to this many pixels in this process, in place of Pillow's bound of 89 million.

    A picture takes three bytes per pixel, and several are decoded at a time.
    """
    require("max_pixels", most, above=0)
    _allowed[:] = [most]
    if Image.MAX_IMAGE_PIXELS is not None:  # which is never lowered: what a backbone crops has to keep to it too
        Image.MAX_IMAGE_PIXELS = max(most, Image.MAX_IMAGE_PIXELS)


def _most_pixels() -> int | None:
    return _allowed[0] if _allowed else Image.MAX_IMAGE_PIXELS


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
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


def read_picture(source: Path | bytes, report: Callable[[str], object] = len) -> Image.Image:
    """Decode a file or bytes: in RGB, upright by its EXIF orientation, on white where it is transparent.

    Of several pages or frames it is the first. Of 16 bits per channel the upper 8 count; where no value needs more than
    14 bits, as those of cameras, 8 of as few (8, 10, 12 or 14) as hold the greatest value. `PAGES` and `FEW_BITS` are
    reported where they hold.

    Raises:
        DataError: If it cannot be read, is damaged, not an image, no regular file, larger than `allow_pixels`
            says, or of 32 bits per channel; the message has its path.
    """
    name = source if isinstance(source, Path) else f"of {len(source)} bytes"
    with _saying_why(name), _opened(source) as image:
        deep = any(_rawmode(tile.args).startswith(_COLOURS) for tile in image.tile)
        found = _upright(image, report)
        if deep:
            found = _colours(found, source, report)
        return _on_white(_eight_bits(found, image.format, name, report))


def require_picture(file: Path, content: bytes) -> None:
    """Refuse a file's content by its header, if it is no picture, or one that `read_picture` does not take.

    Nothing is decoded, in a twentieth of the time, so that damage to the pixels is not noticed.
    """
    with _saying_why(file), _opened(content) as image:
        _require_size(image)
        _require_bits(image.mode, image.format, file)


def decode_picture(image: Image.Image) -> Image.Image:
    """An image that is open in Pillow, or was made with it, as `read_picture` gives it; it stays as it is.

    Example:
        >>> decode_picture(Image.new("RGBA", (1, 1), (0, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    name = getattr(image, "filename", "") or "in memory"
    with _saying_why(name):
        return _on_white(_eight_bits(_upright(image, len), image.format, name, len))


def _opened(source: Path | bytes) -> Image.Image:
    file = require_regular(source) if isinstance(source, Path) else io.BytesIO(source)
    return Image.open(file, formats=_formats())


@contextmanager
def _saying_why(name: object) -> Iterator[None]:
    """Make what Pillow raises on an image that it cannot read a `DataError` with its name."""
    try:
        yield
    except DataError:
        raise
    except Image.DecompressionBombError as error:
        raise DataError(
            f"The image {name} has more than {_most_pixels():,} pixels: make it smaller or, if you trust this "
            "file, raise the limit with `max_pixels`."
        ) from error
    except Exception as error:  # Pillow's decoders raise errors of any type on damaged files
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"Cannot read the image {name}: {error.strerror}.") from error
        if _is_from_a_phone(name) and "HEIF" not in _formats():
            raise DataError(str(MissingExtraError(f"The image {name}", "pillow-heif", "heif"))) from error
        # Whose own words are of an object in memory, or the name again.
        what = "it has no known format" if isinstance(error, UnidentifiedImageError) else error
        raise DataError(f"The image {name} is damaged, or not an image ({what}).") from error


def _is_from_a_phone(name: object) -> bool:
    """Whether a file that cannot be read is HEIC, which others' programs name as JPEG."""
    if not isinstance(name, Path):
        return False
    with suppress(OSError, ValueError), name.open("rb") as file:  # the latter of a name with a null character
        return name.suffix.lower() in _PHONES or file.read(12)[4:].startswith(_PHONES_BEGIN)
    return False


def read_rgb(source: Path | bytes, image_size: int | None = None) -> np.ndarray:
    """The pixels of a file or bytes as `read_picture` decodes it, uint8 ``(H, W, 3)``.

    With an image size, height and width in pixels, the shorter side is resized to it (bicubic) and the centre of the
    longer one kept.

    Example:
        >>> import io
        >>> png = io.BytesIO()
        >>> Image.new("L", (6, 4), 128).save(png, "png")
        >>> read_rgb(png.getvalue()).shape, read_rgb(png.getvalue(), 2).shape
        ((4, 6, 3), (2, 2, 3))
    """
    image = read_picture(source)
    return np.asarray(image if image_size is None else fitted(image, (image_size, image_size)))


def fitted(image: Image.Image, size: tuple[int, int], resampling: Image.Resampling = BICUBIC) -> Image.Image:
    """The centre of an image in the proportions of a size, width and height, resized to it if it has another.

    Example:
        >>> fitted(Image.new("RGB", (80, 60)), (32, 32)).size
        (32, 32)
    """
    return image if image.size == size else ImageOps.fit(image, size, resampling)


def shortened(image: Image.Image, ratio: float = LONGEST) -> Image.Image:
    """The middle of an image that is longer in proportion."""
    longest = int(ratio * min(image.size))
    return fitted(image, (min(image.width, longest), min(image.height, longest)))


def _require_size(image: Image.Image) -> None:
    most = _most_pixels()
    if most is not None and image.width * image.height > most:
        raise Image.DecompressionBombError


def _upright(image: Image.Image, report: Callable[[str], object]) -> Image.Image:
    _require_size(image)
    with suppress(Exception):  # a further page that is damaged says nothing about the first
        if image.format not in _ONE_IMAGE and getattr(image, "is_animated", False):
            report(PAGES)
    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # EXIF data that is damaged says nothing about the pixels
        return image


def _require_bits(mode: str, kind: str | None, name: object) -> None:
    is_wide = mode.startswith(("I", "F")) and not mode.startswith("I;16")
    if is_wide and (mode, kind) != ("I", "PPM"):
        raise DataError(f"The image {name} has pixels of the mode {mode}, but 8 or 16 bits per channel were expected.")


def _eight_bits(image: Image.Image, kind: str | None, name: object, report: Callable[[str], object]) -> Image.Image:
    """The image with 8 bits per channel, scaled, not clipped as by Pillow."""
    _require_bits(image.mode, kind, name)
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    # A file of the format PPM says which value is white, and Pillow has scaled the others by it.
    return Image.fromarray(_scaled(values, 16) if kind == "PPM" else _of_few_bits(values, report))


def _of_few_bits(values: np.ndarray, report: Callable[[str], object]) -> np.ndarray:
    greatest = int(values.max(initial=0))
    bits = next(bits for bits in (8, 10, 12, 14, 16) if greatest < 1 << bits)
    if greatest and bits < 16:
        report(FEW_BITS)
    return _scaled(values, bits)


def _scaled(values: np.ndarray, bits: int) -> np.ndarray:
    white = (1 << bits) - 1
    return ((values * 255 + white // 2) // white).astype(np.uint8)


def _colours(upper: Image.Image, source: Path | bytes, report: Callable[[str], object]) -> Image.Image:
    """Colours of 16 bits per channel, of which Pillow gives the upper bytes; nothing is in them where 8 bits are used.

    It gives the lower ones if it is told the other order of the bytes.
    """
    high = np.asarray(upper)
    if high[..., :3].max(initial=0) >> 6:
        return upper
    with _opened(source) as image:
        image.tile = [tile._replace(args=_other_order(tile.args)) for tile in image.tile]
        lower = np.asarray(_upright(image, len))
    values = (high.astype(np.int64) << 8) + lower
    parts = (_of_few_bits(values[..., :3], report), _of_few_bits(values[..., 3:], len))
    return Image.fromarray(np.concatenate(parts, axis=-1))


def _rawmode(args: Any) -> str:
    """How the bytes of a part of an image are ordered in its file, from what Pillow tells the part's decoder."""
    return str(args if isinstance(args, str) else args[0] if isinstance(args, tuple) and args else "")


def _other_order(args: Any) -> Any:
    mode = _rawmode(args)
    other = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}[mode[-1]]
    return mode[:-1] + other if isinstance(args, str) else (mode[:-1] + other, *args[1:])


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    white = Image.new("RGBA", pixels.size, "white")
    return Image.alpha_composite(white, pixels).convert("RGB")
