"""``--views flip``: features of each image and its mirror image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import painted
import pytest
import torch

from fslstm_plugin.classifier.estimator import FewShotClassifier
from fslstm_plugin.data.images import make_images
from fslstm_plugin.errors import RunError, UsageError
from fslstm_plugin.model import FewShotModel
from fslstm_plugin.pretrained import open_backbone
from fslstm_plugin.runs.folder import Run

SHORT = ("--ways", 3, "--shots", 1, "--queries", 3, "--episodes", 20)
METHODS = ("lssvm", "nn")


@pytest.fixture
def run(tmp_path: Path, fslstm) -> Path:
    done = fslstm("pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 3, "--batch-size", 32,
                  "--runs", tmp_path, "--name", "base")  # fmt: skip
    assert done.code == 0, done.err
    return tmp_path / "base"


def results(fslstm, *arguments) -> dict:
    file = Path(arguments[-1])
    done = fslstm(*arguments[:-1], *SHORT, "--json", file)
    assert done.code == 0, done.err
    return json.loads(file.read_text())


def test_a_runs_features_are_those_of_both_views(fslstm, run: Path, dots, tmp_path: Path) -> None:
    model = FewShotModel.from_run(Run.open(run))
    images = make_images(dots.images, torch.arange(len(dots.labels)), model.normalization)
    with torch.no_grad():
        features = (model.backbone(images) + model.backbone(images.flip(-1))) / 2
    np.savez(tmp_path / "both.npz", features=features.numpy(), labels=dots.labels.numpy())
    expected = results(fslstm, "eval", *METHODS, "--features", tmp_path / "both.npz", tmp_path / "a.json")
    of_run = ("eval", *METHODS, "--run", run, "--split", "train")
    plain = results(fslstm, *of_run, tmp_path / "c.json")
    found = results(fslstm, *of_run, "--views", "flip", tmp_path / "b.json")
    assert [row["accuracy"] for row in found["rows"]] == pytest.approx([row["accuracy"] for row in expected["rows"]])
    assert (plain["notes"], found["notes"]) == (
        [],
        ["Features: the mean of those of each image and of its mirror image."],
    )
    kept = {file.name: file.stat().st_mtime_ns for file in (run / "cache").iterdir()}
    assert len(kept) == 2  # neither is in the other's place
    results(fslstm, *of_run, tmp_path / "c.json")
    assert {file.name: file.stat().st_mtime_ns for file in (run / "cache").iterdir()} == kept


def test_tune_and_batch_statistics_see_both(fslstm, run: Path, tmp_path: Path) -> None:
    done = fslstm("tune", "nn", "--run", run, "--views", "flip", *SHORT)
    assert done.code == 0, done.err
    assert not (run / "tuned.json").exists()  # which says nothing of views
    found = results(fslstm, "eval", "lssvm+bn", "--run", run, "--views", "flip", tmp_path / "a.json")
    assert len(found["rows"]) == 1


def test_wrong_views_are_refused(fslstm, run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", features=np.eye(4), labels=[0, 0, 1, 1])
    for arguments, words in (
        (("--run", run, "--views", "flop"), "There is no view 'flop'. Did you mean 'flip'?"),
        (("--features", tmp_path / "some.npz", "--views", "flip"), "leave out --views"),
    ):
        done = fslstm("eval", "nn", *arguments)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert words in done.err
    with pytest.raises(UsageError, match="its own views"):
        open_backbone(open_backbone(torch.nn.Flatten()), views="flip")


def test_a_model_file_keeps_its_views(fslstm, tmp_path: Path) -> None:
    small = painted.backbone(tmp_path)
    folder, file = painted.labelled(tmp_path / "in"), tmp_path / "some.fslstm"
    done = fslstm("fit", folder, "-o", file, *small, "--views", "flip", "--method", "lssvm")
    assert done.code == 0, done.err
    classifier = FewShotClassifier.load(file)
    backbone, plain = classifier.open_backbone(), open_backbone("conv4", Path(small[-1]))
    assert backbone.views == "flip"
    picture = painted.picture("red", 200)
    pixels = plain.preprocess(picture)[None]
    expected = (plain(pixels) + plain(pixels.flip(-1))) / 2
    assert torch.allclose(backbone(pixels), expected, atol=1e-6)
    assert classifier.predict([picture])[0] == classifier.predict(expected.numpy())[0]
    with pytest.raises(RunError, match="with the views flip of each picture, but this backbone has none"):
        FewShotClassifier.load(file, backbone=plain)
    pytest.importorskip("onnxruntime")
    done = fslstm("export", file, "--onnx", tmp_path / "some.onnx")  # which compares the graph with the classifier
    assert done.code == 0, done.err
