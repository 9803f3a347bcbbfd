"""Folders of pictures: what is read, what is passed over and said, and which folders are one class."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from fslstm_plugin.backbones import Conv4
from fslstm_plugin.data.reading.walk import PassedOver, class_folders, is_picture, walk
from fslstm_plugin.errors import DataError
from fslstm_plugin.pictures import class_names, labelled, pictures_in
from fslstm_plugin.training.image_folders import _Reproducible, open_folder


def png(place: Path, kind: str = "png") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (len(str(place)) % 256, 9, 9)).save(place, kind)
    return place


def said_of(source: Path) -> tuple[list[str | None], list[str]]:
    """Labels of the pictures, and what is said of the folder."""
    said: list[str] = []
    return [each.label for each in labelled(source, said.append)], said


def test_a_name_in_two_forms_of_unicode_is_one_class(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        png(tmp_path / unicodedata.normalize(form, "Käfer") / "1.png")
    png(tmp_path / "owl" / "1.png")
    labels, said = said_of(tmp_path)
    assert labels == ["Käfer", "Käfer", "owl"]
    assert said == ["2 folders are the one class Käfer."]
    table = tmp_path / "labels.csv"
    lines = [f"{number}.png,{unicodedata.normalize(form, 'Käfer')}" for number, form in enumerate(("NFC", "NFD"))]
    table.write_text("\n".join(["path,label", *lines]), encoding="utf-8")
    assert class_names(labelled(table)) == ["Käfer"]


def test_classes_that_differ_only_by_case_are_pointed_out(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,fox\n2.png,Fox\n3.png,owl\n")
    sentence = "Two classes differ only by case: Fox and fox. If they are one, rename one of them."
    assert said_of(table) == (["fox", "Fox", "owl"], [sentence])
    with pytest.warns(UserWarning, match="Fox and fox"):
        labelled(table)


def test_what_systems_leave_in_folders_is_no_class_and_no_picture(tmp_path: Path) -> None:
    leftovers = ("@eaDir", "#recycle", "__MACOSX", "$RECYCLE.BIN", "System Volume Information", ".AppleDouble")
    for name in ("cat", "dog"):
        png(tmp_path / name / "1.png")
        (tmp_path / name / "Thumbs.db").write_bytes(b"\xff\xd8\xff\xe0")
        png(tmp_path / name / "._1.png")
        for leftover in leftovers:
            png(tmp_path / name / leftover / "1.png" / "SYNOPHOTO_THUMB_M.jpg")
    for leftover in leftovers:
        png(tmp_path / leftover.upper() / "cat" / "1.png")
    labels, said = said_of(tmp_path)
    assert labels == ["cat", "dog"]
    assert said[0].startswith("Passed over: 18 system folders (#RECYCLE, #recycle, $RECYCLE.BIN, ")
    passed = PassedOver()
    assert [path.parent.name for path in walk(tmp_path, passed)] == ["cat", "dog"]
    assert passed.systems.total() == 18


def test_what_is_passed_over_is_counted_by_suffix(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        png(tmp_path / name / "1.png")
        for other in ("a.CR2", "b.cr2", "drawing.svg", "LICENSE"):
            (tmp_path / name / other).write_bytes(b"II*\0")  # as RAW files begin
    png(tmp_path / "stray.png")
    png(tmp_path / "cat" / ".hidden.png")
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    sentence = (
        "Passed over: 4 .cr2, 2 without a suffix, 2 .svg, 1 pipe or device, 1 beside the class folders, 1 hidden."
    )
    assert said_of(tmp_path) == (["cat", "dog"], [sentence])
    said: list[str] = []
    assert len(pictures_in(tmp_path, said.append)) == 3
    assert said == [sentence.replace("1 beside the class folders, ", "")]
    for name in ("raw", "owl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.nef").touch()
    with pytest.raises(DataError, match=r"owl holds no pictures.* Passed over: 4 \.cr2, 2 without a suffix, 2 \.nef"):
        labelled(tmp_path)
    with pytest.raises(DataError, match=r"There are no pictures in .*raw\. Passed over: 1 \.nef\."):
        pictures_in(tmp_path / "raw")


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        *(("1.jpg_large", "jpeg", True), ("1", "png", True), ("1.image", "webp", True), ("1.bin", "gif", True)),
        *(("1.dng", "tiff", False), ("1.jpg_original", "jpeg", False), ("1.png.part", "png", False)),
    ],
)
def test_an_unknown_suffix_is_decided_by_the_content(tmp_path: Path, name: str, kind: str, found: bool) -> None:
    file = png(tmp_path / name, kind)
    assert is_picture(file) == found
    if found:
        assert [each.path for each in pictures_in(file)] == [file]
        assert [each.path for each in pictures_in(tmp_path)] == [file]


def test_folders_within_a_class_are_of_it_and_said(tmp_path: Path) -> None:
    for place in ("cat/1.png", "cat/kittens/2.png", "dog/small/puppies/3.png"):
        png(tmp_path / place)
    sentence = "Folders within a class folder belong to its class: cat/kittens, dog/small/puppies."
    assert said_of(tmp_path) == (["cat", "cat", "dog"], [sentence])


@pytest.mark.parametrize(
    "places",
    [
        ["train/cat/1.png", "val/cat/1.png", "test/cat/1.png"],
        ["Train/cat/1.png", "Train/dog/1.png", "test/owl/1.png"],  # the classes of few-shot splits differ
        ["train/cat/1.png", "train/dog/1.png"],
        ["training/cat/1.png", "testing/cat/1.png", "more/1.png"],
    ],
)
def test_splits_are_not_classes(tmp_path: Path, places: list[str]) -> None:
    for place in places:
        png(tmp_path / place)
    with pytest.raises(DataError, match=r"holds .*[tT]rain.*, in which the folders are the classes: name one of these"):
        labelled(tmp_path)
    assert "cat" in class_names(labelled(tmp_path / Path(places[0]).parts[0]))


def test_classes_may_have_the_names_of_splits(tmp_path: Path) -> None:
    for place in ("train/steam/1.png", "test/1.png", "plane/jet/1.png"):
        png(tmp_path / place)
    assert list(class_folders(tmp_path, lambda _: None)) == ["plane", "test", "train"]


def test_folders_to_pretrain_on_are_read_alike(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        png(tmp_path / unicodedata.normalize(form, "Käfer") / "1.png")
    png(tmp_path / "owl" / "1.jpg_large", "jpeg")
    png(tmp_path / "owl" / "@eaDir" / "1.png")
    png(tmp_path / "@eaDir" / "1.png")
    said: list[str] = []
    images = open_folder(tmp_path, 32, Conv4(32).normalization, places=False, report=said.append)
    assert (images.classes, [label for _, label in images.files]) == (["Käfer", "owl"], [0, 0, 1])
    assert said == ["Passed over: 2 system folders (@eaDir).", "2 folders are the one class Käfer."]
    pixels, label = _Reproducible(images, 0, 0)[2]
    assert (tuple(pixels.shape), label) == ((3, 32, 32), 1)
    for split in ("train", "test"):
        png(tmp_path / "splits" / split / "cat" / "1.png")
    with pytest.raises(DataError, match="in which the folders are the classes"):
        open_folder(tmp_path / "splits", 32, Conv4(32).normalization, places=False, report=print)
