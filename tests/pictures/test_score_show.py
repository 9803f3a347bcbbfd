"""``fslstm score`` and ``fslstm show``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import painted
import pytest
import torch

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.confidence.calibration import expected_calibration_error
from fslstm_plugin.pictures.predictions import NONE
from fslstm_plugin.pictures.score import score


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """Other pictures: one of the red ones is called blue, and there is a class that the classifier does not have."""
    folder = tmp_path / "known"
    for colour in painted.COLOURS:
        (folder / colour).mkdir(parents=True)
        for number in range(4):
            painted.picture(colour, 100 + number).save(folder / colour / f"{colour}-{number}.png")
    shutil.move(folder / "red" / "red-0.png", folder / "blue")
    (folder / "lime").mkdir()
    painted.picture("green", 200).save(folder / "lime" / "lime.png")
    return folder


def test_a_score_is_counted_from_the_predictions(succeed, tmp_path: Path, model, known) -> None:
    shutil.copy(tmp_path / "labelled" / "red" / "0.png", known / "red" / "again.png")
    done = succeed("score", model, known, "--coverage", 0.8, "--accept", 1, "--json", tmp_path / "score.json")
    assert "1 picture left out: in the classifier itself, or given twice." in done.err
    found = json.loads((tmp_path / "score.json").read_text())
    files = sorted(file for file in known.rglob("*.png") if file.name not in ("again.png", "lime.png"))
    truth = [file.parent.name for file in files]
    classifier = FewShotClassifier.load(model)
    predicted = classifier.predict(files).tolist()
    right = sum(one == other for one, other in zip(predicted, truth, strict=True))
    assert (found["pictures"], found["accuracy"]) == (12, right / 12)
    assert found["low"] < found["accuracy"] < found["high"]
    given = {row["label"]: row["predictions"] for row in found["rows"]}
    assert given["blue"]["red"] == 1
    assert sum(sum(each.values()) for each in given.values()) == 12
    assert found["unknown"] == {"lime": 1}
    sets = classifier.predict_set(files, 0.8)
    held = sum(label in each for label, each in zip(truth, sets, strict=True))
    assert found["coverage"]["share"] == held / 12
    assert f"the likeliest class is right for {100 * right / 12:.1f} %" in done.out
    places = [classifier.classes_.tolist().index(each) for each in truth]
    error = expected_calibration_error(torch.from_numpy(classifier.predict_proba(files)), torch.tensor(places))
    assert found["calibration_error"] == pytest.approx(error, abs=1e-6)


def test_probabilities_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"])
    asked = []
    whole = FewShotClassifier.predict_proba
    monkeypatch.setattr(FewShotClassifier, "predict_proba", lambda self, X: asked.append(len(X)) or whole(self, X))
    score(classifier, torch.eye(2), ["wren", "tit"])
    assert asked == [2]


def test_a_picture_that_a_list_has_twice_is_counted_once(succeed, tmp_path: Path, model, known) -> None:
    rows = [f"{file},{file.parent.name}" for file in sorted(known.glob("green/*.png"))]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, rows[0]]))
    done = succeed("score", model, tmp_path / "list.csv", "--json", tmp_path / "score.json")
    assert "1 picture left out: in the classifier itself, or given twice." in done.err
    assert json.loads((tmp_path / "score.json").read_text())["pictures"] == 4


def test_none_of_these_is_counted_and_needs_no_class(succeed, tmp_path: Path, model, known) -> None:
    (known / NONE).mkdir()
    painted.picture("red", 300).save(known / NONE / "1.png")
    done = succeed("score", model, known, "--json", tmp_path / "score.json")
    assert f'1 picture of "{NONE}" left out' in done.err
    assert json.loads((tmp_path / "score.json").read_text())["pictures"] == 12


def test_what_cannot_be_scored_is_one_sentence(fslstm, tmp_path: Path, model) -> None:
    other = tmp_path / "other"
    (other / "lime").mkdir(parents=True)
    painted.picture("green", 1).save(other / "lime" / "1.png")
    mixed = tmp_path / "mixed"  # the classifier's own pictures beside those of a class that it lacks
    shutil.copytree(tmp_path / "labelled", mixed)
    shutil.copytree(other / "lime", mixed / "lime")
    already = f"of a class of {model} are in it already"
    for folder, words in ((other, "None of the pictures in"), (tmp_path / "labelled", already), (mixed, already)):
        done = fslstm("score", model, folder)
        assert (done.code, done.err.strip().count("fslstm: ")) == (1, 1)
        assert words in done.err


def test_a_model_says_what_it_is_without_pictures_and_weights(succeed, tmp_path: Path, model) -> None:
    shutil.rmtree(tmp_path / "labelled")
    (tmp_path / "conv4.safetensors").unlink()
    done = succeed("show", model, "--json", tmp_path / "show.json")
    for words in ("blue", "15 pictures in", "Backbone: conv4 (84 x 84 pixels)", "Method: lssvm(normalize).", "Expect"):
        assert words in done.out
    found = json.loads((tmp_path / "show.json").read_text())
    assert found["rows"] == [{"class": name, "pictures": 5} for name in ("blue", "green", "red")]
    assert found["made"]["version"]
    assert found["backbone"]["name"] == "conv4"


def test_a_classifier_of_features_is_shown_too(fslstm, succeed, tmp_path: Path) -> None:
    FewShotClassifier("nn").fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], list("aabb")).save(tmp_path / "m")
    done = succeed("show", tmp_path / "m")
    assert "Backbone: none, since it was fitted to features." in done.out
    done = fslstm("show", tmp_path / "conv4")
    assert (done.code, "There is no model file" in done.err) == (1, True)


def test_names_longer_than_their_column_are_whole(succeed, monkeypatch, tmp_path: Path, small) -> None:
    labelled, new = painted.labelled(tmp_path / "labelled"), painted.labelled(tmp_path / "new", each=7)
    beginning = "great_spotted_woodpecker_or_"
    for colour in painted.COLOURS:
        for folder in (labelled, new):
            (folder / colour).rename(folder / (beginning + colour))
    model = tmp_path / "birds.fslstm"
    succeed("fit", labelled, "-o", model, "--method", "nn", *small)
    monkeypatch.setenv("COLUMNS", "64")
    for command in (["score", model, new], ["show", model], ["predict", model, new], ["suggest", model, new]):
        shown = succeed(*command).out
        assert "┃" in shown
        assert "…" not in shown, command
