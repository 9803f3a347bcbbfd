"""Pictures as a viewer shows them: upright, on white where they are transparent."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fslstm_plugin.data.decode import allow_pixels, read_rgb
from fslstm_plugin.errors import DataError, UsageError

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


def test_a_truncated_picture_is_refused() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    whole = encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "jpeg", exif=exif)
    with pytest.raises(DataError, match="truncated"):
        read_rgb(whole[: len(whole) // 2])


@pytest.mark.parametrize("kind", ["png", "tiff", "ppm"])
def test_of_16_bits_the_upper_8_count(kind: str) -> None:
    values = np.array([[0, 257, 40_000, 65_535]], np.uint16)
    assert read_rgb(encoded(Image.fromarray(values), kind))[0, :, 0].tolist() == [0, 1, 156, 255]


@pytest.mark.parametrize("values", [np.full((2, 2), 0.5, np.float32), np.full((2, 2), 70_000, np.int32)])
def test_pixels_without_a_known_range_are_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="of the mode [FI], but 8 or 16 bits"):
        read_rgb(encoded(Image.fromarray(values), "tiff"))


def test_the_bound_on_pixels_can_be_raised(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    picture = encoded(Image.new("L", (30, 20)), "png")
    for bound in (599, 100):  # Pillow itself warns above its bound, and refuses above twice of it
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", bound)
        with pytest.raises(DataError, match=f"more than {bound} pixels.*--max-pixels"):
            read_rgb(picture)
    allow_pixels(600)
    assert read_rgb(picture).shape == (20, 30, 3)
    with pytest.raises(UsageError, match="max pixels must be positive"):
        allow_pixels(0)


def test_no_other_program_runs_on_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    Image.new("RGB", (8, 8)).save(file, "eps")
    with pytest.raises(DataError, match="no image"):
        read_rgb(file)


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read the image .*gone\.png: No such file"):
        read_rgb(tmp_path / "gone.png")
