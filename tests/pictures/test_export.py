"""``fslstm export``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import painted
import pytest
import torch

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.data.reading.decode import read_picture
from fslstm_plugin.pictures import onnx as exporting

onnxruntime = pytest.importorskip("onnxruntime")


def fitted(fslstm, tmp_path: Path, method: str) -> Path:
    """A classifier of three colours."""
    folder = tmp_path / "labelled"
    if not folder.exists():
        painted.labelled(folder)
    done = fslstm("fit", folder, "-o", tmp_path / "model", "--method", method, *painted.backbone(tmp_path))
    assert done.code == 0, done.err
    return tmp_path / "model"


@pytest.mark.parametrize(
    "method", ["lssvm(ridge=0.1,power(negative=signed),normalize)", "nn", "rr(ridge=1)", "svm(normalize)"]
)
def test_the_graph_predicts_as_the_classifier(fslstm, tmp_path: Path, method) -> None:
    model, file = fitted(fslstm, tmp_path, method), tmp_path / "model.onnx"
    done = fslstm("export", model, "--onnx", file)
    assert done.code == 0, done.err
    assert "on 15 pictures its probabilities are those of the classifier" in done.out
    classifier = FewShotClassifier.load(model)
    backbone = classifier.open_backbone()
    new = sorted(painted.unlabelled(tmp_path / "new").iterdir())
    images = torch.stack([backbone.preprocess(read_picture(each)) for each in new])
    session = onnxruntime.InferenceSession(str(file))
    logits, found = session.run(["logits", "probabilities"], {"images": images.numpy()})
    expected = classifier.predict_proba(backbone(images).numpy())
    np.testing.assert_allclose(found, expected, atol=1e-4)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == ["blue", "green", "red"]
    assert (about["backbone"], float(about["temperature"])) == ("conv4", classifier.temperature_)
    assert json.loads(about["preprocessing"]) == {
        "size": [84, 84],
        "order": ["crop", "resize", "scale", "normalize"],
        "resize": [84, 84],
        "interpolation": "bicubic",
        "crop": None,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "scale": 1 / 255,
        "channels": "RGB",
        "max_aspect_ratio": 10,
    }
    assert found.shape == logits.shape == (12, 3)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("lssvm+psm", "depends on the other queries"),
        ("tim", "depends on the other queries"),
        ("lssvm(kernel=rbf)", "is not linear in its features"),
    ],
)
def test_what_is_no_weights_is_refused(fslstm, tmp_path: Path, method, words) -> None:
    done = fslstm("export", fitted(fslstm, tmp_path, method), "--onnx", tmp_path / "model.onnx")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert words in done.err
    assert not (tmp_path / "model.onnx").exists()


def test_a_graph_that_differs_is_not_kept(fslstm, tmp_path: Path, monkeypatch) -> None:
    model = fitted(fslstm, tmp_path, "lssvm")
    (tmp_path / "model.onnx").write_bytes(b"old")
    monkeypatch.setattr(exporting, "_run", lambda file, images: np.full((len(images), 3), 1 / 3))
    done = fslstm("export", model, "--onnx", tmp_path / "model.onnx")
    assert (done.code, "The graph is not kept" in done.err) == (1, True)
    assert (tmp_path / "model.onnx").read_bytes() == b"old"
    assert not list(tmp_path.glob(".*.tmp"))


def test_weights_that_were_moved_and_other_pictures_to_check_with(fslstm, tmp_path: Path) -> None:
    model = fitted(fslstm, tmp_path, "lssvm")
    moved = (tmp_path / "conv4.safetensors").rename(tmp_path / "moved.safetensors")
    done = fslstm("export", model, "--onnx", tmp_path / "model.onnx")
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert "give the file or the run as --weights" in done.err
    assert not (tmp_path / "model.onnx").exists()
    for file in (tmp_path / "labelled").rglob("*.png"):
        file.unlink()
    export = ("export", model, "--onnx", tmp_path / "model.onnx", "--weights", moved)
    done = fslstm(*export)
    assert (done.code, "name some with --check" in done.err) == (2, True)
    done = fslstm(*export, "--check", painted.unlabelled(tmp_path / "new"))
    assert done.code == 0, done.err
    assert "on 12 pictures" in done.out
