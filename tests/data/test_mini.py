"""miniImageNet, FC100 and tieredImageNet from small files in their real formats."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from fslstm_plugin.data.base import SPLITS, Dataset
from fslstm_plugin.data.sets.l2l_benchmarks import FC100, TIERED, FC100Benchmark, TieredImageNet
from fslstm_plugin.data.sets.mini import MINI, MiniImageNet
from fslstm_plugin.errors import DataError

COUNTS = {"train": 3, "val": 2, "test": 2}
MODES = {"train": "train", "val": "validation", "test": "test"}


class SmallMini(MiniImageNet):
    classes: ClassVar = COUNTS
    images_per_class = 4


class SmallFC100(FC100Benchmark):
    classes: ClassVar = COUNTS
    images_per_class = 4


class SmallTiered(TieredImageNet):
    classes: ClassVar = COUNTS


def images(count: int, size: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def mini_pickles(folder: Path, protocol: int = 2, **changes: Any) -> Path:
    """As learn2learn's files; the images of a class are not beside each other."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in COUNTS.items():
        content = {
            "image_data": images(4 * count, 84),
            "class_dict": {f"n0{label}": list(range(label, 4 * count, count)) for label in range(count)},
        }
        path = folder / f"mini-imagenet-cache-{MODES[split]}.pkl"
        path.write_bytes(pickle.dumps(content | changes, protocol))
    return folder


def assert_mini(dataset: Dataset, root: Path) -> None:
    split = dataset.load(root, "val")
    np.testing.assert_array_equal(split.images, images(8, 84)[[0, 2, 4, 6, 1, 3, 5, 7]])
    assert split.labels.tolist() == [0] * 4 + [1] * 4
    assert split.class_names == ("n00", "n01")


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_mini_from_pickles(tmp_path: Path, protocol: int) -> None:
    SmallMini().prepare(tmp_path / "root", mini_pickles(tmp_path / "source", protocol))
    assert_mini(SmallMini(), tmp_path / "root")


def test_mini_from_where_learn2learn_keeps_it(tmp_path: Path) -> None:
    SmallMini().prepare(mini_pickles(tmp_path))
    assert_mini(SmallMini(), tmp_path)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_mini_from_an_archive_with_a_folder_in_it(tmp_path: Path, kind: str) -> None:
    folder = mini_pickles(tmp_path / "source")
    archive = tmp_path / f"mini.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in folder.iterdir():
                file.write(path, f"mini/{path.name}")
    else:
        with tarfile.open(archive, "w") as file:
            file.add(folder, "mini")
    SmallMini().prepare(tmp_path / "root", archive)
    assert_mini(SmallMini(), tmp_path / "root")
    assert list((tmp_path / "root").rglob("*.partial")) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image_data": images(4, 32)}, r"uint8 \(4, 32, 32, 3\), expected uint8 \(N, 84, 84, 3\)"),
        ({"image_data": images(4, 84).astype(np.float32)}, "float32"),
        ({"image_data": [[1, 2]]}, "are list, expected"),
        ({"class_dict": {"n00": [0, 99]}}, "integers from 0 to 11"),
        ({"class_dict": {"n00": [0.5]}}, "integers from 0 to 11"),
        ({"class_dict": {"n00": [[0], [1, 2]]}}, "integers from 0 to 11"),
        ({"class_dict": [1]}, "no dictionary"),
        ({"class_dict": {"n00": [0, 1, 2, 3]}}, "3 train classes, but the source has 1"),
        ({"class_dict": {"n00": [0], "n01": [1], "n02": [2]}}, "Class 'n00' .* has 1 image, expected 4"),
    ],
)
def test_mini_pickles_of_another_form_are_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        SmallMini().prepare(tmp_path / "root", mini_pickles(tmp_path / "source", **changes))
    assert not SmallMini().is_prepared(tmp_path / "root")


