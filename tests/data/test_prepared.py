"""Prepared data sets: whole or absent, made once, damage noticed."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fslstm_plugin.data import prepared
from fslstm_plugin.data.base import SPLITS, Dataset
from fslstm_plugin.data.prepared import RawSplit
from fslstm_plugin.data.root import VARIABLE, data_root, load_split
from fslstm_plugin.errors import DataError, UnknownNameError
from fslstm_plugin.storage.files import exclusive


class Toy(Dataset):
    """Two classes a split, with as many images as their name says; it counts how often it is read."""

    name = "toy"
    title = "Toy"
    image_size = 8
    classes: ClassVar = {"train": 2, "val": 2, "test": 2}
    images_per_class = None

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        with (root / "reads").open("a") as file:
            file.write("x")
        for number, split in enumerate(SPLITS):
            images = np.arange(5 * 8 * 8 * 3, dtype=np.uint8).reshape(5, 8, 8, 3) + np.uint8(number)
            yield RawSplit(split, {"three": images[:3], "two": images[3:]}, self.decode)

    def decode(self, image: np.ndarray) -> np.ndarray:
        return image


class Stops(Toy):
    """Its process ends in the middle, as by SIGKILL."""

    def decode(self, image: np.ndarray) -> np.ndarray:
        if image[0, 0, 0] == 1:
            os._exit(9)
        return image


def in_processes(count: int, work: Callable[[], None]) -> list[int | None]:
    processes = [multiprocessing.get_context("fork").Process(target=work) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*.partial")]


def test_a_split_has_images_labels_and_names(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    split = Toy().load(tmp_path, "val")
    assert (split.dataset, split.name, split.class_names) == ("toy", "val", ("three", "two"))
    assert split.images.shape == (5, 8, 8, 3)
    assert split.images.dtype == torch.uint8
    assert split.labels.tolist() == [0, 0, 0, 1, 1]
    assert split.labels.dtype == torch.int64
    assert split.images.flatten()[:3].tolist() == [1, 2, 3]


def test_writing_to_a_split_leaves_the_file_alone(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    Toy().load(tmp_path, "train").images.zero_()
    assert Toy().load(tmp_path, "train").images.any()


def test_a_split_moves_to_a_device_once(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    split = Toy().load(tmp_path, "train")
    assert split.to("cpu").images is split.images
    moved = split.to("meta")
    assert (moved.images.device.type, moved.labels.device.type) == ("meta", "meta")
    assert (moved.class_names, moved.images.shape) == (split.class_names, split.images.shape)
    assert moved.to(torch.device("meta")).images is moved.images
    assert split.images.device.type == "cpu"


def test_preparing_twice_reads_once(tmp_path: Path) -> None:
    messages: list[str] = []
    Toy().prepare(tmp_path)
    Toy().prepare(tmp_path, report=messages.append)
    assert (tmp_path / "reads").read_text() == "x"
    assert "already prepared" in messages[0]


def test_two_processes_at_once_read_once(tmp_path: Path) -> None:
    assert in_processes(3, lambda: Toy().prepare(tmp_path)) == [0, 0, 0]
    assert (tmp_path / "reads").read_text() == "x"
    assert Toy().is_prepared(tmp_path)


def test_a_killed_preparation_leaves_nothing_that_counts(tmp_path: Path) -> None:
    assert in_processes(1, lambda: Stops().prepare(tmp_path)) == [9]
    assert not Toy().is_prepared(tmp_path)
    Toy().prepare(tmp_path)
    assert Toy().is_prepared(tmp_path)
    assert leftovers(tmp_path) == []


def leave_partial_folders(root: Path) -> None:
    for path in Toy().partial_folders(root):
        path.mkdir(parents=True)
        (path / "half").write_bytes(b"x")


def test_leftovers_of_any_preparation_are_removed(tmp_path: Path) -> None:
    for _ in ("not prepared", "prepared"):
        leave_partial_folders(tmp_path)
        Toy().prepare(tmp_path)
        assert leftovers(tmp_path) == []
    leave_partial_folders(tmp_path)
    with exclusive(Toy().folder(tmp_path)):
        Toy().clean(tmp_path)  # another preparation is at work
    assert leftovers(tmp_path) != []
    Toy().clean(tmp_path)
    assert leftovers(tmp_path) == []
    assert Toy().is_prepared(tmp_path)


@pytest.mark.parametrize("file", ["train.npy", "index.json"])
def test_a_truncated_file_is_noticed_and_made_again(tmp_path: Path, file: str) -> None:
    Toy().prepare(tmp_path)
    path = tmp_path / "fslstm" / "toy" / file
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"damaged.*fslstm data prepare toy --data-root"):
        Toy().load(tmp_path, "test")
    Toy().prepare(tmp_path)
    assert len(Toy().load(tmp_path, "train").images) == 5


def test_a_file_that_is_no_array_is_named(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    path = tmp_path / "fslstm" / "toy" / "train.npy"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(DataError, match=r"train\.npy is damaged"):
        Toy().load(tmp_path, "train")


def test_changed_bytes_are_noticed_and_made_again(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    path = tmp_path / "fslstm" / "toy" / "val.npy"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"val\.npy is damaged: its checksum .*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "val")
    Toy().load(tmp_path, "train")
    Toy().prepare(tmp_path)
    assert Toy().load(tmp_path, "val").images.flatten()[:3].tolist() == [1, 2, 3]


def change_index(root: Path, change: Callable[[dict[str, Any]], Any], forge: bool = False) -> None:
    """Change what the index says of the splits; forged, it also gets the checksum that fits."""
    path = root / "fslstm" / "toy" / "index.json"
    index = json.loads(path.read_text())
    change(index["splits"])
    if forge:
        del index["checksum"]
        index["checksum"] = prepared._digest(index)
    path.write_text(json.dumps(index))


BELIEVABLE = {
    "counts of equal sum": lambda splits: splits["train"].update(classes={"three": 2, "two": 3}),
    "another order": lambda splits: splits["train"].update(classes={"two": 2, "three": 3}),
    "another name": lambda splits: splits["train"].update(classes={"three": 3, "zwei": 2}),
}
BROKEN = {
    "another count": lambda splits: splits["train"]["classes"].update(two=3),
    "a negative count": lambda splits: splits["train"].update(classes={"three": 8, "two": -3}),
    "a count in words": lambda splits: splits["train"]["classes"].update(two="2"),
    "a list of classes": lambda splits: splits["train"].update(classes=["three", "two"]),
    "no checksum": lambda splits: splits["train"].pop("crc32"),
    "a length in words": lambda splits: splits["train"].update(bytes="1088"),
    "no split": lambda splits: splits.pop("train"),
    "a split that is a list": lambda splits: splits.update(train=[]),
}


@pytest.mark.parametrize("change", [*BELIEVABLE.values(), *BROKEN.values()], ids=[*BELIEVABLE, *BROKEN])
def test_an_index_that_was_changed_is_not_believed(tmp_path: Path, change: Callable[..., Any]) -> None:
    Toy().prepare(tmp_path)
    change_index(tmp_path, change)
    with pytest.raises(DataError, match=r"index\.json is damaged: its checksum .*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")
    assert not Toy().is_prepared(tmp_path)
    Toy().prepare(tmp_path)
    assert Toy().load(tmp_path, "train").labels.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_forged_index_is_one_sentence(tmp_path: Path, change: Callable[..., Any]) -> None:
    Toy().prepare(tmp_path)
    change_index(tmp_path, change, forge=True)
    with pytest.raises(DataError, match=r"(index\.json|train\.npy) .*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\ud800", '{"format": 2}', "1" * 5000])
def test_an_index_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    Toy().prepare(tmp_path)
    index = tmp_path / "fslstm" / "toy" / "index.json"
    index.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DataError, match=r"(index\.json is damaged|another version).*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")
    index.unlink()
    with pytest.raises(DataError, match=r"index\.json cannot be read \(No such file.*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")


@pytest.mark.parametrize(("old", "new"), [(b"|u1", b"|i1"), (b"False", b"True "), (b"(5, 8, 8, 3)", b"(5, 8, 4, 6)")])
def test_a_changed_header_of_an_array_is_noticed(tmp_path: Path, old: bytes, new: bytes) -> None:
    Toy().prepare(tmp_path)
    path = tmp_path / "fslstm" / "toy" / "train.npy"
    content = path.read_bytes()
    assert old in content[:128]
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(DataError, match=r"train\.npy is damaged.*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")


def test_what_an_earlier_version_prepared_is_made_again(tmp_path: Path) -> None:
    Toy().prepare(tmp_path)
    path = tmp_path / "fslstm" / "toy" / "index.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(DataError, match=r"Toy is of another version in .*: run `fslstm data prepare toy"):
        Toy().load(tmp_path, "train")
    Toy().prepare(tmp_path)
    assert (tmp_path / "reads").read_text() == "xx"


def test_the_digest_stands_for_images_and_classes(tmp_path: Path) -> None:
    class Other(Toy):
        def decode(self, image: np.ndarray) -> np.ndarray:
            return image ^ np.uint8(image[0, 0, 0] == 0)

    class Renamed(Toy):
        def read(self, *arguments: Any) -> Generator[RawSplit, None, None]:
            for split in super().read(*arguments):
                yield replace(split, classes={"three": split.classes["three"], "zwei": split.classes["two"]})

    for number, dataset in enumerate((Toy, Toy, Other, Renamed)):
        dataset().prepare(tmp_path / str(number))
    first, again, other, renamed = (Toy().load(tmp_path / str(number), "train").digest for number in range(4))
    assert first == again
    assert len({first, other, renamed, Toy().load(tmp_path / "0", "val").digest}) == 4


def test_a_source_without_a_split_is_refused(tmp_path: Path) -> None:
    class Two(Toy):
        def read(self, *arguments: Any) -> Generator[RawSplit, None, None]:
            yield from [split for split in super().read(*arguments) if split.name != "val"]

    with pytest.raises(DataError, match="splits must be train, val, test, but the source has train, test"):
        Two().prepare(tmp_path)
    assert not Toy().folder(tmp_path).exists()


def test_a_new_version_is_made_again(tmp_path: Path) -> None:
    class Newer(Toy):
        version = 2

    Toy().prepare(tmp_path)
    assert not Newer().is_prepared(tmp_path)
    Newer().prepare(tmp_path)
    assert Newer().is_prepared(tmp_path)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, split: RawSplit, image_size: int) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(prepared, "_write_images", full)
    with pytest.raises(DataError, match=r"Toy could not be prepared in \S*: No space left on device\.$"):
        Toy().prepare(tmp_path)
    assert [path.name for path in (tmp_path / "fslstm").iterdir()] == [".toy.lock"]


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"Toy could not be prepared in \S*: \w[^\[]* \(.*file.*\)\.$"):
        Toy().prepare(tmp_path / "file")


def test_wrong_classes_and_images_are_named(tmp_path: Path) -> None:
    class Short(Toy):
        images_per_class = 3

    class Large(Toy):
        image_size = 16

    class Many(Toy):
        classes: ClassVar = {"train": 64, "val": 2, "test": 2}

    with pytest.raises(DataError, match=r"Class 'two' \(train\) of Toy has 2 images, expected 3"):
        Short().prepare(tmp_path)
    with pytest.raises(DataError, match=r"class 'three' is uint8 \(8, 8, 3\), expected uint8 \(16, 16, 3\)"):
        Large().prepare(tmp_path)
    with pytest.raises(DataError, match="has 64 train classes, but the source has 2"):
        Many().prepare(tmp_path)
    assert not Toy().is_prepared(tmp_path)


def test_an_unknown_split_and_a_missing_source_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'test'"):
        Toy().load(tmp_path, "tests")
    with pytest.raises(DataError, match=r"The source nowhere\.zip of Toy is not there"):
        Toy().prepare(tmp_path, Path("nowhere.zip"))
    assert not any(tmp_path.iterdir())
    Toy().prepare(tmp_path)
    with pytest.raises(DataError, match=r"The source nowhere\.zip of Toy is not there"):
        Toy().prepare(tmp_path, Path("nowhere.zip"))


def test_untrusted_names_are_escaped(tmp_path: Path) -> None:
    class Hostile(Toy):
        def read(self, *arguments: Any) -> Generator[RawSplit, None, None]:
            for split in super().read(*arguments):
                yield replace(split, classes={"\x1b[2J\u202e": [], "two": split.classes["two"]})

    with pytest.raises(DataError) as failure:
        Hostile().prepare(tmp_path)
    assert str(failure.value).startswith(r"Class '\x1b[2J\u202e' (train)")


def test_data_root_is_the_option_then_the_variable_then_learn2learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/from/variable")
    assert data_root(Path("/from/option")) == Path("/from/option")
    assert data_root() == Path("/from/variable")
    monkeypatch.delenv(VARIABLE)
    assert data_root() == Path.home() / "data"


def test_missing_data_says_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError) as failure:
        load_split("mini", "train", tmp_path)
    assert f"run `fslstm data prepare mini --from DIR --data-root {tmp_path}`." in str(failure.value)
    assert "\n" not in str(failure.value)
