"""Published data sets from parquet files, ImageNet's tree and class folders; other splits become other data sets."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from fslstm_plugin.data.base import SPLITS, Dataset
from fslstm_plugin.data.prepared import RawSplit
from fslstm_plugin.data.reading import parquet
from fslstm_plugin.data.sets import mini
from fslstm_plugin.data.sets.cifarfs import CIFAR_FS
from fslstm_plugin.data.sets.l2l_benchmarks import FC100, TIERED
from fslstm_plugin.data.sets.mini import MINI, MiniImageNet
from fslstm_plugin.data.sets.published import OtherVersion
from fslstm_plugin.errors import DataError
from fslstm_plugin.registry import DATASETS

CLASSES = {"train": ["n01", "n02", "n03"], "val": ["n04", "n05"], "test": ["n06", "n07"]}
ALL = [name for names in CLASSES.values() for name in names]
PER_CLASS = 4


class SmallMini(MiniImageNet):
    classes: ClassVar = {split: len(names) for split, names in CLASSES.items()}
    images_per_class = PER_CLASS
    name = "small"
    name_form = r"n\d\d"

    def split_classes(self, split: str) -> list[str]:
        return CLASSES[split]


OTHER = OtherVersion(SmallMini())


def grey(name: str, number: int) -> int:
    return 30 * int(name[1:]) + number


def encoded(name: str, number: int, size: int = 84) -> bytes:
    file = io.BytesIO()
    Image.new("L", (size, size), grey(name, number)).save(file, "png")
    return file.getvalue()


def tree(folder: Path, names: list[str], count: int = PER_CLASS) -> Path:
    """As ImageNet has them; the numbers leave gaps, and are not in the order of the names."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{name}_{7 * number + 5}.JPEG").write_bytes(encoded(name, number))
    return folder


def table(
    path: Path, names: list[str], count: int = PER_CLASS, first: int = 0, form: str = "struct", numbered: bool = False
) -> None:
    """Rows of the classes in turns, as the library `datasets` writes them, or plain."""
    rows = [(name, number) for number in range(first, count) for name in names]
    images: list[object] = [encoded(*row) for row in rows]
    if form == "struct":
        images = [{"bytes": image, "path": None} for image in images]
    labels = [names.index(name) if numbered else name for name, _ in rows]
    made = pyarrow.table({"image": images, "label": labels})
    if numbered:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        made = made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(made, path, row_group_size=5)


def check(dataset: Dataset, root: Path, count: int = PER_CLASS) -> None:
    for split, names in CLASSES.items():
        loaded = dataset.load(root, split)
        assert loaded.class_names == tuple(names)
        found = loaded.images[:, 0, 0, 0].reshape(len(names), count).sort().values  # files are ordered by their names
        assert found.flatten().tolist() == [grey(name, number) for name in names for number in range(count)]


def one_table(source: Path) -> None:
    table(source / "all.parquet", [*ALL, "n99"])


def numbered_table(source: Path) -> None:
    table(source / "data" / "train-00000-of-00001-3f2a.parquet", [*ALL, "n08"], numbered=True)


def three_tables(source: Path) -> None:
    for split, names in CLASSES.items():
        table(source / {"val": "validation"}.get(split, split) / "0.parquet", names, form="plain")


def tables_of_two_files(source: Path) -> None:
    """A split for classification: all classes are in each, and train and validation hold the published images."""
    for part in range(2):
        table(source / f"train-0000{part}-of-00002.parquet", ALL[4 * part : 4 * part + 4], first=1)
    table(source / "validation-00000-of-00001.parquet", ALL, count=1)
    table(source / "test-00000-of-00001.parquet", ALL, count=2)


