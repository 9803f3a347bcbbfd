"""Model files: what is read is what was written; anything else gets a sentence, and nothing in a file is run."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors import safe_open

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.classifier.identity import BackboneIdentity
from fslstm_plugin.classifier.model_file import ModelFile
from fslstm_plugin.errors import RunError, StorageError, UsageError
from fslstm_plugin.storage.weights import load_described, save_tensors

MODEL = ModelFile(
    method="lssvm(ridge=1,normalize)",
    seed=7,
    temperature=0.1 + 0.2,
    calibrated=True,
    classes=np.array(["<b>wren</b>", "gold\nfinch,"]),
    support=np.random.default_rng(0).standard_normal((3, 4)),
    labels=np.array([1, 0, 1]),
    pictures=("a/1.jpg", "b/ü.png", "c\t.png"),
    backbone=BackboneIdentity("lite0", "12ab", (224, 224)),
    base_mean=np.ones(4, dtype=np.float32),
)


def assert_equal(one: ModelFile, other: ModelFile) -> None:
    for name in ModelFile.__struct_fields__:
        mine, its = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == its.dtype
        else:
            assert mine == its
            assert type(mine) is type(its)


def test_a_model_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "birds.fslstm"
    MODEL.write(file)
    assert_equal(ModelFile.read(file), MODEL)
    bare = replace(MODEL, pictures=(), backbone=None, base_mean=None, support=MODEL.support.astype(np.float32))
    bare.write(file)
    assert_equal(ModelFile.read(file), bare)
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "classes",
    [
        np.array([3, 12], dtype=np.int32),
        np.array([3, 2**64 - 1], dtype=np.uint64),
        np.array([0.1, 1e300]),
        np.array([False, True]),
        np.array(["a", "b"], dtype=object),
    ],
    ids=lambda classes: classes.dtype.name,
)
def test_classes_keep_their_type(classes: np.ndarray, tmp_path: Path) -> None:
    replace(MODEL, classes=classes).write(tmp_path / "a")
    assert_equal(ModelFile.read(tmp_path / "a"), replace(MODEL, classes=classes))


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
        np.array([1, "a"], dtype=object),
        np.array([b"a", b"b"]),
        np.array([1.0, np.inf]),
    ],
    ids=lambda classes: classes.dtype.name,
)
def test_other_classes_are_refused_before_anything_is_written(classes: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name them with strings"):
        replace(MODEL, classes=classes).write(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_its_metadata_are_json_for_whoever_looks(tmp_path: Path) -> None:
    MODEL.write(tmp_path / "a")
    with safe_open(tmp_path / "a", framework="np") as content:
        assert set(content.keys()) == {"support", "labels", "base_mean"}
        assert json.loads(content.metadata()["classifier"])["classes"] == MODEL.classes.tolist()
        assert content.metadata()["version"] == "2"


def test_flipped_bits_anywhere_are_seen(tmp_path: Path) -> None:
    file, draw = tmp_path / "a", random.Random(0)
    MODEL.write(file)
    whole = file.read_bytes()
    for place in [*range(16), *draw.sample(range(len(whole)), 150)]:
        content = bytearray(whole)
        content[place] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
        try:
            found = ModelFile.read(file)
        except RunError:
            continue
        assert_equal(found, MODEL)  # white space between the parts of the file's head


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"PK\x03\x04", b"\xff" * 100, b"{}"])
def test_files_that_are_none_get_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(RunError, match="is damaged, or no file that fslstm wrote"):
        ModelFile.read(tmp_path / "a")
    with pytest.raises(RunError, match="There is no model file at"):
        ModelFile.read(tmp_path / "b")


def test_a_truncated_file_gets_a_sentence(tmp_path: Path) -> None:
    MODEL.write(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "a").write_bytes(whole[:length])
        with pytest.raises(RunError, match="is damaged, or no"):
            ModelFile.read(tmp_path / "a")


def test_weights_of_another_kind_and_files_of_other_versions_are_named(tmp_path: Path) -> None:
    save_tensors(tmp_path / "run", {"weight": torch.ones(3)})
    with pytest.raises(RunError, match="is not a model file: it holds weights of another kind"):
        ModelFile.read(tmp_path / "run")
    save_tensors(tmp_path / "new", {"else": torch.ones(3)}, {"format": "fslstm-classifier", "version": "3"})
    with pytest.raises(RunError, match="of version 3, but this fslstm-plugin reads version 2: install a newer one"):
        ModelFile.read(tmp_path / "new")
    save_tensors(tmp_path / "old", {"else": torch.ones(3)}, {"format": "fslstm-classifier", "version": "1"})
    with pytest.raises(RunError, match="old was written by an older version of fslstm: fit again with 'fslstm fit'"):
        ModelFile.read(tmp_path / "old")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"support": torch.ones(2, 4)}, "labels of another shape"),
        ({"support": torch.ones(3)}, "features of another shape"),
        ({"support": torch.ones(3, 4, dtype=torch.int64)}, "features of another shape"),
        ({"support": torch.full((3, 4), torch.nan)}, "numbers that are not finite"),
        ({"labels": torch.tensor([0, 0, 0])}, "classes that are not the labels'"),
        ({"labels": torch.tensor([0, 5, 1])}, "classes that are not the labels'"),
        ({"labels": torch.tensor([0.0, 1.0, 1.0])}, "labels of another shape"),
        ({"base_mean": torch.ones(3)}, "a mean of another shape"),
        ({"labels": None}, "'labels'"),
        ({"support": torch.ones(3, 0)}, "features of length 0"),
        ({"support": torch.ones(0, 4), "labels": torch.ones(0, dtype=torch.int64)}, "classes that are not the labels'"),
        ({"classes": [], "labels": torch.ones(0, dtype=torch.int64)}, "fewer than two classes"),
        ({"classes": ["a"], "labels": torch.tensor([0, 0, 0])}, "fewer than two classes"),
        ({"classes": ["a", "a"]}, "the same class twice"),
        ({"classes": ["a\x1b", "a\\x1b"]}, "the same class twice"),
        ({"classes": [0, True], "class_type": "int64"}, "classes of another type"),
        ({"classes": [True, False], "class_type": "object"}, "classes of another type"),
        ({"classes": [True, "True"], "class_type": "object"}, "the same class twice|classes of another type"),
        ({"seed": -1}, "a seed that is out of range"),
        ({"temperature": 0}, "a temperature that is not positive"),
        ({"temperature": "1"}, "Expected `float`"),
        ({"pictures": ["a"]}, "names of other pictures"),
        ({"class_type": "complex64"}, "complex64"),
        ({"class_type": "int8"}, "classes of another type|invalid literal"),
        ({"classes": [1, 2**70]}, "out of range|too large|of another type|Expected"),
        ({"classes": "ab"}, "Expected `array`"),
        ({"surprise": 1}, "unknown field"),
    ],
)
def test_an_inconsistent_file_gets_a_sentence(change: dict, said: str, tmp_path: Path) -> None:
    MODEL.write(tmp_path / "a")
    tensors, metadata = load_described(tmp_path / "a")
    described = json.loads(metadata["classifier"])
    for name, value in change.items():
        if name in tensors or isinstance(value, torch.Tensor):
            tensors[name] = value
        else:
            described[name] = value
    tensors = {name: each for name, each in tensors.items() if each is not None}
    save_tensors(tmp_path / "a", tensors, {**metadata, "classifier": json.dumps(described)})
    with pytest.raises(RunError, match=said):
        ModelFile.read(tmp_path / "a")


@pytest.mark.parametrize("classes", [np.array(["a\x1b", "a\\x1b"]), np.array(["1", "1"], dtype=object)])
def test_classes_that_look_the_same_are_refused_before_anything_is_written(classes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Two classes would both be shown as"):
        replace(MODEL, classes=classes).write(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_paths_are_moved_with_the_file(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "models").mkdir(parents=True)
    places = ("models/1.jpg", "birds/2.jpg", "run", "w.safetensors")
    *names, run, weights = (str(before / each) for each in places)
    backbone = BackboneIdentity(run, "12ab", (224, 224), weights=weights)
    others = ("/elsewhere/2.jpg", "a name")
    replace(MODEL, pictures=(names[0], *others), backbone=backbone).write(before / "models" / "m")
    replace(MODEL, pictures=(names[1], *others)).write(before / "n")
    assert str(before).encode() not in (before / "models" / "m").read_bytes() + (before / "n").read_bytes()
    before.rename(after)
    found = ModelFile.read(after / "models" / "m")
    assert found.pictures == (str(after / places[0]), *others)
    assert (found.backbone.name, found.backbone.weights) == (str(after / "run"), str(after / "w.safetensors"))
    assert ModelFile.read(after / "n").pictures == (str(after / places[1]), *others)


def test_a_head_that_promises_more_than_the_file_holds(tmp_path: Path) -> None:
    head = json.dumps({"support": {"dtype": "F32", "shape": [2**40, 2], "data_offsets": [0, 2**43]}}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(head)) + head + b"\0" * 64)
    with pytest.raises(RunError, match="is damaged, or no"):
        ModelFile.read(tmp_path / "a")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    MODEL.write(file)

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as target:
            target.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="No space left"):
        replace(MODEL, seed=8).write(file)
    assert_equal(ModelFile.read(file), MODEL)
    assert list(tmp_path.iterdir()) == [file]


def test_a_backbone_that_is_not_known_here_is_named(tmp_path: Path) -> None:
    MODEL.write(tmp_path / "c.fslstm")
    with pytest.raises(RunError, match="backbone cannot be opened here: There is no backbone 'lite0'"):
        FewShotClassifier.load(tmp_path / "c.fslstm")
