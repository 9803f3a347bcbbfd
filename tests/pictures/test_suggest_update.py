"""``fslstm suggest`` and ``fslstm update``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import unicodedata
from pathlib import Path

import numpy as np
import painted
import pytest
import torch

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.classifier.suggestions import suggest_first
from fslstm_plugin.errors import UsageError
from fslstm_plugin.storage.files import claimed


def test_suggestions_are_the_classifiers(succeed, tmp_path: Path, model, new) -> None:
    (new / "broken.png").write_bytes(b"")
    done = succeed("suggest", model, new, "--count", 3, "--json", tmp_path / "next.json")
    assert "broken.png" in done.err
    files = sorted(file for file in new.iterdir() if file.name != "broken.png")
    expected = FewShotClassifier.load(model).suggest(files, 3)
    rows = json.loads((tmp_path / "next.json").read_text())["rows"]
    assert [row["path"] for row in rows] == [f"new/{files[each.place].name}" for each in expected]
    assert all(files[each.place].name in done.out and each.reason in done.out for each in expected)


def test_labelled_pictures_are_not_suggested(succeed, tmp_path: Path, model) -> None:
    done = succeed("suggest", model, tmp_path / "labelled", "--json", tmp_path / "next.json")
    assert "are labelled" in done.out
    assert json.loads((tmp_path / "next.json").read_text())["rows"] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_file_that_cannot_be_written_stops_no_other(fslstm, tmp_path: Path, model, new, small) -> None:
    tasks, page = tmp_path / "tasks.json", tmp_path / "fit.html"
    for command in (
        ("suggest", model, new, "--label-studio", tasks),
        ("fit", tmp_path / "labelled", "-o", model, *small, "--html", page),
    ):
        done = fslstm(*command, "--json", "/dev/full")
        assert (done.code, done.err) == (1, "fslstm: Cannot write /dev/full: No space left on device.\n")
    assert tasks.is_file()
    assert page.is_file()


def test_without_a_model_the_first_pictures_to_label_are_suggested(succeed, tmp_path: Path, small, new) -> None:
    done = succeed("suggest", new, "--count", 3, "--json", tmp_path / "first.json",
                  "--label-studio", tmp_path / "tasks.json", *small)  # fmt: skip
    rows = json.loads((tmp_path / "first.json").read_text())["rows"]
    assert len({Path(row["path"]).name.split("-")[0] for row in rows}) == 3  # one of each colour
    assert all(row["reason"].startswith("like ") and row["reason"] in done.out for row in rows)
    assert len(json.loads((tmp_path / "tasks.json").read_text())) == 3


def test_the_seed_draws_which_of_many_pictures_are_considered(fslstm, monkeypatch, tmp_path: Path, small) -> None:
    monkeypatch.setattr("fslstm_plugin.classifier.suggestions.MOST", 3)
    new = painted.unlabelled(tmp_path / "new")
    tables = [fslstm("suggest", new, "--count", 3, "--seed", seed, *small).out for seed in (0, 0, 1)]
    assert tables[0] == tables[1] != tables[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{model}",), "Name the pictures after"),
        (("{model}", "{new}", "--views", "flip"), "MODEL and --views cannot be used together"),
        (("{model}", "{new}", "--runs", "."), "MODEL and --runs cannot be used together"),
        (("{model}", "{new}", "--seed", "1"), "MODEL and --seed cannot be used together"),
    ],
)
def test_a_model_is_not_taken_for_pictures(arguments, words, fslstm, tmp_path: Path, model, new) -> None:
    done = fslstm("suggest", *(each.format(model=model, new=new) for each in arguments))
    assert (done.code, words in done.err) == (2, True), done.err


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_first_suggestions_are_of_every_group(groups: int) -> None:
    noise = 0.1 * torch.randn(groups, 20, 8, generator=torch.Generator().manual_seed(0))
    points = (noise + 3 * torch.eye(8)[:groups, None]).flatten(0, 1)
    found = suggest_first(points, groups)
    assert sorted(each.place // 20 for each in found) == list(range(groups))
    assert all(each.reason == "like 19 others" for each in found)
    assert suggest_first(points[:0], 5) == []
    assert [each.reason for each in suggest_first(points[:1], 5)] == ["like no other"]
    with pytest.raises(UsageError, match="features"):
        suggest_first(points[0], 5)


def test_an_update_is_a_fit_anew(succeed, tmp_path: Path, model, small) -> None:
    more = tmp_path / "more"
    for colour, numbers in (("red", (50, 51)), ("lime", (52, 53, 54))):
        (more / colour).mkdir(parents=True)
        for number in numbers:
            painted.picture("green" if colour == "lime" else colour, number).save(more / colour / f"{number}.png")
    before = model.read_bytes()
    done = succeed("update", model, "--add", more, "--forget", "green", "-o", tmp_path / "updated")
    assert model.read_bytes() == before
    assert "15 pictures, 3 classes, saved in" in done.out
    whole = tmp_path / "whole"
    for folder in (tmp_path / "labelled", more):
        for file in folder.rglob("*.png"):
            target = whole / file.parent.name / f"{folder.name}-{file.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.parent.name != "green":
                os.link(file, target)
    (whole / "green").rmdir()
    succeed("fit", whole, "-o", tmp_path / "anew", "--method", "lssvm(normalize)", *small)
    new = sorted(painted.unlabelled(tmp_path / "new").iterdir())
    updated, anew = (FewShotClassifier.load(tmp_path / name) for name in ("updated", "anew"))
    assert updated.classes_.tolist() == anew.classes_.tolist() == ["blue", "lime", "red"]
    X = anew.open_backbone()(
        torch.stack([anew.open_backbone().preprocess(painted.Image.open(file)) for file in new])
    ).numpy()
    np.testing.assert_allclose(updated.predict_proba(X), anew.predict_proba(X), atol=1e-6)


def test_the_file_is_replaced_and_pictures_are_added_once(succeed, tmp_path: Path, model) -> None:
    done = succeed("update", model, "--add", tmp_path / "labelled", "--forget", "blue")
    assert "10 pictures of" in done.err
    assert "used once" not in done.err
    assert len(FewShotClassifier.load(model).support_) == 15


def test_a_label_is_corrected_while_a_class_goes(succeed, tmp_path: Path, model) -> None:
    red = tmp_path / "labelled" / "red"
    (tmp_path / "wrong.csv").write_text(f"path,label\n{red}/1.png,green\n{red}/3.png,green\n")
    done = succeed("update", model, "--forget", "blue", "--add", tmp_path / "wrong.csv")
    assert "The new label counts for 2 pictures" in done.err
    classifier = FewShotClassifier.load(model)
    labels = dict(zip(classifier.pictures_, classifier.classes_[classifier.support_labels_].tolist(), strict=True))
    assert {Path(name).name for name, label in labels.items() if "/red/" in name and label == "green"} == {
        "1.png",
        "3.png",
    }
    assert sorted(labels.values()) == ["green"] * 7 + ["red"] * 3


def test_a_class_of_two_is_replaced_at_once(fslstm, succeed, tmp_path: Path, model) -> None:
    new, labelled = painted.unlabelled(tmp_path / "new"), tmp_path / "labelled"
    lime = "".join(f"{file},lime\n" for file in sorted(new.iterdir())[:3])
    (tmp_path / "lime.csv").write_text(f"path,label\n{lime}")
    succeed("update", model, "--forget", "blue")
    done = fslstm("update", model, "--forget", "green", "--add", tmp_path / "lime.csv", "-o", tmp_path / "1.fslstm")
    assert "8 pictures, 2 classes" in done.out, done.err
    again = "".join(f"{file},green\n" for file in (labelled / "green").iterdir())
    (tmp_path / "again.csv").write_text(f"path,label\n{again}{labelled}/red/1.png,none of these\n")
    gone = [argument for file in (labelled / "green").iterdir() for argument in ("--remove", file)]
    done = fslstm("update", model, *gone, "--add", tmp_path / "again.csv", "-o", tmp_path / "2.fslstm")
    assert "9 pictures, 2 classes" in done.out, done.err
    none = again.replace(",green", ",none of these")
    (tmp_path / "none.csv").write_text(f"path,label\n{none}{lime}")
    done = fslstm("update", model, "--add", tmp_path / "none.csv", "-o", tmp_path / "3.fslstm")
    assert "8 pictures, 2 classes" in done.out, done.err
    for number, classes in ((1, ["lime", "red"]), (2, ["green", "red"]), (3, ["lime", "red"])):
        assert FewShotClassifier.load(tmp_path / f"{number}.fslstm").classes_.tolist() == classes
    before = model.read_bytes()
    red = f"{lime.replace(',lime', ',red')}{labelled}/red/1.png,none of these\n"
    (tmp_path / "red.csv").write_text(f"path,label\n{red}")
    done = fslstm("update", model, "--forget", "green", "--add", tmp_path / "red.csv")
    assert (done.code, "at least two classes, but got only one class, red" in done.err) == (2, True)
    assert "Taken out" not in done.err
    assert model.read_bytes() == before


def test_a_copy_of_another_name_and_format_is_told(succeed, tmp_path: Path, model) -> None:
    copy = tmp_path / "more" / "red" / "copy.bmp"
    copy.parent.mkdir(parents=True)
    painted.picture("red", 0).save(copy)
    painted.picture("red", 60).save(copy.with_name("new.png"))
    done = succeed("update", model, "--add", tmp_path / "more")
    assert f"used once: {tmp_path}/labelled/red/0.png, {copy}." in done.err
    assert "16 pictures, 3 classes" in done.out


def test_what_cannot_be_updated_is_refused(fslstm, tmp_path: Path, model) -> None:
    before = model.read_bytes()
    for arguments, words, code in (
        ((), "There is nothing to update", 2),
        (("--forget", "blu"), "Did you mean 'blue'?", 2),
        (("--forget", "blue", "--forget", "red"), "at least two classes", 2),
        (("--remove", "9.png"), "No labelled picture has the name 9.png", 2),
        (("--remove", "1.png"), "1.png is the name of 3 labelled pictures", 2),
        (("--add", tmp_path / "nowhere"), "There is no folder of pictures, CSV or JSON file", 1),
    ):
        done = fslstm("update", model, *arguments)
        assert (done.code, done.err.count("\n"), words in done.err) == (code, 1, True), done.err
    (tmp_path / "none.csv").write_text(f"path,label\n{tmp_path}/else.png,none of these\n")
    done = fslstm("update", model, "--add", tmp_path / "none.csv")
    assert (done.code, "which needs no examples" in done.err) == (0, True)
    assert model.read_bytes() == before
    picture = f"{tmp_path}/labelled/red/1.png"
    (tmp_path / "wrong.csv").write_text(f"path,label\n{picture},blue\n{picture},red\n")
    done = fslstm("update", model, "--add", tmp_path / "wrong.csv")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "The same picture is in two classes" in done.err
    assert "1.png as 'red'" in done.err
    assert "1.png as 'blue'" in done.err
    every = "".join(f"{file},red\n" for file in (tmp_path / "labelled").rglob("*.png"))
    (tmp_path / "one.csv").write_text(f"path,label\n{every}")
    done = fslstm("update", model, "--add", tmp_path / "one.csv")
    assert (done.code, "at least two classes, but got only one class, red" in done.err) == (2, True)
    assert model.read_bytes() == before


def test_a_classifier_that_cannot_be_replaced_is_told_before_any_picture_is_looked_at(
    fslstm, tmp_path: Path, model, monkeypatch
) -> None:
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda place, mode: access(place, mode) and (place, mode) != (model.parent, os.W_OK)
    )
    done = fslstm("update", model, "--add", tmp_path / "none")
    said = f"fslstm: The folder {model.parent} cannot be written to: name another place.\n"
    assert (done.code, done.out, done.err) == (2, "", said)


def test_a_picture_that_is_none_of_these_now_is_taken_out(succeed, tmp_path: Path, model) -> None:
    (tmp_path / "none.csv").write_text(f"path,label\n{tmp_path}/labelled/red/1.png,none of these\n")
    done = succeed("update", model, "--add", tmp_path / "none.csv")
    assert 'Taken out of the classifier, since "none of these": 1.png.' in done.err
    left = FewShotClassifier.load(model).pictures_
    assert len(left) == 14
    assert not any(each.endswith("red/1.png") for each in left)


def test_a_classifier_that_learns_its_own_guesses_is_told_so(fslstm, succeed, tmp_path: Path, model) -> None:
    painted.unlabelled(tmp_path / "new")
    table = tmp_path / "labels.csv"
    succeed("predict", model, tmp_path / "new", "--csv", table, "--accept", 1)
    for command in (("update", model, "--add", table, "-o", tmp_path / "guessed.fslstm"), ("score", model, table)):
        assert "labels that the classifier predicted itself" in fslstm(*command).err
    first = table.read_text().splitlines()[1]
    table.write_text(table.read_text().replace(first, first.replace(",blue,", ",red,", 1)))
    done = fslstm("update", model, "--add", table, "-o", tmp_path / "corrected.fslstm")
    assert "predicted itself" not in done.err


def test_a_picture_is_removed_by_any_part_of_its_path(fslstm, succeed, tmp_path: Path, model) -> None:
    done = succeed("update", model, "--remove", "red/1.png", "--remove", tmp_path / "labelled" / "blue" / "2.png")
    assert "13 pictures, 3 classes" in done.out
    left = {
        Path(each).relative_to(tmp_path / "labelled").as_posix() for each in FewShotClassifier.load(model).pictures_
    }
    assert not left & {"red/1.png", "blue/2.png"}
    for number in (0, 2, 3, 4):
        done = fslstm("update", model, "--remove", f"red/{number}.png")
    assert "9 pictures, 2 classes" in done.out


def test_an_edited_table_of_predictions_is_a_table_of_corrections(succeed, tmp_path: Path, model, new) -> None:
    succeed("predict", model, new, "--csv", tmp_path / "out.csv", "--accept", 1)
    header, *lines = (tmp_path / "out.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    rows[0][1], rows[1][1] = "red", "none of these"
    edited = "\n".join(";".join(row) for row in [header.split(","), *rows[:3]])
    (tmp_path / "edited.csv").write_text("\ufeff" + edited, encoding="utf-8")
    done = succeed("update", model, "--add", tmp_path / "edited.csv")
    assert '1 picture of "none of these" left out' in done.err
    assert "17 pictures, 3 classes" in done.out
    classifier = FewShotClassifier.load(model)
    labels = dict(zip(classifier.pictures_, classifier.classes_[classifier.support_labels_], strict=True))
    assert labels[str(new / Path(rows[0][0]).name)] == "red"


def test_the_newer_label_of_a_picture_counts(fslstm, succeed, tmp_path: Path, model, small) -> None:
    corrected = tmp_path / "corrected" / "blue"
    corrected.mkdir(parents=True)
    for name in ("1", "2"):
        (tmp_path / "labelled" / "red" / f"{name}.png").rename(corrected / f"{name}.png")
    painted.picture("blue", 60).save(corrected / "new.png")
    done = succeed("update", model, "--add", tmp_path / "corrected")
    assert done.err == (
        f"The new label counts for 2 pictures: {corrected}/1.png (red, now blue), {corrected}/2.png (red, now blue).\n"
    )
    assert "16 pictures, 3 classes" in done.out
    found = FewShotClassifier.load(model)
    names = [Path(name) for name in found.pictures_]
    assert {names[place].name for place in np.flatnonzero(found.support_labels_ == 0)} == {
        "0.png", "1.png", "2.png", "3.png", "4.png", "new.png"
    }  # fmt: skip
    assert sum(name.parent == corrected for name in names) == 3
    assert all(name.is_file() for name in names)
    again = fslstm("update", model, "--add", tmp_path / "corrected")
    assert (again.code, again.err.count("\n"), "3 pictures of" in again.err) == (0, 1, True)


def test_copies_of_a_correction_are_told_once(succeed, tmp_path: Path, model) -> None:
    blue = tmp_path / "corrected" / "blue"
    blue.mkdir(parents=True)
    for name in ("1.png", "copy.png"):
        shutil.copy(tmp_path / "labelled" / "red" / "1.png", blue / name)
    done = succeed("update", model, "--add", tmp_path / "corrected")
    assert done.err == (
        f"Already in the classifier, or given twice: 1 picture of {tmp_path}/corrected.\n"
        f"Identical to the backbone, used once: {blue}/1.png, {blue}/copy.png.\n"
        f"The new label counts for 1 picture: {blue}/1.png (red, now blue).\n"
    )


def test_corrections_that_take_a_class_apart_by_case_are_pointed_out(fslstm, tmp_path: Path, model) -> None:
    red = sorted((tmp_path / "labelled" / "red").iterdir())
    for number, said in ((1, True), (len(red), False)):  # a part of it, and all: then it has another name
        corrected = tmp_path / f"corrected{number}" / "Red"
        corrected.mkdir(parents=True)
        for picture in red[:number]:
            shutil.copy(picture, corrected)
        done = fslstm("update", model, "--add", corrected.parent, "-o", tmp_path / "other.fslstm")
        assert "The new label counts" in done.err
        assert ("Two classes differ only by case: Red and red." in done.err) == said


def test_a_model_and_its_pictures_are_moved_together(succeed, tmp_path: Path, model) -> None:
    assert str(tmp_path).encode() not in model.read_bytes()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("labelled", "conv4.safetensors", model.name):
        (tmp_path / name).rename(moved / name)
    painted.unlabelled(tmp_path / "new")
    succeed("predict", moved / model.name, tmp_path / "new", "--json", moved / "out.json")
    nearest = {each["nearest"] for each in json.loads((moved / "out.json").read_text())["rows"]}
    assert all((moved / each).is_file() and not Path(each).is_absolute() for each in nearest)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_can_be_stopped(spawn, succeed, tmp_path: Path, model, number) -> None:
    before = model.read_bytes()
    with claimed(model, waiting=lambda: pytest.fail("nothing else has it")):
        waiting = spawn("update", model, "--forget", "red")
        assert "Waiting" in waiting.stderr.readline()
        waiting.send_signal(number)
        _, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, "nothing was left half-written" in err, "Traceback" in err) == (
        128 + number,
        True,
        False,
    )
    assert model.read_bytes() == before
    succeed("update", model, "--forget", "red")


def test_three_updates_at_once_lose_nothing(spawn, tmp_path: Path, model) -> None:
    folders = []
    for number in range(3):
        folders.append(tmp_path / f"more-{number}")
        (folders[-1] / "red").mkdir(parents=True)
        painted.picture("red", 70 + number).save(folders[-1] / "red" / "new.png")
    with claimed(model, waiting=lambda: pytest.fail("nothing else has it")):
        started = [spawn("update", model, "--add", folder) for folder in folders]
        assert all("Waiting for another command that writes" in each.stderr.readline() for each in started)
    ended = [(each.wait(), each.communicate()) for each in started]
    assert [code for code, _ in ended] == [0, 0, 0], ended
    added = {Path(name).parent.parent for name in FewShotClassifier.load(model).pictures_} - {tmp_path / "labelled"}
    assert added == set(folders)
    assert not list(tmp_path.glob(".*"))


def test_a_class_in_another_form_of_unicode_is_the_same_class(fslstm, succeed, tmp_path: Path, small) -> None:
    def named(folder: Path, *names: str) -> Path:
        for number, (colour, name) in enumerate(zip(painted.COLOURS, names, strict=False)):
            (folder / name).mkdir(parents=True)
            painted.picture(colour, number + len(folder.name)).save(folder / name / "1.png")
        return folder

    model, decomposed = tmp_path / "m.fslstm", unicodedata.normalize("NFD", "Käfer")
    succeed("fit", named(tmp_path / "in", "Käfer", "Fox", "owl"), "-o", model, *small)
    done = succeed("update", model, "--add", named(tmp_path / "more", decomposed, "fox"))
    assert "5 pictures, 4 classes" in done.out
    assert "Two classes differ only by case: Fox and fox." in done.err
    done = fslstm("update", model, "--add", named(tmp_path / "others", "Wren", "wren"), "-o", tmp_path / "other.fslstm")
    assert done.err.count("Wren and wren") == 1
    succeed("update", model, "--forget", decomposed)
    assert FewShotClassifier.load(model).classes_.tolist() == ["Fox", "fox", "owl"]


def test_labels_of_a_caller_are_kept_as_they_are() -> None:
    decomposed = unicodedata.normalize("NFD", "Käfer")
    X = np.eye(4)
    classifier = FewShotClassifier("nn").fit(X[:2], [decomposed, "owl"])
    assert classifier.predict(X[:1]).tolist() == [decomposed]
    with pytest.raises(UsageError, match="'Käfer' is given in two Unicode forms"):
        classifier.partial_fit(X[2:3], ["Käfer"])
    with pytest.raises(UsageError, match="'Käfer' is given in two Unicode forms"):
        FewShotClassifier("nn").fit(X[:3], [decomposed, "owl", "Käfer"])
