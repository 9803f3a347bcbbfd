"""A user's own pictures: every format, every kind of damage, any name, any number of them."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.backbones import Normalization
from fslstm_plugin.data.reading.preprocessing import centre_crop
from fslstm_plugin.errors import DataError, RunError
from fslstm_plugin.pictures import Picture, class_names, decoding, labelled, pictures_in
from fslstm_plugin.pictures.decoding import CENTRE, Batch, Remark
from fslstm_plugin.pictures.duplicates import corrections, duplicates
from fslstm_plugin.pictures.embedding import features_of
from fslstm_plugin.pretrained import PictureBackbone

ORIENTATION = 0x0112
WHOLE = Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.fixture
def thumbnails() -> PictureBackbone:
    """Features are the pixels of a thumbnail, so that they tell what was decoded."""
    return PictureBackbone(nn.Flatten(), centre_crop(16, WHOLE), "thumbnails", (16, 16))


def photograph() -> Image.Image:
    return Image.fromarray(load_sample_image("flower.jpg")).resize((160, 120))


def all_of(batches: Iterator[Batch[Tensor]]) -> Batch[Tensor]:
    found = list(batches)
    return Batch(
        [picture for batch in found for picture in batch.pictures],
        torch.cat([batch.values for batch in found]),
        [problem for batch in found for problem in batch.problems],
    )


def numbered(folder: Path, count: int) -> list[Picture]:
    """Pictures in shades of grey, from 0 upwards."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("L", (20, 20), number).save(folder / f"{number:03}.png")
    return pictures_in(folder)


def shades(features: Tensor) -> list[int]:
    return (features.mean(1) * 255).round().int().tolist()


def write_formats(folder: Path) -> None:
    """The same photograph in many formats and modes."""
    photo = photograph()
    grey = np.asarray(photo.convert("L"))
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # turned to the right to be shown upright
    photo.save(folder / "a.png")
    photo.transpose(Image.Transpose.ROTATE_90).save(folder / "b-turned.JPG", exif=exif, quality=95)
    photo.save(folder / "c-animated.gif", save_all=True, append_images=[Image.new("RGB", photo.size, "red")] * 3)
    photo.quantize(256).save(folder / "d-palette.png")
    photo.convert("CMYK").save(folder / "e-cmyk.jpg", quality=95)
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / "f-16.tif")
    Image.fromarray(grey.astype(np.uint16) * 257).save(folder / "g-16.png")
    photo.save(folder / "h.webp", lossless=True)
    transparent = photo.convert("RGBA")
    transparent.putalpha(255)
    transparent.save(folder / "i-alpha.png")
    photo.save(folder / "j.bmp")
    photo.save(folder / "k-really-a-png.jpg", "png")


