"""``--pictures FOLDER`` of eval, compare and tune."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import painted
import pytest
import torch
from PIL import Image

from fslstm_plugin.pictures import labelled
from fslstm_plugin.pictures.embedding import features_of
from fslstm_plugin.pretrained import open_backbone

SHORT = ("--ways", 3, "--shots", 1, "--queries", 3, "--episodes", 20)


def test_pictures_are_evaluated_as_their_features_are(fslstm, tmp_path: Path) -> None:
    small = painted.backbone(tmp_path)
    folder = painted.labelled(tmp_path / "in")
    found = labelled(folder)
    batches = features_of(found, open_backbone("conv4", Path(small[-1])))
    features = torch.cat([each.values for each in batches])
    np.savez(tmp_path / "some.npz", features=features.numpy(), labels=[each.label for each in found])
    shutil.copy(folder / "red" / "0.png", folder / "red" / "copy.png")
    (folder / "red" / "broken.png").write_bytes(b"")
    results = {}
    for option, place in (("--pictures", folder), ("--features", tmp_path / "some.npz")):
        extra = small if option == "--pictures" else []
        done = fslstm("compare", "nn", "lssvm", option, place, *extra, *SHORT, "--json", tmp_path / "r.json")
        assert done.code == 0, done.err
        results[option] = json.loads((tmp_path / "r.json").read_text())
        told = [words in done.err for words in ("broken.png", f"used once: {folder}/red/0.png, {folder}/red/copy.png")]
        assert told == [option == "--pictures"] * 2
    accuracies = [[row["accuracy"] for row in each["rows"]] for each in results.values()]
    assert accuracies[0] == pytest.approx(accuracies[1])
    row = results["--pictures"]["rows"][0]
    assert (row["dataset"], row["split"], row["backbone"]) == ("in", "pictures", "conv4")
    assert results["--pictures"]["notes"] == []


def test_a_backbone_that_saw_imagenet_is_told_in_every_table(fslstm, tmp_path: Path) -> None:
    folder = painted.labelled(tmp_path / "in", each=2)
    short = ("--pictures", folder, "--ways", 3, "--shots", 1, "--queries", 1, "--episodes", 2)
    files = ("--json", tmp_path / "r.json", "--latex", tmp_path / "r.tex")
    done = fslstm("eval", "nn", *short, *files)
    assert done.code == 0, done.err
    (note,) = json.loads((tmp_path / "r.json").read_text())["notes"]
    assert note.startswith("efficientnet-lite0 was trained on ImageNet, which has miniImageNet's test classes in it")
    assert note in (tmp_path / "r.tex").read_text()
    assert note in " ".join(done.out.split())
    done = fslstm("tune", "nn", *short)
    assert done.code == 0, done.err
    assert note in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "base", "--pictures", "in"], "--pictures takes the place of a run"),
        (["--features", "some.npz", "--pictures", "in"], "give one of them"),
        (["--backbone", "conv4"], "--backbone is for --pictures: give --pictures too"),
        (["--pooling", "avg"], "--pooling is for --pictures: give --pictures too"),
        (["--max-pixels", "9"], "--max-pixels is for --pictures: give --pictures too"),
    ],
)
def test_options_that_do_not_go_together_are_refused(fslstm, arguments, words) -> None:
    done = fslstm("eval", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert words in done.err


def test_a_bound_on_pixels_can_be_raised(fslstm, tmp_path: Path, monkeypatch) -> None:
    folder, small = painted.labelled(tmp_path / "in"), painted.backbone(tmp_path)
    Image.new("RGB", (300, 300)).save(folder / "red" / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 299 * 300)
    arguments = "eval", "nn", "--pictures", folder, *small, *SHORT
    assert "or, if you trust this file, raise the limit with --max-pixels." in fslstm(*arguments).err
    done = fslstm(*arguments, "--max-pixels", 300 * 300)
    assert (done.code, "--max-pixels" in done.err) == (0, False), done.err


@pytest.mark.parametrize("command", ["eval", "tune"])
def test_too_few_pictures_are_told_before_any_is_looked_at(fslstm, tmp_path: Path, command) -> None:
    folder = painted.labelled(tmp_path / "in", each=2)
    done = fslstm(command, "--pictures", folder, "--weights", tmp_path / "none", "--ways", 3, "--shots", 1)
    said = "--shots 1 and --queries 15 need 16 images per class, but class 'blue' has 2: lower one of them."
    assert (done.code, done.err) == (2, f"fslstm: {said}\n")


def test_too_few_pictures_without_copies_are_told(fslstm, tmp_path: Path) -> None:
    folder = painted.labelled(tmp_path / "in", each=1)
    for each in folder.iterdir():
        shutil.copy(each / "0.png", each / "1.png")
    done = fslstm("eval", "--pictures", folder, *painted.backbone(tmp_path), *SHORT[:4], "--queries", 1)
    assert (done.code, "--queries 1 need 2 images per class" in done.err.splitlines()[-1]) == (2, True), done.err
