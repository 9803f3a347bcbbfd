"""``--features FILE`` of eval, compare and tune."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fslstm_plugin.errors import DataError
from fslstm_plugin.evaluation import feature_file
from fslstm_plugin.evaluation.feature_file import open_feature_file

SHORT = ("--episodes", 40, "--shots", 2, "--queries", 5)


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """Eight classes that can be told apart, in mixed order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(8), 12))
    points = rng.normal(size=(8, 16))[labels] + rng.normal(size=(96, 16))
    file = tmp_path / "some.npz"
    np.savez(file, features=points.astype(np.float32), labels=np.array([f"class {each}" for each in labels]))
    return file


def rows_of(file: Path) -> dict[str, float]:
    return {row["method"]: row["accuracy"] for row in json.loads(file.read_text())["rows"]}


def test_eval_and_compare_give_the_same_table(fslstm, tmp_path: Path, features) -> None:
    done = fslstm("eval", "--features", features, *SHORT, "--json", tmp_path / "eval.json")
    assert done.code == 0, done.err
    assert done.out.startswith("some.npz file, features of length 16, 5-way")
    found = rows_of(tmp_path / "eval.json")
    assert found["lssvm"] > 60
    outputs = ("--json", tmp_path / "compare.json", "--latex", tmp_path / "compare.tex")
    done = fslstm("compare", "lssvm", "tim", "--features", features, *SHORT, *outputs)
    assert done.code == 0, done.err
    assert "the run" not in (tmp_path / "compare.tex").read_text()
    assert rows_of(tmp_path / "compare.json")["lssvm"] == found["lssvm"]


def test_safetensors_with_numbers_for_labels_are_the_same(fslstm, tmp_path: Path, features) -> None:
    content = np.load(features)
    labels = np.unique(content["labels"], return_inverse=True)[1]
    tensors = {"features": torch.from_numpy(content["features"]), "labels": torch.from_numpy(labels)}
    save_file(tensors, tmp_path / "some.safetensors")
    one, other = open_feature_file(features), open_feature_file(tmp_path / "some.safetensors")
    assert torch.equal(one.features, other.features)
    assert torch.equal(one.split.labels, other.split.labels)
    assert one.split.class_names[0] == "class 0"
    for place in (0, 50, 95):  # each row has kept its label
        row = (content["features"] == one.features[place].numpy()).all(1).argmax()
        assert content["labels"][row] == one.split.class_names[one.split.labels[place]]


def test_everything_beside_accuracy(fslstm, features) -> None:
    done = fslstm(
        "eval",
        "--features",
        features,
        *SHORT,
        "lssvm",
        "--calibration",
        "--coverage",
        0.6,
        "--open-ways",
        2,
    )
    assert done.code == 0, done.err
    assert done.out.count("some.npz") >= 1