def test_the_same_photograph_in_every_format(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    write_formats(tmp_path)
    batch = all_of(features_of(pictures_in(tmp_path), thumbnails))
    assert not batch.problems
    expected = thumbnails(thumbnails.preprocess(photograph())[None])[0]
    luma = photograph().convert("L").convert("RGB")
    for picture, features in zip(batch.pictures, batch.values, strict=True):
        wanted = thumbnails(thumbnails.preprocess(luma)[None])[0] if "-16" in picture.path.name else expected
        assert (features - wanted).abs().mean() < 0.02, picture.path.name


def test_features_that_are_no_numbers_are_refused_with_the_picture(tmp_path: Path) -> None:
    class Inverse(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return 1 / images.flatten(1)

    backbone = PictureBackbone(Inverse(), centre_crop(16, WHOLE), "inverse", (16, 16))
    shaded = numbered(tmp_path, 3)
    assert len(all_of(features_of(shaded[1:], backbone)).pictures) == 2
    with pytest.raises(
        RunError, match=r"^Features of .*000\.png are infinite or not numbers: the weights of .* inverse"
    ):
        all_of(features_of(shaded, backbone))


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    photograph().save(tmp_path / "whole.jpg")
    content = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "truncated.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("not a picture\n")
    (tmp_path / "phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "notes.txt").write_text("passed over")
    (tmp_path / ".hidden.jpg").write_bytes(content)
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    batch = all_of(features_of(pictures_in(tmp_path), thumbnails))
    assert [picture.path.name for picture in batch.pictures] == ["whole.jpg"]
    reasons = {problem.picture.path.name: problem.text for problem in batch.problems}
    assert sorted(reasons) == ["empty.png", "gone.jpg", "phone.HEIC", "text.jpg", "truncated.jpg"]
    for name, reason in reasons.items():
        assert str(tmp_path / name) in reason
    assert "No such file" in reasons["gone.jpg"]
    assert "damaged, or not an image" in reasons["truncated.jpg"]
    assert "phone.HEIC" in reasons["phone.HEIC"]


def test_a_batch_in_which_nothing_can_be_read_is_empty(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    pictures = [Picture(tmp_path / f"{number}.png") for number in range(5)]
    first, second = features_of(pictures, thumbnails)
    assert (first.values.shape, second.values.shape) == ((0, 768), (0, 768))
    assert [problem.picture for problem in first.problems + second.problems] == pictures


def test_a_classifier_gives_the_backbone_as_many_pictures_at_a_time(
    tmp_path: Path, thumbnails: PictureBackbone
) -> None:
    pictures = numbered(tmp_path, 10)
    expected = all_of(features_of(pictures, thumbnails)).values
    sizes: list[int] = []
    thumbnails.network.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    list(features_of(pictures, thumbnails))
    commands, sizes[:] = list(sizes), []
    classifier = FewShotClassifier("nn", backbone=thumbnails).fit([each.path for each in pictures], [0, 1] * 5)
    assert sizes == commands == [4, 4, 2]
    assert np.array_equal(classifier.support_, expected.numpy())


@pytest.mark.parametrize("workers", [1, 4])
def test_the_order_is_that_of_the_pictures(
    tmp_path: Path, thumbnails: PictureBackbone, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_workers", lambda: workers)
    pictures = numbered(tmp_path, 50)[::-1]
    pictures[7] = Picture(tmp_path / "missing.png")
    batches = list(features_of(iter(pictures), thumbnails))
    assert [len(batch.pictures) + len(batch.problems) for batch in batches] == [4] * 12 + [2]
    batch = all_of(iter(batches))
    assert batch.pictures == pictures[:7] + pictures[8:]
    assert shades(batch.values) == [shade for shade in range(49, -1, -1) if shade != 42]


def test_pictures_are_decoded_only_a_little_ahead(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    """A hundred thousand pictures need no more memory than a hundred; and what was not asked for is not decoded."""
    asked = 0

    def endless() -> Iterator[Picture]:
        nonlocal asked
        picture = numbered(tmp_path, 1)[0]
        while True:
            asked += 1
            yield picture

    before = threading.active_count()
    batches = features_of(endless(), thumbnails)
    for seen in range(1, 20):
        next(batches)
        assert asked <= 4 * (seen + 3)
    batches.close()
    assert threading.active_count() == before


def test_class_folders_are_classes(tmp_path: Path) -> None:
    for place in ("dog/1.png", "dog/puppies/small/2.png", "cat/3.JPEG", "cat/.trash/4.png", ".git/5.png", "stray.png"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    pictures = labelled(tmp_path)
    assert [(picture.path.relative_to(tmp_path).as_posix(), picture.label) for picture in pictures] == [
        ("cat/3.JPEG", "cat"),
        ("dog/1.png", "dog"),
        ("dog/puppies/small/2.png", "dog"),
    ]
    assert class_names(pictures) == ["cat", "dog"]
    assert len(pictures_in(tmp_path)) == 4


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / f"{name}.png").touch()
        (tmp_path / name / "deep" / "up").symlink_to(tmp_path)
        (tmp_path / name / "same").symlink_to(tmp_path / name / "deep")
    (tmp_path / "cat" / "self.png").symlink_to(tmp_path / "cat" / "self.png")
    assert [picture.path.relative_to(tmp_path).as_posix() for picture in labelled(tmp_path)] == [
        "cat/self.png",
        "cat/deep/cat.png",
        "dog/deep/dog.png",
    ]
    assert len(pictures_in(tmp_path)) == 3


def test_class_folders_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.png").touch()
    (tmp_path / "labelled").mkdir()
    (tmp_path / "labelled" / "cat").symlink_to(tmp_path / "elsewhere")
    assert [picture.label for picture in labelled(tmp_path / "labelled")] == ["cat"]


STRANGE = ["<img src=x onerror=alert(1)>", "a,b;c", 'quo"te', "line\nbreak", "\x1b[2J", "müsli", "=1+1"]


def test_strange_names_stay_apart_and_can_be_shown(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    for number, name in enumerate(STRANGE):
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        Image.new("L", (20, 20), number).save(folder / f"{name}.png")
    undecodable = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(undecodable)
    (tmp_path / "müsli" / "müsli.png").rename(os.fsdecode(undecodable + b"/\xfe.png"))
    Image.new("L", (20, 20), 200).save(tmp_path / "müsli" / "müsli.png")
    pictures = labelled(tmp_path)
    assert len(class_names(pictures)) == len(STRANGE) + 1
    for name in class_names(pictures):
        assert name.isprintable()
        assert name.encode()
    assert {"line\\nbreak", "\\x1b[2J", "\\udcff", "a,b;c"} <= set(class_names(pictures))
    batch = all_of(features_of(pictures, thumbnails))
    assert not batch.problems


def write_csv(file: Path, rows: list[list[str]], encoding: str = "utf-8") -> Path:
    with file.open("w", encoding=encoding, newline="") as text:
        csv.writer(text).writerows(rows)
    return file


def test_a_csv_file_names_pictures_and_labels(tmp_path: Path) -> None:
    rows = [["id", "Path", " Label"], ["1", "in/a,b.png", "cat "], ["2", str(tmp_path / "c\n.png"), "süß"]]
    for encoding in ("utf-8", "utf-8-sig"):  # Excel writes the second
        file = write_csv(tmp_path / "labels.csv", rows, encoding)
        assert labelled(file) == [
            Picture(tmp_path / "in" / "a,b.png", "cat"),
            Picture(tmp_path / "c\n.png", "süß"),
        ]
        assert pictures_in(file)[0] == Picture(tmp_path / "in" / "a,b.png")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "separated by commas, semicolons or tabs, but is empty\\."),
        (
            b"file,label\n1.png,cat\n",
            "the columns path and label, separated by commas, .* but begins with: file, label",
        ),
        (b"path|label\n1.png|cat\n", "begins with: path.label"),
        (b"path,label\n1.png,\n", "Line 2 of .* must have path and label"),
        (b"path,label\n1.png\n", "Line 2 of .* must have path and label"),
        (b"path,label\n1.png,cat,dog\n", "put a name with a comma in quotes"),
        (b"path,label\n", "There are no pictures in"),
        (b'path,label\n"1.png,cat\n', "cannot be read as one"),
        (b"path,label\n\xff\xfe.png,cat\n", "a CSV file in UTF-8 .* cannot be read as one"),
        (b"path,label\n1.png," + b"x" * 200_000, "cannot be read as one"),
    ],
)
def test_a_csv_file_of_another_form_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "labels.csv").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        labelled(tmp_path / "labels.csv")


def test_nothing_to_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must hold a folder of pictures for each class, or be a CSV file"):
        labelled(tmp_path)
    with pytest.raises(DataError, match="There are no pictures in"):
        pictures_in(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match=r"class folder .*cat holds no pictures: add some, or remove it"):
        labelled(tmp_path)
    for name in ("pictures.zip", "pictures.TAR.gz", "pictures.tar.xz"):
        (tmp_path / name).write_bytes(b"PK")
        for listing in (labelled, pictures_in):
            with pytest.raises(DataError, match=f"{name} is an archive, which is not opened: unpack it, and name the"):
                listing(tmp_path / name)
    for listing in (labelled, pictures_in):
        with pytest.raises(DataError, match="no folder of pictures, CSV or JSON file at"):
            listing(tmp_path / "missing")


def test_one_picture_is_a_list_of_one(tmp_path: Path) -> None:
    assert pictures_in(tmp_path / "one.jpg") == [Picture(tmp_path / "one.jpg")]


def test_the_same_picture_in_two_formats_is_found(tmp_path: Path, thumbnails: PictureBackbone) -> None:
    for place in ("cat/a.png", "cat/b.bmp", "dog/c.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        photograph().rotate(90 * place.startswith("dog")).save(tmp_path / place)
    batch = all_of(features_of(labelled(tmp_path), thumbnails))
    assert [[picture.path.name for picture in group] for group in duplicates(batch.pictures, batch.values)] == [
        ["a.png", "b.bmp"]
    ]
    photograph().save(tmp_path / "dog" / "d.png")
    batch = all_of(features_of(labelled(tmp_path), thumbnails))
    with pytest.raises(DataError, match=r"in two classes: .*a\.png as 'cat' and .*d\.png as 'dog'"):
        duplicates(batch.pictures, batch.values)


def test_pictures_that_only_look_the_same_to_a_backbone_are_not_the_same(
    tmp_path: Path, thumbnails: PictureBackbone
) -> None:
    for name, shade in (("cat", 0), ("dog", 255)):
        (tmp_path / name).mkdir()
        for number in range(2):
            pixels = np.full((64, 512, 3), 100 + 9 * number, np.uint8)
            pixels[:, :64] = shade
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    batch = all_of(features_of(labelled(tmp_path), thumbnails))
    assert torch.equal(batch.values[0], batch.values[2])
    assert duplicates(batch.pictures, batch.values) == []
    assert corrections(batch.pictures[:2], batch.pictures[2:], batch.values) == {}
    remarks = [remark for found in features_of(labelled(tmp_path), thumbnails) for remark in found.remarks]
    assert remarks == [Remark(picture, CENTRE) for picture in batch.pictures]
    squeezing = PictureBackbone(nn.Flatten(), lambda image: to_tensor(image.resize((16, 16))), "squeezed", (16, 16))
    assert not next(features_of(labelled(tmp_path), squeezing)).remarks
