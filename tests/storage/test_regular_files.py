"""A pipe would be waited for without end, and a device read: neither is opened, whatever names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.data.base import DataError
from fslstm_plugin.data.prepared import INDEX
from fslstm_plugin.errors import StorageError, UsageError
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.pretrained import open_backbone
from fslstm_plugin.runs.configuration import TrainConfig, Validation
from fslstm_plugin.runs.folder import Run
from fslstm_plugin.storage.weights import save_tensors
from fslstm_plugin.training.configuration import meta_training

KINDS = ("pipe", "device")


@pytest.fixture(params=KINDS)
def put(request):
    """Puts one at a place; says what an error calls it."""

    def at(place: Path) -> str:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.mkfifo(place) if request.param == "pipe" else place.symlink_to("/dev/zero")
        return f"{place} is a {request.param}, but a regular file was expected"

    return at


@pytest.fixture
def run(tmp_path: Path) -> Run:
    from fslstm_dots import DOTS, TinyBackbone

    config = TrainConfig(
        backbone="tiny", image_size=32, max_steps=1, seed=0, precision="32", dataset="dots", algorithm="nn",
        recipe=meta_training(DOTS, TinyBackbone, False), validation=Validation(),
    )  # fmt: skip
    run = Run(tmp_path / "runs" / "a", config)
    run.create()
    run.save_weights(FewShotModel.from_backbone("tiny", "nn", 32))
    return run


def refused(done, sentence: str) -> None:
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert sentence in done.err


def test_among_a_runs_evaluations(put, run: Run, fslstm) -> None:
    sentence = put(run.path / "evaluations" / "eval-1.json")
    refused(fslstm("report", run.path, "--output", run.path / "page.html"), sentence)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_as_a_part_of_a_run(put, name: str, run: Run, fslstm, succeed) -> None:
    few = ("--episodes", 4, "--ways", 3, "--shots", 1, "--queries", 2)
    succeed("eval", "--run", run.path, *few)
    sentence = put(run.path / name)
    refused(fslstm("eval", "--run", run.path, *few), sentence)


def test_a_link_to_itself_as_a_part_of_a_run(run: Run, fslstm) -> None:
    (run.path / "config.json").unlink()
    (run.path / "config.json").symlink_to("config.json")
    refused(fslstm("eval", "--run", run.path), "config.json: Too many levels of symbolic links")


def test_as_weights(put, tmp_path: Path, fslstm) -> None:
    for name in ("w.pth", "w.safetensors"):
        put(tmp_path / name)
        with pytest.raises(DataError, match="but a regular file was expected"):
            open_backbone("conv4", tmp_path / name)
        refused(
            fslstm("train", "--dataset", "dots", "--pretrained", tmp_path / name, "--runs", tmp_path),
            "but a regular file",
        )


def test_as_a_model_file(put, tmp_path: Path, fslstm) -> None:
    sentence = put(tmp_path / "m.fslstm")
    with pytest.raises(DataError, match="but a regular file was expected"):
        FewShotClassifier.load(tmp_path / "m.fslstm")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    refused(fslstm("predict", tmp_path / "m.fslstm", tmp_path / "a.png"), sentence)


def test_a_classifier_takes_the_place_of_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.fslstm")  # no device, which an error of the code would replace
    classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    with pytest.raises(UsageError, match="is no regular file, and is not replaced: name another file"):
        classifier.save(tmp_path / "m.fslstm")
    assert (tmp_path / "m.fslstm").is_fifo()


def test_nothing_takes_the_place_of_a_pipe_or_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UsageError, match=f"{name} is no regular file, and is not replaced"):
            save_tensors(tmp_path / name, {})
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "pipe"], "nothing is left beside them"


def test_a_name_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Cannot write .*: File name too long"):
        save_tensors(tmp_path / ("a" * 300), {})
    assert not list(tmp_path.iterdir())


def test_as_the_index_of_a_data_set(put, tmp_path: Path, fslstm) -> None:
    from fslstm_dots import DOTS

    DOTS.prepare(tmp_path)
    sentence = put(DOTS.folder(tmp_path) / INDEX)
    with pytest.raises(DataError, match=sentence):
        DOTS.load(tmp_path, "train")