def test_tune_prints_its_choices(fslstm, tmp_path: Path, features, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = fslstm("tune", "nn", "--features", features, *SHORT)
    assert done.code == 0, done.err
    assert done.out.startswith("nn: ")
    assert done.out.endswith("The choices are not saved: name the methods with these arguments.\n")
    assert [file.name for file in tmp_path.iterdir()] == ["some.npz"]


def test_the_defaults_of_compare_need_no_run(fslstm, tmp_path: Path, features) -> None:
    done = fslstm("compare", "--features", features, *SHORT, "--json", tmp_path / "rows.json")
    assert done.code == 0, done.err
    assert {"nn", "lssvm+psm", "tim"} <= set(rows_of(tmp_path / "rows.json"))


def test_a_mean_of_base_classes_may_be_in_the_file(fslstm, tmp_path: Path, features) -> None:
    content = dict(np.load(features))
    shifted = tmp_path / "shifted.npz"
    np.savez(shifted, **{**content, "features": content["features"] + 5}, base_mean=np.full(16, 5.0))
    done = fslstm("eval", "--features", features, *SHORT, "lssvm", "--json", tmp_path / "one.json")
    assert done.code == 0, done.err
    done = fslstm("eval", "--features", shifted, *SHORT, "lssvm(center)", "--json", tmp_path / "two.json")
    assert done.code == 0, done.err
    assert rows_of(tmp_path / "two.json")["lssvm(center)"] == pytest.approx(rows_of(tmp_path / "one.json")["lssvm"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lssvm+iam"], "has weights that are trained with a backbone, and there are none with"),
        (["relation-net"], "has weights that are trained with a backbone"),
        (["--split", "val"], "--split is for a run, but --features takes its place: leave out --split."),
        (["--precision", "bf16"], "--precision is for a run"),
        (["--data-root", "."], "--data-root is for a run"),
        (
            ["pt-map(exponent=500,negative=signed)", *SHORT],
            "negative=signed) turns the features into infinite numbers",
        ),
        (["lssvm+bn"], "needs images"),
        (["lssvm(center=base)"], "needs the mean feature of base classes"),
        (["lsvm"], "Did you mean 'lssvm'?"),
        (["--ways", "9"], "8"),
        (["--queries", "50"], "12"),
        (["--run", "base"], "leave out --run and --dataset"),
    ],
)
def test_what_a_file_has_not_is_refused(fslstm, features, arguments, words) -> None:
    done = fslstm("eval", "--features", features, "--episodes", 10, *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert words in done.err


def test_tuning_on_a_file_takes_no_place_of_data_sets(fslstm, features) -> None:
    done = fslstm("tune", "lssvm", "--features", features, "--data-root", ".")
    assert (done.code, "--data-root is for a run, but --features takes its place" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"features": np.eye(4)}, "has no labels"),
        ({"features": np.ones(4), "labels": np.arange(4)}, "of shape (N, d), but are float64 of shape (4,)"),
        ({"features": np.eye(4), "labels": np.arange(3)}, "one for each row"),
        ({"features": np.eye(4) * np.nan, "labels": np.arange(4)}, "infinite, or not numbers"),
        ({"features": np.eye(4) * 1e300, "labels": np.arange(4)}, "too large for float32"),
        ({"features": np.eye(4) * 1e25, "labels": np.arange(4)}, "too large for float32"),  # their squares are
        ({"features": np.eye(4), "labels": np.arange(4), "base_mean": np.full(4, 1e300)}, "of base_mean in"),
        ({"features": np.eye(4, dtype=int), "labels": np.arange(4)}, "floating point"),
        ({"features": np.eye(4), "labels": np.array([{}] * 4)}, "are Python objects, which are not read"),
        ({"features": np.eye(4, dtype=object), "labels": np.arange(4)}, "floating point"),
        ({"features": np.eye(4), "labels": np.arange(4), "mean": np.ones(4)}, "holds 'mean', but can have only"),
        ({"features": np.eye(4), "labels": np.array(["a" * 2000] * 4)}, "longer than 1,000 characters"),
    ],
)
def test_a_file_of_another_form_is_refused(fslstm, tmp_path: Path, content, words) -> None:
    file = tmp_path / "wrong.npz"
    np.savez(file, **content)
    done = fslstm("eval", "--features", file)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert words in done.err


def test_a_damaged_file_is_refused(fslstm, tmp_path: Path) -> None:
    for name in ("wrong.npz", "wrong.safetensors"):
        (tmp_path / name).write_bytes(b"nothing")
        done = fslstm("eval", "--features", tmp_path / name)
        assert (done.code, done.err.count("\n")) == (1, 1), done.err
        assert name in done.err
    assert "There is no file of features" in fslstm("eval", "--features", tmp_path / "none.npz").err


