"""``fslstm export``."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import painted
import pytest
import torch
from PIL import Image

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.data.reading.decode import read_picture
from fslstm_plugin.pictures import onnx as exporting

onnxruntime = pytest.importorskip("onnxruntime")


def fitted(succeed, tmp_path: Path, method: str) -> Path:
    """A classifier of three colours."""
    folder = tmp_path / "labelled"
    if not folder.exists():
        painted.labelled(folder)
    succeed("fit", folder, "-o", tmp_path / "model", "--method", method, *painted.backbone(tmp_path))
    return tmp_path / "model"


@pytest.mark.parametrize(
    "method", ["lssvm(ridge=0.1,power(negative=signed),normalize)", "nn", "rr(ridge=1)", "svm(normalize)"]
)
def test_the_graph_predicts_as_the_classifier(succeed, tmp_path: Path, method) -> None:
    model, file = fitted(succeed, tmp_path, method), tmp_path / "model.onnx"
    done = succeed("export", model, "--onnx", file)
    assert "on 15 pictures its probabilities agree with the classifier's" in done.out
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
def test_what_is_no_weights_is_refused(fslstm, succeed, tmp_path: Path, method, words) -> None:
    done = fslstm("export", fitted(succeed, tmp_path, method), "--onnx", tmp_path / "model.onnx")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert words in done.err
    assert not (tmp_path / "model.onnx").exists()


def test_a_graph_that_differs_is_not_kept(fslstm, succeed, tmp_path: Path, monkeypatch) -> None:
    model = fitted(succeed, tmp_path, "lssvm")
    succeed("export", model, "--onnx", tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    monkeypatch.setattr(exporting, "_run", lambda file, images: np.full((len(images), 3), 1 / 3))
    done = fslstm("export", model, "--onnx", tmp_path / "model.onnx")
    assert (done.code, "The graph is not kept" in done.err) == (1, True), "an earlier graph may be replaced"
    assert (tmp_path / "model.onnx").read_bytes() == before
    (tmp_path / "other.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    done = fslstm("export", model, "--onnx", tmp_path / "other.onnx")
    assert (done.code, "is no graph of fslstm" in done.err) == (2, True)
    assert not list(tmp_path.glob(".*.tmp"))


def test_weights_that_were_moved_and_other_pictures_to_check_with(fslstm, succeed, tmp_path: Path) -> None:
    model = fitted(succeed, tmp_path, "lssvm")
    moved = (tmp_path / "conv4.safetensors").rename(tmp_path / "moved.safetensors")
    done = fslstm("export", model, "--onnx", tmp_path / "model.onnx")
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert "give the file or the run as --weights" in done.err
    assert not (tmp_path / "model.onnx").exists()
    for file in (tmp_path / "labelled").rglob("*.png"):
        file.unlink()
    export = ("export", model, "--onnx", tmp_path / "model.onnx", "--weights", moved)
    done = fslstm(*export)
    assert (done.code, "name some with --check" in done.err, done.err.count("\n")) == (2, True, 2)
    assert "And 14 more." in done.err
    done = succeed(*export, "--check", painted.unlabelled(tmp_path / "new"))
    assert "on 12 pictures" in done.out


def predicted(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


@pytest.mark.parametrize("method", ["lssvm(ridge=1,normalize)", "nn"])
def test_the_graph_predicts_pictures_as_the_classifier_does(succeed, tmp_path: Path, method) -> None:
    model, graph = fitted(succeed, tmp_path, method), tmp_path / "model.onnx"
    succeed("export", model, "--onnx", graph)
    new = painted.unlabelled(tmp_path / "new")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 300, 3), dtype=np.uint8)).save(new / "long.png")
    Image.new("RGB", (1, 90), "yellow").save(new / "strip.png")
    (new / "broken.png").write_bytes(b"")
    notes = []
    for file, name in ((model, "mine.csv"), (graph, "graph.csv")):
        done = succeed("predict", file, new, "--csv", tmp_path / name, "--wrong-at-most", 0.2, "--probabilities")
        assert "broken.png" in done.err
        assert "only the centre square is seen: " in done.err
        notes.append(done.out.partition("could not be read.\n")[2].splitlines())
    assert [each for each in notes[0] if "permutation test" not in each][1:-1] == notes[1][1:-1]
    assert any(each.startswith("Expect this of") for each in notes[1])
    assert "like the labelled ones of each, which was not tested." in notes[1][0]
    mine, graphs = predicted(tmp_path / "mine.csv"), predicted(tmp_path / "graph.csv")
    assert len(mine) == len(graphs) == 14
    for one, other in zip(mine, graphs, strict=True):
        same = ("path", "label", "likeliest", "calibrated", "sure")
        assert [one[name] for name in same] == [other[name] for name in same]
        # One rank of 15 pictures at most, where features of other precision decide it.
        assert float(one["familiarity"]) == pytest.approx(float(other["familiarity"]), abs=1.01 / 16)
        for name in one:
            if name in ("probability", "cautious") or name.startswith("probability of"):
                assert float(one[name]) == pytest.approx(float(other[name]), abs=1.5e-4)


def test_a_graph_that_squeezes_long_pictures_sees_all_of_them(succeed, tmp_path: Path) -> None:
    import onnx

    model, graph = fitted(succeed, tmp_path, "nn"), tmp_path / "model.onnx"
    succeed("export", model, "--onnx", graph)
    Image.new("RGB", (300, 40), "yellow").save(tmp_path / "long.png")
    steps, said = ["resize", "crop", "scale", "normalize"], []
    for resize in ([84, 84], 84):
        content = onnx.load(graph)
        (entry,) = (each for each in content.metadata_props if each.key == "preprocessing")
        entry.value = json.dumps(json.loads(entry.value) | {"order": steps, "resize": resize, "crop": [84, 84]})
        onnx.save(content, tmp_path / "other.onnx")
        done = succeed("predict", tmp_path / "other.onnx", tmp_path / "long.png")
        said.append("only the centre square is seen" in done.err)
    assert said == [False, True]


def test_a_graph_is_run_without_torch(succeed, tmp_path: Path) -> None:
    model, graph = fitted(succeed, tmp_path, "lssvm"), tmp_path / "model.onnx"
    succeed("export", model, "--onnx", graph)
    new = painted.unlabelled(tmp_path / "new", each=1)
    folder = new / ".." / new.name
    program = (
        "import sys; from fslstm_cli.main import run\n"
        "try: run()\nexcept SystemExit as stop: assert not stop.code\n"
        "print([name for name in ('torch', 'lightning', 'sklearn', 'scipy') if name in sys.modules])"
    )
    arguments = ("predict", str(graph), str(folder), "--csv", str(tmp_path / "out.csv"))
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert len(predicted(tmp_path / "out.csv")) == 3
    assert not any(".." in row["path"] for row in predicted(tmp_path / "out.csv"))


def test_a_card_says_what_a_classifier_is(fslstm, succeed, tmp_path: Path) -> None:
    model = fitted(succeed, tmp_path, "lssvm")
    (tmp_path / "labelled" / "red").rename(tmp_path / "labelled" / "a|b *c*")
    succeed("update", model, "--forget", "red", "--add", tmp_path / "labelled")
    succeed("export", model, "--card", tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    _, metadata, body = text.split("---\n", 2)
    about = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in metadata.splitlines())}
    assert about["pipeline_tag"] == "image-classification"
    assert "license" not in about  # of weights of one's own
    for words in (
        "| a\\|b \\*c\\* | 5 |",
        "| blue | 5 |",
        "Expect about",
        "Backbone: conv4; licence of its weights: not stated",
    ):
        assert words in body
    assert str(tmp_path) not in text
    done = fslstm("export", model)
    assert (done.code, "give --onnx, --card or both" in done.err) == (2, True)
    for option in ("--check", "--max-pixels"):
        done = fslstm("export", "m.fslstm", "--card", "m.md", option, 9)
        assert (done.code, "give --onnx too" in done.err) == (2, True)
    os.mkfifo(tmp_path / "pipe")
    done = fslstm("export", model, "--onnx", tmp_path / "pipe")
    assert (done.code, "pipe is no regular file, and is not replaced: name another file" in done.err) == (2, True)
    assert (tmp_path / "pipe").is_fifo()


def test_what_a_graph_cannot_do_is_refused(fslstm, succeed, tmp_path: Path) -> None:
    model, graph = fitted(succeed, tmp_path, "lssvm"), tmp_path / "model.onnx"
    succeed("export", model, "--onnx", graph)
    new = painted.unlabelled(tmp_path / "new", each=1)
    for options in (("--coverage", 0.8), ("--transductive",), ("--device", "cpu")):
        done = fslstm("predict", graph, new, *options)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "use the classifier that it was exported from" in done.err
    for content in (b"", b"no graph", graph.read_bytes()[:200]):
        (tmp_path / "other.onnx").write_bytes(content)
        done = fslstm("predict", tmp_path / "other.onnx", new)
        assert (done.code, "other.onnx is damaged" in done.err) == (1, True), done.err
    done = fslstm("predict", graph, new, "--accept", 0.99)
    assert (done.code, "needs 99 labelled pictures" in done.err) == (2, True)
    done = fslstm("predict", tmp_path / "missing.onnx", new)
    assert (done.code, "There is no graph at" in done.err) == (1, True)