def test_a_web_page_in_place_of_a_pickle_is_named(tmp_path: Path) -> None:
    mini_pickles(tmp_path / "s")
    (tmp_path / "s" / "mini-imagenet-cache-validation.pkl").write_text("<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(DataError, match=r"mini-imagenet-cache-validation\.pkl is a web page"):
        SmallMini().prepare(tmp_path / "root", tmp_path / "s")


PLACES = {
    "class folders": "{label}/{name}",
    "flat": "images/{name}",
    "images by class": "images/{label}/{name}",
    "images by split": "{split}/{label}/{name}",
}


def mini_folder(folder: Path, place: str) -> Path:
    """The split lists of Ravi and Larochelle, and images of other sizes and modes."""
    modes = ["RGB", "L", "CMYK", "P"]
    for split, count in COUNTS.items():
        rows = ["filename,label"]
        for label in (f"n{split}{number}" for number in range(count)):
            for number, mode in enumerate(modes):
                name = f"{label}{number:08}.{'png' if mode == 'P' else 'jpg'}"
                path = folder / place.format(split=split, label=label, name=name)
                path.parent.mkdir(parents=True, exist_ok=True)
                picture = Image.new("RGB", (200, 100), (0, 0, 255))
                picture.paste((255, 0, 0), (50, 0, 150, 100))  # the centre, which the crop keeps
                picture.convert(mode).save(path)
                rows.append(f"{name},{label}")
        (folder / f"{split}.csv").write_text("\n".join(rows), encoding="utf-8-sig")  # as a spreadsheet writes it
    return folder


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_mini_from_images_and_lists(tmp_path: Path, place: str) -> None:
    SmallMini().prepare(tmp_path / "root", mini_folder(tmp_path / "source", place))
    split = SmallMini().load(tmp_path / "root", "test")
    assert split.class_names == ("ntest0", "ntest1")
    assert split.images.shape == (8, 84, 84, 3)
    middle = split.images[:, 42, 42].int()
    assert (middle[[0, 2, 3]] - middle.new_tensor([255, 0, 0])).abs().max() < 12
    assert (middle[1] - 76).abs().max() < 3  # red, as grey
    corner = split.images[0, 5, 5].int()
    assert corner[0] > 240  # the blue sides are cropped away
    assert corner[2] < 15


def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path) -> None:
    folder = mini_folder(tmp_path / "source", PLACES["flat"])
    picture = next((folder / "images").glob("nval0*.jpg"))
    content = picture.read_bytes()
    picture.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=f"The image {picture} is damaged, or not an image"):
        SmallMini().prepare(tmp_path / "root", folder)
    picture.unlink()
    with pytest.raises(DataError, match=rf"val\.csv lists the image '{picture.name}' of class 'nval0', which is"):
        SmallMini().prepare(tmp_path / "root", folder)
    for row, said in (("../../etc/passwd,nval0", "which is not there"), ("nval0", "must have filename and label")):
        (folder / "val.csv").write_text(f"filename,label\n{row}")
        with pytest.raises(DataError, match=said):
            SmallMini().prepare(tmp_path / "root", folder)
    (folder / "val.csv").write_text("name,class\n")
    with pytest.raises(DataError, match=r"val\.csv must be .* with the columns filename and label"):
        SmallMini().prepare(tmp_path / "root", folder)
    (folder / "val.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"val\.csv must be a CSV file"):
        SmallMini().prepare(tmp_path / "root", folder)
    (folder / "val.csv").unlink()
    with pytest.raises(DataError, match=r"source does not have mini-imagenet-cache-validation\.pkl or val\.csv"):
        SmallMini().prepare(tmp_path / "root", folder)


def fc100_pickles(folder: Path) -> Path:
    folder.mkdir()
    for split, count in COUNTS.items():
        labels = [10 + index % count for index in range(4 * count)]  # numbers of CIFAR-100, in turns
        content = {"data": images(4 * count, 32), "labels": labels}
        (folder / f"FC100_{split}.pickle").write_bytes(pickle.dumps(content, 2))
    return folder


def test_fc100_from_pickles(tmp_path: Path) -> None:
    SmallFC100().prepare(tmp_path / "root", fc100_pickles(tmp_path / "source"))
    split = SmallFC100().load(tmp_path / "root", "val")
    np.testing.assert_array_equal(split.images, images(8, 32)[[0, 2, 4, 6, 1, 3, 5, 7]])
    assert split.class_names == ("10", "11")


def tiered_pickles(folder: Path) -> Path:
    folder.mkdir()
    for split, count in COUNTS.items():
        encoded = []
        for picture in images(2 * count + 1, 84):
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, "png")
            encoded.append(np.frombuffer(buffer.getvalue(), np.uint8)[:, None])  # as OpenCV encodes
        labels = np.array([index % count for index in range(2 * count + 1)])
        (folder / f"{split}_images_png.pkl").write_bytes(pickle.dumps(encoded, 2))
        (folder / f"{split}_labels.pkl").write_bytes(
            pickle.dumps({"label_specific": labels, "label_specific_str": ["a"] * count}, 2)
        )
    return folder


def test_tiered_from_where_learn2learn_keeps_it(tmp_path: Path) -> None:
    tiered_pickles(tmp_path / "tiered-imagenet")
    SmallTiered().prepare(tmp_path)
    split = SmallTiered().load(tmp_path, "val")
    np.testing.assert_array_equal(split.images, images(5, 84)[[0, 2, 4, 1, 3]])
    assert split.labels.tolist() == [0, 0, 0, 1, 1]


def test_labels_of_another_length_are_named(tmp_path: Path) -> None:
    folder = tiered_pickles(tmp_path / "source")
    (folder / "train_labels.pkl").write_bytes(pickle.dumps({"label_specific": [0, 1]}))
    with pytest.raises(DataError, match=r"train_labels\.pkl has 2 labels for 7 images"):
        SmallTiered().prepare(tmp_path / "root", folder)
    (folder / "train_images_png.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match=r"train_images_png\.pkl is not a list of PNG images"):
        SmallTiered().prepare(tmp_path / "root", folder)


@pytest.mark.parametrize("dataset", [MINI, FC100, TIERED], ids=lambda dataset: dataset.name)
def test_missing_files_are_named_with_the_command(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(DataError) as failure:
        dataset.prepare(tmp_path)
    message = str(failure.value)
    assert f"`fslstm data prepare {dataset.name} --from DIR --data-root {tmp_path}`" in message
    assert "\n" not in message
    assert not dataset.is_prepared(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["fslstm", f".{dataset.name}.lock"]
    assert sum(dataset.classes[split] for split in SPLITS) in (100, 608)