def test_sound_files_are_not_called_damaged(fslstm, tmp_path: Path) -> None:
    objects = tmp_path / "objects.npz"
    np.savez(objects, features=np.eye(4), labels=np.array(["a", "b"] * 2, dtype=object))
    done = fslstm("eval", "--features", objects)
    assert (done.code, "damaged" in done.err) == (1, False)
    assert f"The labels in {objects} are Python objects, which are not read" in done.err
    assert done.err.endswith("save them as texts, with labels.astype(str).\n")
    small = tmp_path / "small.safetensors"
    save_file({"features": torch.eye(4).to(torch.float8_e4m3fn), "labels": torch.arange(4)}, small)
    done = fslstm("eval", "--features", small)
    assert (done.code, done.err) == (
        1, f"fslstm: The features in {small} are float8_e4m3: save them as float16 or float32.\n"
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_every_precision_are_read(dtype: torch.dtype, tmp_path: Path) -> None:
    for labels in (torch.tensor([0, 1, 0], dtype=torch.uint8), torch.tensor([0, 1, 0])):
        save_file({"features": torch.eye(3).to(dtype), "labels": labels}, tmp_path / "f.safetensors")
        assert open_feature_file(tmp_path / "f.safetensors").features.sum() == 3


def test_headers_are_read_before_contents(fslstm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may hold arrays of any size, which would fill the memory before they are refused."""
    monkeypatch.setattr(np.lib.format, "read_array", None)
    monkeypatch.setattr(feature_file, "load_tensors", None)
    monkeypatch.setattr(feature_file, "_SMALL", 2**20)
    zeros = np.zeros((2, 500_000))
    for content, words in (
        ({"features": zeros[None], "labels": np.arange(2)}, "more than 100 times its size"),
        ({"features": np.random.default_rng(0).normal(size=(1, 9, 9)), "labels": np.arange(2)}, "of shape (1, 9, 9)"),
    ):
        np.savez_compressed(tmp_path / "swelling.npz", **content)
        done = fslstm("eval", "--features", tmp_path / "swelling.npz")
        assert (done.code, done.err.count("\n")) == (1, 1), done.err
        assert words in done.err
    save_file({"features": torch.zeros(3, 4), "labels": torch.arange(4)}, tmp_path / "f.safetensors")
    assert "one for each row" in fslstm("eval", "--features", tmp_path / "f.safetensors").err


def test_every_bit_of_an_archive_counts(tmp_path: Path) -> None:
    """One that is flipped in the directory may rename the base mean, or move what is read."""
    whole, broken = tmp_path / "whole.npz", tmp_path / "broken.npz"
    np.savez(whole, features=np.eye(4), labels=np.arange(4), base_mean=np.ones(4))
    content = whole.read_bytes()
    begin = content.index(b"PK\x01\x02")  # the directory, with its end
    harmless = 0
    for place in range(8 * begin, 8 * len(content), 3):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        broken.write_bytes(damaged)
        try:
            session = open_feature_file(broken)
        except DataError as error:
            assert str(broken) in str(error)  # noqa: PT017 - some bits mean nothing, as of the date
        else:
            assert torch.equal(session.features, torch.eye(4))
            assert session.base_mean is not None
            harmless += 1
    assert harmless < 8 * (len(content) - begin) / 6


@pytest.mark.parametrize("name", ["pipe.npz", "pipe.safetensors", "zero.npz"])
def test_what_is_no_regular_file_is_not_opened(fslstm, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    os.mkfifo(file) if "pipe" in name else file.symlink_to("/dev/zero")
    done = fslstm("eval", "--features", file)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert f"{file} is a {'pipe' if 'pipe' in name else 'device'}, but a regular file was expected" in done.err


@pytest.mark.parametrize("name", ["pickled.npz", "one.npy"])
def test_what_is_no_archive_is_never_unpickled(fslstm, tmp_path: Path, name: str) -> None:
    made = tmp_path / "made"
    (tmp_path / name).write_bytes(pickle.dumps(_Writes(str(made))))
    done = fslstm("eval", "--features", tmp_path / name, *SHORT)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert "write one with numpy.savez" in done.err
    assert not made.exists()


class _Writes:
    """Makes a file when it is unpickled."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.place,)