def imagenet(source: Path) -> None:
    tree(source / "ILSVRC" / "Data" / "CLS-LOC" / "train", [*ALL, "n98"])
    (source / "ILSVRC" / "Data" / "CLS-LOC" / "val").mkdir()
    (source / "ILSVRC" / "Data" / "CLS-LOC" / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(encoded("n01", 0))


def split_folders(source: Path) -> None:
    for split, names in CLASSES.items():
        tree(source / split, names)


def train_and_val(source: Path) -> None:
    """ImageNet with its validation images in class folders, which belong to no few-shot data set."""
    tree(source / "train", [*ALL, "n98"])
    tree(source / "val", ALL, 2)


FORMS = [one_table, numbered_table, three_tables, tables_of_two_files, imagenet, split_folders, train_and_val]


@pytest.mark.parametrize("write", FORMS)
def test_each_form_gives_the_published_data_set(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "source")
    SmallMini().prepare(tmp_path / "root", tmp_path / "source")
    check(SmallMini(), tmp_path / "root")
    assert not (tmp_path / "root" / "fslstm" / "small-other").exists()


def test_a_parquet_file_is_a_source(tmp_path: Path) -> None:
    one_table(tmp_path)
    SmallMini().prepare(tmp_path / "root", tmp_path / "all.parquet")
    check(SmallMini(), tmp_path / "root")


def test_each_row_group_of_a_parquet_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every group there are images of several classes, which are kept class after class."""
    for split, names in CLASSES.items():
        for part in range(2):
            table(tmp_path / f"{split}-{part}.parquet", names, count=2 * part + 2, first=2 * part)
    read: list[tuple[Path, int]] = []
    groups = parquet.ParquetTable._read_images

    def counted(self: parquet.ParquetTable, group: parquet._Group) -> object:
        read.append((group.path, group.number))
        return groups(self, group)

    monkeypatch.setattr(parquet.ParquetTable, "_read_images", counted)
    SmallMini().prepare(tmp_path / "root", tmp_path)
    assert len(read) == len({*read}) > len(SPLITS)
    images = SmallMini().load(tmp_path / "root", "val").images[:, 0, 0, 0].tolist()
    assert images == [grey(name, number) for name in CLASSES["val"] for number in range(PER_CLASS)]


def test_lists_pick_images_of_imagenet_by_their_position(tmp_path: Path) -> None:
    """The published names have the position among the files of the class in the order of their numbers, from 1."""
    tree(tmp_path / "source" / "train", ALL, 12)
    for split, names in CLASSES.items():
        rows = [f"{name}{position:08}.jpg,{name}" for name in names for position in (3, 11, 12, 1)]
        (tmp_path / "source" / f"{split}.csv").write_text("\n".join(["filename,label", *rows]))
    mini._by_number.cache_clear()
    SmallMini().prepare(tmp_path / "root", tmp_path / "source")
    assert mini._by_number.cache_info().misses == 2 * len(ALL), "a folder is listed once, not for each image"
    found = SmallMini().load(tmp_path / "root", "val").images[:, 0, 0, 0].tolist()
    assert found == [grey(name, position - 1) for name in CLASSES["val"] for position in (3, 11, 12, 1)]
    (tmp_path / "source" / "val.csv").write_text("filename,label\nn0400000013.jpg,n04")
    with pytest.raises(DataError, match=r"lists the image 'n0400000013\.jpg' of class 'n04', which is not there"):
        SmallMini().prepare(tmp_path / "other", tmp_path / "source")


def test_two_folders_of_one_split_are_named(tmp_path: Path) -> None:
    split_folders(tmp_path / "source")
    tree(tmp_path / "source" / "validation", ["n08"])
    with pytest.raises(DataError, match=r"Two folders hold val images, .*va.* and .*va.*: put them into one"):
        SmallMini().prepare(tmp_path / "root", tmp_path / "source")


def more_images(source: Path) -> None:
    tree(source, ALL, PER_CLASS + 1)


def another_split(source: Path) -> None:
    for split, names in {"train": ["n01", "n02", "n04"], "val": ["n03", "n05"], "test": ["n06", "n07"]}.items():
        tree(source / split, names)


def other_classes(source: Path) -> None:
    for split, names in CLASSES.items():
        table(source / f"{split}.parquet", [f"n1{name[2:]}" for name in names], count=3)


@pytest.mark.parametrize(
    ("write", "why", "names", "count"),
    [
        (more_images, "up to 5 train images per class, miniImageNet 4", CLASSES["train"], 5),
        (another_split, r"train classes that are not miniImageNet's \(n04\)", ["n01", "n02", "n04"], 4),
        (other_classes, r"train classes that are not miniImageNet's \(n11, n12, n13\)", ["n11", "n12", "n13"], 3),
    ],
)
def test_another_split_or_choice_becomes_another_data_set(
    tmp_path: Path, write: Callable[[Path], None], why: str, names: list[str], count: int
) -> None:
    write(tmp_path / "source")
    said: list[str] = []
    SmallMini().prepare(tmp_path / "root", tmp_path / "source", said.append)
    assert not SmallMini().is_prepared(tmp_path / "root")
    other = OTHER.load(tmp_path / "root", "train")
    assert (other.dataset, other.class_names) == ("small-other", tuple(names))
    assert len(other.images) == count * len(names)
    (sentence,) = [each for each in said if "It becomes the data set small-other" in each]
    assert pytest.importorskip("re").search(why, sentence)
    OTHER.prepare(tmp_path / "again", tmp_path / "source")
    assert OTHER.load(tmp_path / "again", "train").digest == other.digest


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (
            ALL[:-1],
            PER_CLASS,
            r"has 6 of the 7 classes of miniImageNet; missing: n07\. The names .* such as n01, n02, n03",
        ),
        (ALL, PER_CLASS - 1, r"Class 'n01' \(train\) of miniImageNet has 3 images, expected 4"),
        ([f"m{name}" for name in ALL], PER_CLASS, r"nor folders named as the classes are \(n01, n02, n03, \.\.\.\)"),
    ],
)
def test_what_a_tree_lacks_is_named(tmp_path: Path, names: list[str], count: int, words: str) -> None:
    for name in names:
        (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(count):
            (tmp_path / "source" / name / f"{number}.png").write_bytes(encoded("n01", number))
    with pytest.raises(DataError, match=words):
        SmallMini().prepare(tmp_path / "root", tmp_path / "source")
    assert not (tmp_path / "root" / "fslstm" / "small-other").exists()


def test_what_splits_lack_is_named(tmp_path: Path) -> None:
    for split, names in CLASSES.items():
        tree(tmp_path / "less" / split, names[1:])
    with pytest.raises(DataError, match="The source lacks train classes of miniImageNet: n01"):
        SmallMini().prepare(tmp_path / "root", tmp_path / "less")
    for split in ("train", "test"):
        tree(tmp_path / "two" / split, CLASSES[split])
    with pytest.raises(
        DataError, match="has the splits test, train, but not val|has the splits train, test, but not val"
    ):
        SmallMini().prepare(tmp_path / "root", tmp_path / "two")


def damaged(path: Path) -> None:
    table(path, ALL)
    path.write_bytes(path.read_bytes()[:500])


def without_labels(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"image": [b"x"], "text": ["n01"]}), path)


def without_images(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"image": ["a.png"], "label": ["n01"]}), path)


def without_a_label(path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"image": [b"x", b"y"], "label": ["n01", None]}), path)


def without_an_image(path: Path) -> None:
    rows = {"image": [b""] * 4 * len(ALL), "label": ALL * 4}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (damaged, r"a\.parquet is damaged, or not a parquet file"),
        (without_labels, r"has the columns image, text, expected labels in one named label"),
        (without_images, r"has the columns image, label, expected encoded images \(bytes\) in one"),
        (without_a_label, r"a row without a label \(row 1"),
        (without_an_image, r"has no image in row 0"),
    ],
)
def test_what_is_wrong_with_a_parquet_file_is_named(tmp_path: Path, write: Callable[[Path], None], words: str) -> None:
    write(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=words):
        SmallMini().prepare(tmp_path / "root", tmp_path / "a.parquet")


def test_the_published_lists() -> None:
    for dataset in (MINI, TIERED, CIFAR_FS, FC100):
        names = [dataset.split_classes(split) for split in SPLITS]
        assert [len(each) for each in names] == list(dataset.classes.values())
        assert len({name for each in names for name in each}) == sum(map(len, names))
        assert all(each == sorted(each) for each in names)
        assert DATASETS.get(f"{dataset.name}-other").of is dataset
    cifar = {name for split in SPLITS for name in CIFAR_FS.split_classes(split)}
    assert cifar == {name for split in SPLITS for name in FC100.split_classes(split)}


def test_fc100_and_cifar_fs_from_cifar_100_in_folders(tmp_path: Path) -> None:
    """CIFAR-100 has a class named train, which is no split."""
    names = [name for split in SPLITS for name in CIFAR_FS.split_classes(split)]
    for place, name in enumerate(names):
        folder = tmp_path / "cifar100" / "data" / name
        folder.mkdir(parents=True)
        for number in range(2):
            Image.new("L", (32, 32), 2 * place + number).save(folder / f"{number}.png")
    for dataset in (CIFAR_FS, FC100):

        class Small(type(dataset)):  # type: ignore[misc]
            images_per_class = 2

        Small().prepare(tmp_path / "root", tmp_path / "cifar100")
        for split in SPLITS:
            loaded = dataset.load(tmp_path / "root", split)
            assert loaded.class_names == tuple(dataset.split_classes(split))
            assert loaded.images[::2, 0, 0, 0].tolist() == [2 * names.index(name) for name in loaded.class_names]
            assert np.unique(loaded.labels).size == dataset.classes[split]


def test_another_version_shares_no_class_among_its_splits(tmp_path: Path, monkeypatch) -> None:
    splits = [RawSplit(name, {"n01": []}, lambda image: image) for name in ("train", "val")]
    monkeypatch.setattr(SmallMini, "read", lambda *_: iter(splits))
    with pytest.raises(DataError, match=r"Another version of .* has the class 'n01' in train and in val"):
        list(OTHER.read(tmp_path, tmp_path, print))
