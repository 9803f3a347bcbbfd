"""Glyphs: deterministic, distinct, visible, and not to be told apart by colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFont

from fslstm_plugin.data import base
from fslstm_plugin.data.base import SPLITS
from fslstm_plugin.data.prepared import open_images
from fslstm_plugin.data.root import load_split
from fslstm_plugin.data.sets import glyphs
from fslstm_plugin.data.sets.glyphs import CHARACTERS, GLYPHS, GLYPHS_84, draw

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "glyphs.npz"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def test_made_on_first_use(root: Path) -> None:
    for split, classes in zip(SPLITS, (64, 16, 20), strict=True):
        loaded = load_split("glyphs", split, root)
        assert loaded.images.shape == (classes * 300, 32, 32, 3)
        assert torch.bincount(loaded.labels).tolist() == [300] * classes
    assert loaded.class_names[0] == "armenian capital letter ayb"


def test_one_split_is_opened_without_a_look_at_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_split("glyphs", "test", root)
    opened = []
    monkeypatch.setattr(base, "open_images", lambda split: opened.append(split.file.name) or open_images(split))
    load_split("glyphs", "test", root)
    assert opened == ["test.npy"]


def test_damaged_glyphs_are_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyphs, "IMAGES_PER_CLASS", 2)
    monkeypatch.setattr(glyphs.Glyphs, "images_per_class", 2)
    before = load_split("glyphs", "val", tmp_path).images.clone()
    path = GLYPHS.folder(tmp_path) / "val.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert torch.equal(load_split("glyphs", "val", tmp_path).images, before)


def test_images_follow_from_the_version(root: Path) -> None:
    """If drawing changes on purpose, raise ``Glyphs.version`` and make the golden file anew.

    FreeType's versions differ by a few grey levels along edges, everything else must be the same.
    """
    golden = np.load(GOLDEN)
    assert GLYPHS.version == golden["version"]
    images = load_split("glyphs", "test", root).images[::900].numpy()
    difference = np.abs(images.astype(int) - golden["images"])
    assert difference.mean() < 1
    assert (difference > 16).mean() < 0.01


def test_drawing_again_gives_the_same_images() -> None:
    fonts = glyphs._FONTS["test"]
    first = draw("Ա", fonts, 32, 1)
    np.testing.assert_array_equal(first, draw("Ա", fonts, 32, 1))
    assert (first != draw("Ա", fonts, 32, 2)).mean() > 0.9


def test_84_pixels() -> None:
    images = draw("Б", glyphs._FONTS["val"], GLYPHS_84.image_size, GLYPHS_84.version)
    assert images.shape == (300, 84, 84, 3)
    assert GLYPHS_84.folder(Path("root")) != GLYPHS.folder(Path("root"))


def outlines() -> dict[str, list[Image.Image]]:
    """Every character in three upright fonts that have them all."""
    fonts = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif")
    every = "".join(CHARACTERS.values())
    return {character: [glyphs._mask(character, font, 32) for font in fonts] for character in every}


def test_no_two_characters_look_alike_even_mirrored() -> None:
    pictures = outlines()
    assert len(pictures) == 100
    stacks = {
        character: np.stack([np.asarray(image, dtype=np.float32) / 255 for image in images])
        for character, images in pictures.items()
    }
    for split in CHARACTERS.values():
        for index, one in enumerate(split):
            for other in split[index + 1 :]:
                for view in (stacks[other], stacks[other][:, :, ::-1]):
                    union = np.maximum(stacks[one], view).sum()
                    overlap = np.minimum(stacks[one], view).sum() / union
                    assert overlap < 0.8, f"{one} and {other} look alike"


def test_every_font_has_its_characters() -> None:
    """A font without a character draws its empty box, which is the same for all."""
    from matplotlib import get_data_path

    for split, characters in CHARACTERS.items():
        for name in glyphs._FONTS[split]:
            font = ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", f"{name}.ttf")), 40)
            missing = bytes(font.getmask("\U0010fffe"))
            for character in characters:
                assert bytes(font.getmask(character)) != missing, f"{name} has no {character}"


def test_colour_does_not_tell_the_class(root: Path) -> None:
    """The nearest mean colour is right hardly more often than by chance, 1 in 20."""
    colours = load_split("glyphs", "test", root).images.float().view(20, 300, -1, 3).mean(2)
    means, queries = colours[:, ::2].mean(1), colours[:, 1::2]
    nearest = torch.cdist(queries, means).argmin(2)
    assert (nearest == torch.arange(20)[:, None]).float().mean() < 0.08


def test_the_letter_can_be_seen(root: Path) -> None:
    """Its centre region differs from the border far more than the noise does."""
    images = load_split("glyphs", "test", root).images.float()
    blurred = torch.nn.functional.avg_pool2d(images.permute(0, 3, 1, 2), 3, 1)
    spread = blurred.flatten(2).std(2).max(1).values
    assert (spread > 12).float().mean() > 0.98
