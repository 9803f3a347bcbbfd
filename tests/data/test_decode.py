"""Pictures as a viewer shows them: upright, on white where they are transparent."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fslstm_plugin.data.reading import decode
from fslstm_plugin.data.reading.decode import FEW_BITS, PAGES, allow_pixels, read_picture, read_rgb
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
    with pytest.raises(DataError, match="is damaged, or not an image"):
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
        with pytest.raises(DataError, match=f"more than {bound} pixels.*`max_pixels`"):
            read_rgb(picture)
    monkeypatch.setattr(decode, "_allowed", [])
    allow_pixels(600)
    assert read_rgb(picture).shape == (20, 30, 3)
    with pytest.raises(UsageError, match="`max_pixels` must be a finite number above 0"):
        allow_pixels(0)
    allow_pixels(100)
    with pytest.raises(DataError, match="more than 100 pixels"):
        read_rgb(picture)
    assert Image.new("L", (30, 20)).crop((0, 0, 30, 20)).size == (30, 20), "what a backbone makes itself has no bound"


def test_no_other_program_runs_on_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    Image.new("RGB", (8, 8)).save(file, "eps")
    with pytest.raises(DataError, match="is damaged, or not an image"):
        read_rgb(file)


def test_a_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="null"):  # as a table may have it
        read_picture(tmp_path / "\0.png")
    with pytest.raises(DataError, match=r"Cannot read the image .*gone\.png: No such file"):
        read_rgb(tmp_path / "gone.png")


def png_of_16_bits(values: np.ndarray) -> bytes:
    """A PNG in colours of 16 bits, which Pillow does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_fewer_bits_than_16_are_read_as_they_are(bits: int, kind: str) -> None:
    values = np.linspace(0, (1 << bits) - 1, 64).round().astype(np.uint16).reshape(8, 8)
    said: list[str] = []
    found = np.asarray(read_picture(encoded(Image.fromarray(values), kind), said.append))
    assert np.abs(found[..., 0] - np.linspace(0, 255, 64).reshape(8, 8)).max() < 1
    assert said == ([FEW_BITS] if bits < 16 else [])
    assert read_picture(encoded(Image.new("I;16", (2, 2)), kind), pytest.fail).getpixel((0, 0)) == (0, 0, 0)


@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
@pytest.mark.parametrize("alpha", [None, 1, 0])  # of 16 bits, and of as many as the colours
def test_fewer_bits_than_16_per_colour_are_read_as_they_are(bits: int, alpha: int | None) -> None:
    values = np.linspace(0, (1 << bits) - 1, 192).round().astype(np.uint16).reshape(8, 8, 3)
    if alpha is not None:
        values = np.concatenate([values, np.full((8, 8, 1), 65535 if alpha else (1 << bits) - 1, np.uint16)], axis=-1)
    said: list[str] = []
    found = np.asarray(read_picture(png_of_16_bits(values), said.append))
    assert np.abs(found - np.linspace(0, 255, 192).reshape(8, 8, 3)).max() < 1.01
    assert said == ([FEW_BITS] if bits < 16 else [])


def test_of_several_pages_the_first_is_read_and_it_is_said() -> None:
    pages = [Image.new("RGB", (8, 8), (0, 0, number)) for number in (9, 99)]
    for kind in ("tiff", "gif", "png", "webp"):
        said: list[str] = []
        content = encoded(pages[0], kind, save_all=True, append_images=pages[1:])
        assert abs(read_picture(content, said.append).getpixel((0, 0))[2] - 9) < 9
        assert said == [PAGES]
    for kind in ("tiff", "gif", "mpo"):
        more = {"save_all": True, "append_images": pages[1:]} if kind == "mpo" else {}  # a preview, in phones' pictures
        read_picture(encoded(pages[0], kind, **more), pytest.fail)


def test_only_regular_files_are_decoded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zeros.png").symlink_to("/dev/zero")
    for name, what in (("pipe.png", "a pipe"), ("zeros.png", "a device")):
        with pytest.raises(DataError, match=f"{name} is {what}, but a regular file was expected"):
            read_rgb(tmp_path / name)


def test_pictures_of_phones_are_read_with_the_extra(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    file = tmp_path / "1.HEIC"
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), (200, 30, 30))).save(file)
    assert np.abs(read_rgb(file)[:, :].astype(int) - (200, 30, 30)).max() < 8
    assert read_rgb(file).shape == (48, 64, 3)


@pytest.mark.parametrize("name", ["1.heic", "1.jpg"])  # others' programs rename them
def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    monkeypatch.setattr(decode, "_formats", lambda: ("JPEG", "PNG"))
    with pytest.raises(DataError, match=r'needs pillow-heif, .*pip install "fslstm-plugin\[heif\]"'):
        read_rgb(tmp_path / name)
