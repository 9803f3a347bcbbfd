"""Pictures as a viewer shows them: upright, on white where they are transparent."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fslstm_plugin.data.decode import read_rgb
from fslstm_plugin.errors import DataError

ORIENTATION = 0x0112


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def corners() -> np.ndarray:
    """Four colours in the corners of a picture that is wider than high."""
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:16, :24], pixels[:16, 24:], pixels[16:, :24] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return pixels


@pytest.mark.parametrize(
    ("orientation", "stored"),
    [
        (1, lambda pixels: pixels),
        (2, lambda pixels: pixels[:, ::-1]),
        (3, lambda pixels: pixels[::-1, ::-1]),
        (4, lambda pixels: pixels[::-1]),
        (5, lambda pixels: pixels.transpose(1, 0, 2)),
        (6, lambda pixels: np.rot90(pixels, 1)),
        (7, lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2)),
        (8, lambda pixels: np.rot90(pixels, -1)),
    ],
)
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_pictures_are_upright(orientation: int, stored: Any, kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    image = Image.fromarray(np.ascontiguousarray(stored(corners())))
    found = read_rgb(encoded(image, kind, exif=exif))
    assert found.shape == (32, 48, 3)
    centres = (slice(4, None, 8), slice(4, None, 8))  # JPEG blurs the edges
    assert np.abs(found[centres].astype(int) - corners()[centres]).max() < 20


@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0XX*\0\0\0\0\x08"])
def test_damaged_exif_data_is_no_damaged_picture(exif: bytes) -> None:
    assert (read_rgb(encoded(Image.fromarray(corners()), "png", exif=exif)) == corners()).all()


def half_transparent(mode: str) -> bytes:
    """A black picture whose left half is transparent."""
    if mode in ("RGBA", "LA"):
        image = Image.new(mode, (4, 2), 0)
        image.putalpha(Image.fromarray(np.array([[0, 0, 255, 255]] * 2, np.uint8)))
        return encoded(image, "png")
    image = Image.new(mode, (4, 2), 0)
    grey = (9, 9, 9) if mode == "RGB" else 9
    if mode == "P":
        image.putpalette([0, 0, 0] * 9 + [9, 9, 9])
    for x in (0, 1):
        for y in (0, 1):
            image.putpixel((x, y), grey)
    return encoded(image, "png", transparency=grey)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "RGB", "L", "P"])
def test_what_is_transparent_is_white(mode: str) -> None:
    pixels = read_rgb(half_transparent(mode))
    assert (pixels[:, :2] == 255).all()
    assert (pixels[:, 2:] == 0).all()


def test_what_is_half_transparent_is_mixed_with_white() -> None:
    assert read_rgb(encoded(Image.new("RGBA", (1, 1), (200, 0, 0, 128)), "png")).tolist() == [[[227, 127, 127]]]


def test_a_truncated_picture_and_one_of_16_bits_are_refused() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    whole = encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "jpeg", exif=exif)
    with pytest.raises(DataError, match="truncated"):
        read_rgb(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="of the mode I;16, but 8 bits"):
        read_rgb(encoded(Image.fromarray(np.full((2, 2), 40_000, np.uint16)), "png"))
