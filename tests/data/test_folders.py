"""A data set of class folders: what a third party writes, and what comes out."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fslstm_plugin.data.sets.folders import FolderDataset
from fslstm_plugin.errors import DataError


class Birds(FolderDataset):
    name = "birds"
    title = "Birds"
    image_size = 16
    classes = {"train": 3, "val": 2, "test": 2}


CLASSES = {"train": ("auk", "bee eater", "crow"), "val": ("dove", "emu"), "test": ("finch", "gull")}
SIZES = [(16, 16), (40, 20), (15, 60), (7, 9)]
KINDS = ["png", "jpg", "JPEG", "bmp", "webp", "gif"]


def colour(label: int, number: int) -> tuple[int, int, int]:
    return 40 * label, 255 - 30 * number, 90


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Pictures of one colour each, of mixed sizes and kinds, and files that are none."""
    folder = tmp_path / "source"
    for split, names in CLASSES.items():
        for label, name in enumerate(names):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(2 + label):
                image = Image.new("RGB", SIZES[number % 4], colour(label, number))
                image.save(place / f"{number}.{KINDS[(label + number) % 6]}")
            (place / "Thumbs.db").write_text("no picture")
            (place / "._0.jpg").write_text("no picture")
        (folder / split / "README.txt").write_text("no class")
        (folder / split / ".cache").mkdir()
    return folder


def check(root: Path) -> None:
    for split, names in CLASSES.items():
        loaded = Birds().load(root, split)
        assert loaded.class_names == names
        assert torch.bincount(loaded.labels).tolist() == [2 + label for label in range(len(names))]
        assert loaded.images.shape[1:] == (16, 16, 3)
        numbers = [number for label in range(len(names)) for number in range(2 + label)]
        expected = np.array(
            [colour(label, number) for label, number in zip(loaded.labels.tolist(), numbers, strict=True)]
        )
        difference = np.abs(loaded.images.numpy().astype(int) - expected[:, None, None])
        assert difference.max() <= 12  # JPEG is not exact


def test_a_folder_is_prepared(tmp_path: Path, source: Path) -> None:
    Birds().prepare(tmp_path / "root", source)
    check(tmp_path / "root")


def test_a_folder_under_the_root_is_found(tmp_path: Path, source: Path) -> None:
    shutil.copytree(source, tmp_path / "root" / "birds")
    Birds().prepare(tmp_path / "root")
    check(tmp_path / "root")


def test_an_archive_with_a_folder_around_is_prepared(tmp_path: Path, source: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "birds"), "zip", tmp_path, "source")
    Birds().prepare(tmp_path / "root", Path(archive))
    check(tmp_path / "root")
    assert sorted(path.name for path in (tmp_path / "root" / "fslstm").iterdir()) == [".birds.lock", "birds"]


def test_what_is_wrong_in_an_archive_is_said_of_the_archive(tmp_path: Path, source: Path) -> None:
    shutil.rmtree(source / "val")
    archive = shutil.make_archive(str(tmp_path / "birds"), "zip", source)
    with pytest.raises(DataError, match=f"^{archive} does not have the folder val: "):
        Birds().prepare(tmp_path / "root", Path(archive))
    assert not [*(tmp_path / "root").rglob("*.partial")]


def test_a_damaged_picture_in_an_archive_is_named_within_it(tmp_path: Path, source: Path) -> None:
    (source / "test" / "gull" / "9.png").write_bytes(b"no picture")
    archive = shutil.make_archive(str(tmp_path / "birds"), "zip", source)
    with pytest.raises(DataError, match=f"^The image {archive}/test/gull/9.png is damaged, or not an image"):
        Birds().prepare(tmp_path / "root", Path(archive))


def test_what_is_missing_or_too_much_is_named(tmp_path: Path, source: Path) -> None:
    with pytest.raises(DataError, match=r"root/birds is not there: .*fslstm data prepare birds --from DIR"):
        Birds().prepare(tmp_path / "root")
    shutil.copytree(source / "val" / "dove", source / "train" / "dove")
    with pytest.raises(DataError, match="Birds has the class 'dove' in train and in val: the splits must not share"):
        Birds().prepare(tmp_path / "root", source)
    (source / "train" / "dove").rename(source / "train" / "dodo")
    with pytest.raises(DataError, match="Birds has 3 train classes, but the source has 4"):
        Birds().prepare(tmp_path / "root", source)
    shutil.rmtree(source / "train" / "crow")
    for file in (source / "train" / "dodo").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"class folder .*train/dodo holds no pictures: add some, or remove it"):
        Birds().prepare(tmp_path / "root", source)
    shutil.rmtree(source / "train" / "dodo")
    shutil.rmtree(source / "val")
    with pytest.raises(DataError, match="does not have the folder val"):
        Birds().prepare(tmp_path / "root", source)
    assert not Birds().folder(tmp_path / "root").exists()


def test_a_damaged_picture_is_named(tmp_path: Path, source: Path) -> None:
    (source / "test" / "gull" / "9.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"gull/9\.png is damaged, or not an image"):
        Birds().prepare(tmp_path / "root", source)


def test_what_systems_leave_is_no_class_and_what_is_passed_over_is_said(tmp_path: Path, source: Path) -> None:
    for split, name in (("train", "auk"), ("val", "dove")):
        shutil.copytree(source / "val" / "emu", source / split / "@eaDir")
        shutil.copytree(source / "val" / "emu", source / split / name / "#recycle")
    (source / "train" / "auk" / "1.nef").touch()
    (source / "train" / "auk").rename(source / "train" / unicodedata.normalize("NFD", "häher"))
    said: list[str] = []
    Birds().prepare(tmp_path / "root", source, report=said.append)
    assert Birds().load(tmp_path / "root", "train").class_names == ("bee eater", "crow", "häher")
    assert torch.bincount(Birds().load(tmp_path / "root", "val").labels).tolist() == [2, 3]
    assert "Passed over: 1 .nef, 1 .txt, 1 hidden, 2 system folders (#recycle, @eaDir)." in said
