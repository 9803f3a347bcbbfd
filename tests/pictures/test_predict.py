"""``fslstm predict``."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import painted
import pytest
import torch
from fslstm_cli.outputs import write_json
from PIL import Image

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.classifier.classifier import Classifier
from fslstm_plugin.classifier.selection import CANDIDATES
from fslstm_plugin.confidence.conformal import PER_CLASS
from fslstm_plugin.confidence.exchangeability import LEVEL
from fslstm_plugin.errors import RunError, StorageError
from fslstm_plugin.pictures import Picture, likeness
from fslstm_plugin.pictures.likeness import Likeness
from fslstm_plugin.pictures.predictions import NONE, Asked, Prediction, PredictionTable
from fslstm_plugin.pictures.sorting import sort_into
from fslstm_plugin.storage.files import claimed
from fslstm_plugin.storage.tables import path_of
from fslstm_plugin.storage.weights import load_described, load_tensors, save_tensors


def data_of(page: Path) -> dict[str, Any]:
    """What a gallery shows, as its program reads it; no name in it makes an element of its own."""
    elements: list[tuple[str, dict[str, str | None], list[str]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: elements.append((tag, dict(attributes), []))
    parser.handle_data = lambda text: elements[-1][2].append(text) if elements else None
    parser.feed(page.read_text(encoding="utf-8"))
    scripts = [(attributes, "".join(text)) for tag, attributes, text in elements if tag == "script"]
    assert [attributes for attributes, _ in scripts] == [{"type": "application/json", "id": "data"}, {}]
    assert not any(name.startswith("on") for _, attributes, _ in elements for name in attributes)
    return json.loads(scripts[0][1])


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text, strict=True))


def test_labels_sets_table_and_sorted_copies(succeed, tmp_path: Path, model, new) -> None:
    before = {file: file.read_bytes() for file in new.iterdir()}
    done = succeed(
        "predict", model, new, "--csv", tmp_path / "out.csv", "--json", tmp_path / "out.json",
        "--html", tmp_path / "out.html", "--sort-into", tmp_path / "sorted", "--coverage", 0.8,
    )  # fmt: skip
    assert "12 pictures." in done.out
    assert "The prediction sets contain the true label for 80 % of the pictures of each class." in done.out
    rows = rows_of(tmp_path / "out.csv")
    assert [Path(row["path"]).name.split("-")[0] for row in rows] == [row["likeliest"] for row in rows]
    classifier = FewShotClassifier.load(model)
    likely = classifier.predict_proba([tmp_path / row["path"] for row in rows]).max(1)
    assert [float(row["probability"]) for row in rows] == pytest.approx(likely, abs=1e-3)
    content = json.loads((tmp_path / "out.json").read_text())
    assert [each["path"] for each in content["rows"]] == [row["path"] for row in rows]
    assert content["coverage"] == {"share": 0.8, "kind": "per-class"}
    assert all(Path(each["nearest"]).parent.name == each["likeliest"] for each in content["rows"])
    assert {each["nearest"] for each in content["rows"]} == {row["nearest"] for row in rows}
    copies = {file for file in (tmp_path / "sorted").rglob("*") if file.is_file()}
    assert sorted(file.name for file in copies) == sorted(file.name for file in new.iterdir())
    assert {file.name: file.parent.name for file in copies} == {Path(row["path"]).name: row["label"] for row in rows}
    assert {file: file.read_bytes() for file in new.iterdir()} == before


def darkened(pictures: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in pictures.iterdir():
        with Image.open(file) as picture:
            picture.convert("RGB").point(lambda value: value // 4).save(folder / f"{file.stem}.png")
    return folder


def test_a_guarantee_is_tested_and_withdrawn_where_the_pictures_differ(
    fslstm, succeed, tmp_path: Path, model, new
) -> None:
    alike = fslstm("predict", model, new, "--coverage", 0.8)
    assert "a permutation test of 12 pictures finds no difference" in alike.out
    darker = darkened(new, tmp_path / "darker")
    command = ("predict", model, darker, "--wrong-at-most", 0.2, "--guaranteed", "--accept", 1)
    done = succeed(*command, "--json", tmp_path / "out.json")
    assert "The prediction sets are not guaranteed to contain the true label for 80 %" in done.out
    assert "It is not guaranteed that at most 20 % of all pictures get a wrong label that is sure." in done.out
    tested = json.loads((tmp_path / "out.json").read_text())["likeness"]
    assert (tested["pictures"], tested["withdrawn"]) == (12, True)
    assert tested["p_value"] <= LEVEL
    assert len(tested["different"]) == 3
    for name in tested["different"]:
        assert (tmp_path / name).is_file()
        assert Path(name).name in done.out


def test_what_is_expected_is_tested_and_withdrawn_too(fslstm, succeed, tmp_path: Path, model, new) -> None:
    promise = "At most 20 % of all pictures are expected to get a wrong label that is sure"
    alike = fslstm("predict", model, new, "--wrong-at-most", 0.2)
    assert promise in alike.out
    assert "a permutation test of 12 pictures finds no difference" in alike.out
    done = succeed("predict", model, darkened(new, tmp_path / "darker"), "--wrong-at-most", 0.2, "--accept", 1)
    assert promise not in done.out
    assert "It is not expected that at most 20 % of all pictures get a wrong label that is sure." in done.out
    assert "The pictures differ from the labelled ones (p = " in done.out
    assert "permutation test" not in fslstm("predict", model, new, "--above", 0.9).out
    assert (
        "Sure: 12 of 12 pictures. A label is sure" in fslstm("predict", model, new, "--above", 0.01, "--accept", 1).out
    )
    none = fslstm("predict", model, tmp_path / "darker", "--wrong-at-most", 0.2).out
    assert "Sure: 0 of 12 pictures; look at the other 12.\n" in none
    assert "not expected" not in none


def test_pictures_of_one_class_are_like_the_labelled_ones_of_it(fslstm, tmp_path: Path, model) -> None:
    for place in range(12):
        (tmp_path / "reds").mkdir(exist_ok=True)
        painted.picture("red", 20 + place).save(tmp_path / "reds" / f"{place}.png")
    for asked in (("--wrong-at-most", 0.2), ("--coverage", 0.8)):
        done = fslstm("predict", model, tmp_path / "reds", *asked)
        assert "a permutation test of 12 pictures finds no difference" in done.out, done.err


def test_a_guarantee_that_is_not_tested_says_so(fslstm, succeed, tmp_path: Path, new) -> None:
    labelled = painted.labelled(tmp_path / "labelled")
    for file in labelled.glob("*/*"):
        if file.stem not in "01":
            file.unlink()
    small = tmp_path / "small.fslstm"
    succeed("fit", labelled, "-o", small, *painted.backbone(tmp_path))
    done = fslstm("predict", small, new, "--coverage", 0.6)
    assert "of the pictures of each class, if they are like the labelled ones, which was not tested." in done.out
    assert "permutation test" not in done.out


def test_a_continued_table_is_tested_with_all_its_pictures(succeed, tmp_path: Path, model, new) -> None:
    darker = darkened(new, tmp_path / "darker")
    table, results = tmp_path / "out.csv", []
    for number in range(3):
        if number == 2:
            (darker / "one.png").write_bytes(next(new.iterdir()).read_bytes())
        command = ("predict", model, darker, "--coverage", 0.8, "--csv", table, "--json", tmp_path / "out.json")
        done = succeed(*command)
        assert "not guaranteed" in done.out
        results.append(json.loads((tmp_path / "out.json").read_text())["likeness"])
    assert results[0] == results[1]
    assert [each["pictures"] for each in results] == [12, 12, 13]


def test_of_many_pictures_a_random_sample_is_tested(monkeypatch) -> None:
    monkeypatch.setattr(likeness, "_MOST", 5)
    classifier = FewShotClassifier("nn").fit(np.random.default_rng(0).normal(size=(8, 3)), ["owl"] * 4 + ["wren"] * 4)
    collected = Likeness(classifier, PER_CLASS)
    assert collected.test() is None
    pictures = [Picture(Path(f"/{place}.png")) for place in range(40)]
    collected.choose(pictures)
    for part in range(4):
        paths = [str(each.path) for each in pictures[10 * part : 10 * part + 10]]
        collected.add(paths, torch.ones(10, 3))
    tested = collected.test()
    assert tested is not None
    assert tested.pictures == 5
    assert set(tested.different) <= {str(each.path) for each in pictures}


def drawn(random, counts: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """Points of so many of each of as many classes, some of which overlap."""
    labels = np.repeat(np.arange(len(counts)), counts)
    means = 2 * np.random.default_rng(0).normal(size=(len(counts), 8))
    return means[labels] + random.normal(size=(len(labels), 8)), labels.tolist()


def withdrawn(method: str, labelled: Sequence[int], new: Sequence[int], seed: int, in_one: bool = False) -> bool | None:
    """Whether the test withdraws; with the pictures of a class in one group or not."""
    random = np.random.default_rng(seed)
    points, labels = drawn(random, labelled)
    classifier = FewShotClassifier(method).fit(
        points, labels, groups=[f"{each}" for each in labels] if in_one else None
    )
    collected = Likeness(classifier, PER_CLASS)
    points, _ = drawn(random, new)
    pictures = [Picture(Path(f"/{place}.png")) for place in range(len(points))]
    collected.choose(pictures)
    collected.add([each.name for each in pictures], torch.from_numpy(points))
    tested = collected.test()
    return None if tested is None else tested.withdrawn


@pytest.mark.parametrize("method", ["lssvm(ridge=1,normalize)", "rr(normalize)+psm", "tim"])
def test_in_each_class_another_mix_of_classes_is_no_difference(method: str) -> None:
    """Also where a method leaves no picture out, or predicts all together."""
    found = [withdrawn(method, [10] * 4, [60, 10, 5, 5], seed) for seed in range(40)]
    assert sum(map(bool, found)) <= 3
    assert None not in found


def test_classes_of_one_or_two_pictures_are_not_tested() -> None:
    for labelled in ([1, 1, 2, 2], [1, 1, 1, 1]):
        assert withdrawn("lssvm", labelled, [10] * 4, 0) is None
    assert withdrawn("lssvm", [5, 5, 5, 5], [10] * 4, 0, in_one=True) is None
    assert withdrawn("tim", [5, 5, 5, 5], [10] * 4, 0, in_one=True) is None
    assert sum(bool(withdrawn("lssvm(ridge=1,normalize)", [1, 2, 12, 12], [10] * 4, seed)) for seed in range(40)) <= 3


def test_sets_are_the_classifiers(succeed, tmp_path: Path, model, new) -> None:
    succeed("predict", model, new, "--csv", tmp_path / "out.csv", "--coverage", 0.6)
    rows = rows_of(tmp_path / "out.csv")
    sets = FewShotClassifier.load(model).predict_set([tmp_path / row["path"] for row in rows], coverage=0.6)
    assert [row["set"] for row in rows] == [";".join(each) for each in sets]
    assert all(row["likeliest"] in row["set"].split(";") for row in rows)


def test_sets_are_shown_only_where_a_coverage_is_asked_for(fslstm, succeed, tmp_path: Path, model, new) -> None:
    done = succeed(
        "predict", model, new, "--csv", tmp_path / "out.csv", "--json", tmp_path / "out.json", "--html",
        tmp_path / "out.html",
    )  # fmt: skip
    assert ("prediction set" in done.out, "May be" in done.out) == (False, False)
    assert [row["set"] for row in rows_of(tmp_path / "out.csv")] == [""] * 12
    content = json.loads((tmp_path / "out.json").read_text())
    assert (content["coverage"], [each["set"] for each in content["rows"]]) == (None, [None] * 12)
    assert "prediction set" not in (tmp_path / "out.html").read_text()
    assert "May be" in fslstm("predict", model, new, "--coverage", 0.5).out


def test_a_transductive_method_continues_no_table(fslstm, succeed, tmp_path: Path, new) -> None:
    model, out = tmp_path / "c.fslstm", tmp_path / "out.csv"
    labelled = painted.labelled(tmp_path / "labelled")
    succeed("fit", labelled, "-o", model, "--method", "lssvm+psm", *painted.backbone(tmp_path))
    succeed("predict", model, new, "--csv", out)
    again = fslstm("predict", model, new, "--csv", out)
    assert (again.code, "cannot be continued" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "shots"), [("lssvm(normalize)", 1), ("lssvm(normalize)+psm", 1), ("lssvm(normalize)+psm", 4)]
)
def test_a_probability_is_calibrated_or_says_that_it_is_not(name, shots, succeed, tmp_path: Path, new) -> None:
    model, labelled = tmp_path / "c.fslstm", painted.labelled(tmp_path / "labelled")
    for folder in labelled.iterdir():
        for picture in sorted(folder.iterdir())[shots:]:
            picture.unlink()
    succeed("fit", labelled, "-o", model, "--method", name, *painted.backbone(tmp_path))
    files = {kind: tmp_path / f"out.{kind}" for kind in ("csv", "json", "html")}
    done = succeed("predict", model, new, *(each for kind, file in files.items() for each in (f"--{kind}", file)))
    content = json.loads(files["json"].read_text())
    said = [" ".join(done.out.split()), files["html"].read_text(), str(content["uncalibrated"])]
    assert ["one labelled point" in each for each in said] == [shots == 1] * 3
    assert ["uncalibrated" in each for each in said[:2]] == [shots == 1] * 2
    assert ("Probability % (uncalibrated)" in said[0]) == (shots == 1)
    assert {row["calibrated"] for row in rows_of(files["csv"])} == {"no" if shots == 1 else "yes"}
    assert {each["calibrated"] for each in content["rows"]} == {shots > 1}


def test_what_is_unlike_the_labelled_pictures_is_none_of_these(fslstm, tmp_path: Path, model, new) -> None:
    for number in range(3):
        noise = np.random.default_rng(number).integers(0, 256, (40, 48, 3))
        Image.fromarray(noise.astype(np.uint8)).save(new / f"noise-{number}.png")
    done = fslstm("predict", model, new, "--csv", tmp_path / "out.csv")
    assert (
        'A picture is "none of these" if it is less similar to every class than 93 % of the labelled pictures are to '
        "their own.\nExpect this of about 6 % of the pictures of the classes, too: more of some classes"
    ) in done.out
    rows = rows_of(tmp_path / "out.csv")
    familiarity = FewShotClassifier.load(model).familiarity([tmp_path / row["path"] for row in rows])
    assert [float(row["familiarity"]) for row in rows] == pytest.approx(familiarity, abs=1e-4)
    refused = {row["path"] for row in rows if row["label"] == NONE}
    assert refused == {row["path"] for row, rank in zip(rows, familiarity, strict=True) if rank <= 0.07}
    assert {f"new/noise-{number}.png" for number in range(3)} <= refused
    done = fslstm("predict", model, new, "--json", tmp_path / "out.json", "--accept", 1)
    assert 'No picture is labelled "none of these".' in done.out
    content = json.loads((tmp_path / "out.json").read_text())
    assert all(each["label"] == each["likeliest"] for each in content["rows"])
    done = fslstm("predict", model, new, "--accept", 0.95)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "not 15: label more, or accept 0.93 or less, or 1, which accepts all" in done.err


def test_predictions_without_sets_still_tell_none_of_these(fslstm, succeed, tmp_path: Path, new) -> None:
    folder = painted.labelled(tmp_path / "labelled", each=4)
    fit = ("fit", folder, "-o", tmp_path / "m", "--method", "svm", *painted.backbone(tmp_path))
    succeed(*fit)
    Image.new("RGB", (9, 9), "black").save(new / "black.png")
    succeed("predict", tmp_path / "m", new, "--csv", tmp_path / "out.csv")
    found = {Path(row["path"]).name: (row["label"], row["set"]) for row in rows_of(tmp_path / "out.csv")}
    assert found["black.png"] == (NONE, "")
    for file in folder.rglob("[1-9].png"):
        file.unlink()
    succeed(*fit)
    done = fslstm("predict", tmp_path / "m", new)
    assert (done.code, 'No picture is labelled "none of these".' in done.out) == (0, True)


def test_weights_that_were_moved_are_named(fslstm, succeed, tmp_path: Path, model, new) -> None:
    before = tmp_path / "conv4.safetensors"
    moved = before.rename(tmp_path / "moved.safetensors")
    done = fslstm("predict", model, new)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"no run folder or weights file at {before}" in done.err
    assert "give the file or the run as --weights" in done.err
    succeed("predict", model, new, "--weights", moved)
    succeed("update", model, "--forget", "red", "--weights", moved)
    succeed("suggest", model, new)  # the updated file knows the new place
    other = load_tensors(moved)
    other[next(iter(other))] += 1
    save_tensors(tmp_path / "other.safetensors", other)
    done = fslstm("predict", model, new, "--weights", tmp_path / "other.safetensors")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "of other weights" in done.err


def test_five_pictures_of_a_class_cannot_guarantee_nine_tenths_of_it(fslstm, model, new) -> None:
    done = fslstm("predict", model, new, "--coverage", 0.9)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert (
        "5 labelled images per class can guarantee a coverage of at most 83.3 %, not 90 %: label 9 of each class, or "
        "ask for 0.83 or less, or choose the coverage kind 'marginal'" in done.err
    )
    done = fslstm("predict", model, new, "--coverage", 0.9, "--coverage-kind", "marginal")
    assert (
        "The prediction sets contain the true label for 90 % of all pictures, where labelled and new ones are"
        in done.out
    ), done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"support": torch.ones(15, 100)}, "has features of length 100, but those of conv4 have 4,608"),
        ({"support": torch.ones(15, 0)}, "features of length 0"),
        ({"support": torch.ones(0, 4608), "labels": torch.ones(0, dtype=torch.int64), "classes": []}, "fewer than two"),
        ({"classes": ["red", "red", "blue"]}, "the same class twice"),
        ({"classes": [True, False, "True"], "class_type": "object"}, "classes of another type"),
    ],
)
def test_a_model_file_that_makes_no_sense_is_one_sentence(fslstm, tmp_path: Path, model, new, change, said) -> None:
    tensors, metadata = load_described(model)
    tensors |= {key: value for key, value in change.items() if key in tensors}
    described = json.loads(metadata["classifier"]) | {key: change[key] for key in change if key not in tensors}
    if "labels" in change:
        described["pictures"] = []
    save_tensors(model, tensors, {**metadata, "classifier": json.dumps(described)})
    before = model.read_bytes()
    for command in (
        ("predict", model, new),
        ("suggest", model, new),
        ("update", model, "--add", tmp_path / "labelled"),
        ("export", model, "--onnx", tmp_path / "m.onnx"),
    ):
        done = fslstm(*command)
        assert (done.code, done.err.count("\n"), done.out) == (1, 1, ""), done.err
        assert said in done.err
        assert str(model) in done.err
    with pytest.raises(RunError, match=re.escape(str(model))):
        FewShotClassifier.load(model)
    assert model.read_bytes() == before


def test_classes_with_too_few_pictures_are_named(fslstm, succeed, tmp_path: Path, new) -> None:
    folder = painted.labelled(tmp_path / "uneven", each=5)
    for file in (folder / "red").glob("[2-9].png"):
        file.unlink()
    succeed("fit", folder, "-o", tmp_path / "m", *painted.backbone(tmp_path))
    done = fslstm("predict", tmp_path / "m", new, "--coverage", 0.8)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert (
        "The labelled images of 1 of 3 classes (red 2) can guarantee a coverage of at most 66.7 %, not 80 %: label 4"
        in done.err
    )
    succeed("predict", tmp_path / "m", new, "--coverage", 0.8, "--coverage-kind", "marginal")


def test_a_method_that_was_chosen_has_sets_by_one_that_was_not(succeed, tmp_path: Path, new) -> None:
    folder = painted.labelled(tmp_path / "labelled")
    succeed("fit", folder, "-o", tmp_path / "m", *painted.backbone(tmp_path))
    succeed("update", tmp_path / "m", "--forget", "red")
    chosen = FewShotClassifier.load(tmp_path / "m")
    assert (chosen.set_method, str(chosen.set_method_)) == (CANDIDATES[0], CANDIDATES[0])
    given = ("fit", folder, "-o", tmp_path / "m", "--method", "nn", *painted.backbone(tmp_path))
    succeed(*given)
    assert FewShotClassifier.load(tmp_path / "m").set_method is None


def test_a_method_that_no_module_can_be_added_to_is_told_as_the_models(fslstm, succeed, tmp_path: Path, new) -> None:
    folder, file = painted.labelled(tmp_path / "labelled"), tmp_path / "m.fslstm"
    fit = ("fit", folder, "-o", file, *painted.backbone(tmp_path), "--method")
    refused = fslstm(*fit, "simpleshot")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "simpleshot needs the mean feature of base classes, which labelled pictures do not have" in refused.err
    succeed(*fit, "simpleshot(center=none)")
    done = fslstm("predict", file, new, "--transductive")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{file} was fitted with simpleshot(center=none), which is not a head: leave it out" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--transductive", "--coverage", "0.8"], "cannot be used with --transductive"),
        (["--link"], "give --sort-into too"),
        (["--coverage-kind", "marginal"], "give --coverage too"),
        (["--coverage", "0.8", "--coverage-kind", "class"], "no kind of coverage 'class'"),
        (["--sort-into", "{new}/sorted"], "name a folder outside it"),
        (["--coverage", "1.5"], "must be a finite number above 0 and below 1"),
    ],
)
def test_what_does_not_go_together_is_refused(fslstm, model, new, arguments, words) -> None:
    done = fslstm("predict", model, new, *(each.format(new=new) for each in arguments))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert words in done.err


@pytest.mark.parametrize("writable", [True, False])
def test_a_folder_to_sort_into_is_looked_at_first(fslstm, tmp_path: Path, model, new, monkeypatch, writable) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda _, mode, **__: writable or mode != os.W_OK)
    folder = tmp_path / ("file" if writable else "none") / "sorted" / "into"
    done = fslstm("predict", model, new, "--sort-into", folder)
    said = f"fslstm: The folder {folder} cannot be written to: name another place.\n"
    assert (done.code, done.out, done.err) == (2, "", said)


def test_sure_labels_are_marked_and_the_rest_is_sorted_apart(fslstm, succeed, tmp_path: Path, model, new) -> None:
    out = tmp_path / "out.csv"
    options = ("--csv", out, "--json", tmp_path / "out.json", "--accept", 1)
    succeed("predict", model, new, *options)
    median = sorted(float(row["probability"]) for row in rows_of(out))[6]
    done = succeed("predict", model, new, *options, "--above", median, "--sort-into", tmp_path / "sorted")
    rows = rows_of(out)
    sure = {row["path"] for row in rows if float(row["probability"]) >= median}
    assert 0 < len(sure) < len(rows)
    assert {row["path"] for row in rows if row["sure"] == "yes"} == sure
    assert {row["path"] for row in rows if row["sure"] == "no"} == {row["path"] for row in rows} - sure
    told = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["path"] for row in told if row["sure"]} == sure
    assert f"Sure: {len(sure)} of 12 pictures; look at the other {12 - len(sure)}." in done.out
    apart = {file.name for file in (tmp_path / "sorted" / "unsure").iterdir()}
    assert apart == {Path(row["path"]).name for row in rows} - {Path(each).name for each in sure}
    succeed("predict", model, new, *options, "--wrong-at-most", 0.05)  # the same table, marked again
    cautious = sorted((float(row["cautious"]) for row in rows), reverse=True)
    taken = int((np.cumsum(1 - np.array(cautious)) <= 0.05 * 12).sum())
    assert sum(row["sure"] == "yes" for row in rows_of(out)) == taken
    assert [{**row, "sure": ""} for row in rows_of(out)] == [{**row, "sure": ""} for row in rows]
    done = fslstm("predict", model, new, "--json", tmp_path / "plain.json")
    assert {row["sure"] for row in json.loads((tmp_path / "plain.json").read_text())["rows"]} == {None}


def test_guaranteed_labels_are_those_whose_set_has_no_other(succeed, tmp_path: Path, model, new) -> None:
    out = tmp_path / "out.csv"
    done = succeed("predict", model, new, "--wrong-at-most", 0.2, "--guaranteed", "--csv", out, "--accept", 1)
    assert "contain the true label for 80 %" in done.out
    assert "with the same guarantee as the prediction sets" in done.out
    assert all((row["sure"] == "yes") == (row["set"] == row["label"]) for row in rows_of(out))


def test_classes_have_columns_of_their_own_where_they_are_asked_for(
    fslstm, succeed, tmp_path: Path, model, new
) -> None:
    out = tmp_path / "out.csv"
    succeed("predict", model, new, "--csv", out, "--probabilities")
    shares = [[float(row[f"probability of {name}"]) for name in ("blue", "green", "red")] for row in rows_of(out)]
    likely = FewShotClassifier.load(model).predict_proba(sorted(new.iterdir()))
    np.testing.assert_allclose(shares, likely, atol=1e-4)
    succeed("predict", model, new, "--csv", out, "--probabilities", "--above", 0.5)
    assert [row["probability of red"] for row in rows_of(out)] == [f"{row[2]:.4f}" for row in shares]
    done = fslstm("predict", model, new, "--csv", out)
    assert (done.code, "other columns than are written now (probability of blue)" in done.err) == (2, True)


def test_json_has_the_probabilities_that_are_asked_for(succeed, tmp_path: Path, model, new) -> None:
    succeed("predict", model, new, "--json", tmp_path / "out.json", "--probabilities")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [*rows[0]["probabilities"]] == ["blue", "green", "red"]
    assert all(each["probabilities"][each["likeliest"]] == each["probability"] for each in rows)
    succeed("predict", model, new, "--json", tmp_path / "out.json")
    assert {each["probabilities"] for each in json.loads((tmp_path / "out.json").read_text())["rows"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--guaranteed",), "give --wrong-at-most too"),
        (("--above", 0.9, "--wrong-at-most", 0.1), "leave out one of the two"),
        (("--wrong-at-most", 1), "--wrong-at-most must be a finite number above 0 and below 1, but got 1"),
        (("--wrong-at-most", 1e-300, "--guaranteed"), "--wrong-at-most must be a finite number of at least 1e-09"),
        (("--above", 0.9, "--probabilities"), "adds to the table and to the JSON: give --csv or --json too"),
        (("--transductive", "--wrong-at-most", 0.1, "--guaranteed"), "--guaranteed cannot be used with --transductive"),
        (("--above", 2), "--above must be a finite number of at least 0 and at most 1, but got 2"),
        (
            ("--wrong-at-most", 0.05, "--guaranteed"),
            "of each class, not 5: label more, or ask for --wrong-at-most 0.17",
        ),
        (("--wrong-at-most", 0.2, "--guaranteed", "--coverage", 0.7), "leave out --coverage"),
    ],
)
def test_what_is_sure_is_said_in_one_way(fslstm, model, new, arguments, words) -> None:
    done = fslstm("predict", model, new, *arguments)
    assert (done.code, done.err.count("\n"), words in done.err) == (2, 1, True), done.err


def test_nothing_is_expected_of_probabilities_that_nothing_confirms(fslstm, succeed, tmp_path: Path, new) -> None:
    one = painted.labelled(tmp_path / "one", each=1)
    succeed("fit", one, "-o", tmp_path / "m", "--method", "lssvm", *painted.backbone(tmp_path))
    done = fslstm("predict", tmp_path / "m", new, "--wrong-at-most", 0.1)
    assert (done.code, "needs calibrated probabilities" in done.err) == (2, True)


def test_of_unequal_classes_something_is_expected_in_their_proportions_alone(
    succeed, tmp_path: Path, model, new
) -> None:
    uneven = tmp_path / "uneven.fslstm"
    shutil.copy(model, uneven)
    succeed("update", uneven, "--remove", tmp_path / "labelled" / "red" / "0.png")
    for file, shares in ((model, ""), (uneven, ", in the same proportions")):
        done = succeed("predict", file, new, "--wrong-at-most", 0.2, "--accept", 1)
        assert f"like the labelled ones of each{shares}." in done.out


def test_predictions_that_use_each_other(fslstm, succeed, tmp_path: Path, model, new) -> None:
    succeed("predict", model, new, "--transductive", "--csv", tmp_path / "out.csv")
    assert [row["set"] for row in rows_of(tmp_path / "out.csv")] == [""] * 12
    again = fslstm("predict", model, new, "--transductive", "--csv", tmp_path / "out.csv")
    assert (again.code, "cannot be continued" in again.err) == (2, True)


def test_a_stopped_table_is_continued(fslstm, succeed, tmp_path: Path, model, new) -> None:
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    succeed("predict", model, new, "--csv", whole)
    lines = whole.read_bytes().split(b"\r\n")
    half = b"\r\n".join(lines[:9]) + b"\r\n" + lines[9][:20]  # eight pictures, and half of a line
    part.write_bytes(half)
    done = succeed("predict", model, new, "--csv", part)
    assert "Continued: 8 pictures of 12 already done." in done.err
    assert part.read_bytes() == whole.read_bytes()
    assert "Continued: 12 pictures of 12" in fslstm("predict", model, new, "--csv", part).err
    assert part.read_bytes() == whole.read_bytes()


def test_a_table_that_an_editor_changed_loses_nothing(fslstm, succeed, tmp_path: Path, model, new) -> None:
    whole, other = tmp_path / "whole.csv", tmp_path / "other.csv"
    succeed("predict", model, new, "--csv", whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    other.write_bytes(b"".join(line.replace(b"\r\n", b"\n") for line in lines[:9]))
    assert "Continued: 8 pictures of 12" in fslstm("predict", model, new, "--csv", other).err
    assert rows_of(other) == rows_of(whole)
    other.write_bytes(lines[0].rstrip())
    succeed("predict", model, new, "--csv", other)
    assert other.read_bytes() == whole.read_bytes()
    quoted = whole.read_bytes().replace(b".png", b'.p"ng', 1)
    other.write_bytes(quoted)
    done = fslstm("predict", model, new, "--csv", other)
    assert (done.code, done.err.count("\n"), "was edited and cannot be continued" in done.err) == (1, 1, True), done.err
    assert other.read_bytes() == quoted


def test_a_killed_prediction_leaves_whole_lines_and_is_continued(spawn, succeed, tmp_path: Path, model) -> None:
    new = painted.unlabelled(tmp_path / "many", each=60)
    out = tmp_path / "out.csv"
    process = spawn("predict", model, new, "--csv", out)
    while process.poll() is None and (not out.exists() or out.read_bytes().count(b"\n") < 17):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before, end, _ = out.read_bytes().rpartition(b"\r\n")  # a kill may fall within a write
    succeed("predict", model, new, "--csv", out)
    assert out.read_bytes().startswith(before + end)
    paths = [row["path"] for row in rows_of(out)]
    assert sorted(paths) == sorted(f"many/{file.name}" for file in new.iterdir())


def test_three_predictions_into_one_table_predict_each_picture_once(spawn, tmp_path: Path, model, new) -> None:
    out = tmp_path / "out.csv"
    out.touch()
    with claimed(out, waiting=lambda: pytest.fail("nothing else has it")):
        started = [spawn("predict", model, new, "--csv", out) for _ in range(3)]
        assert all("Waiting for another command that writes" in each.stderr.readline() for each in started)
    ended = [(each.wait(), each.communicate()) for each in started]
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert sorted(row["path"] for row in rows_of(out)) == sorted(f"new/{file.name}" for file in new.iterdir())
    assert sum("Continued: 12 pictures of 12" in err for _, (_, err) in ended) == 2
    assert not list(tmp_path.glob(".*"))


def test_a_command_imports_no_library_that_it_has_no_use_for(model, new, tmp_path: Path) -> None:
    program = (
        "import sys; from fslstm_cli.main import run\n"
        "try: run()\nexcept SystemExit as stop: assert not stop.code\n"
        "print(sorted({'lightning', 'pytorch_lightning', 'sklearn', 'timm', 'torchvision'} & set(sys.modules)))"
    )
    for arguments in (("predict", model, new), ("fit", tmp_path / "labelled", "-o", tmp_path / "new.fslstm")):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.endswith("[]\n")


def test_a_model_that_changes_while_it_is_read_is_not_taken_for_the_other(
    fslstm, tmp_path: Path, model, new, monkeypatch
) -> None:
    load = Classifier.load

    def changing(file, **options):
        classifier = load(file, **options)
        load(file).forget("red").save(file)
        return classifier

    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "load", changing)
        done = fslstm("predict", model, new, "--csv", tmp_path / "out.csv")
    assert (done.code, done.err) == (1, f"fslstm: {model} changed while it was read: type the same command again.\n")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_says_how_to_go_on(fslstm, succeed, tmp_path: Path, model, new, monkeypatch, number) -> None:
    append = PredictionTable.append
    for written in (False, True):

        def stopped(table, predictions, written=written):
            if written:
                append(table, predictions)
            signal.raise_signal(number)

        with monkeypatch.context() as patch:
            patch.setattr(PredictionTable, "append", stopped)
            done = fslstm("predict", model, new, "--csv", tmp_path / "out.csv")
        assert (done.code, "type the same command again" in done.err) == (128 + number, written)
        assert "Traceback" not in done.err
        assert (tmp_path / "out.csv").exists() == written
    succeed("predict", model, new, "--csv", tmp_path / "out.csv")
    assert len(rows_of(tmp_path / "out.csv")) == 12


def test_an_exit_of_a_package_stays_what_it_is(fslstm, tmp_path: Path, model, new, monkeypatch) -> None:
    def exits(*_):
        raise SystemExit(3)

    monkeypatch.setattr(PredictionTable, "append", exits)
    done = fslstm("predict", model, new, "--csv", tmp_path / "out.csv")
    assert done.code == 3
    assert "Stopped" not in done.err


def test_a_table_with_a_picture_twice_is_not_believed(fslstm, succeed, tmp_path: Path, model, new) -> None:
    out = tmp_path / "out.csv"
    succeed("predict", model, new, "--csv", out)
    header, *lines = out.read_bytes().splitlines(keepends=True)
    for again in (lines[3], lines[3].replace(b"new/", b"./new/"), lines[3].replace(b"new/", os.fsencode(new) + b"/")):
        out.write_bytes(header + b"".join(lines) + again)
        before = out.read_bytes()
        done = fslstm("predict", model, new, "--csv", out)
        assert (done.code, done.err.count("\n"), done.out) == (1, 1, ""), done.err
        assert "again in line 14: two commands wrote into it at once, or it was edited" in done.err
        assert out.read_bytes() == before


def test_a_folder_by_another_name_is_the_same(fslstm, succeed, tmp_path: Path, model, new) -> None:
    out = tmp_path / "out.csv"
    succeed("predict", model, new, "--csv", out)
    before = out.read_bytes()
    (tmp_path / "other").symlink_to(new)
    done = fslstm("predict", model, tmp_path / "other", "--csv", out)
    assert "Continued: 12 pictures of 12 already done." in done.err
    assert "12 pictures." in done.out
    assert out.read_bytes() == before
    (new / "link.png").symlink_to(min(new.iterdir()))  # a picture of its own
    assert "13 pictures." in fslstm("predict", model, tmp_path / "other", "--csv", out).out


def test_what_was_asked_for_is_summed_up(fslstm, succeed, tmp_path: Path, model, new) -> None:
    out, red = tmp_path / "out.csv", new / "red"
    red.mkdir()
    for file in new.glob("red-*.png"):
        file.rename(red / file.name)
    succeed("predict", model, new, "--csv", out)
    files = ("--json", tmp_path / "out.json", "--html", tmp_path / "out.html", "--sort-into", tmp_path / "sorted")
    done = succeed("predict", model, red, "--csv", out, *files)
    assert "4 pictures." in done.out
    assert f"Written: {out}, which has 8 further pictures." in done.out
    assert len(rows_of(out)) == 12
    content = json.loads((tmp_path / "out.json").read_text())
    assert sorted(each["path"] for each in content["rows"]) == sorted(f"new/red/{file.name}" for file in red.iterdir())
    assert "<h1>4 pictures by" in (tmp_path / "out.html").read_text()
    assert sum(file.is_file() for file in (tmp_path / "sorted").rglob("*")) == 4
    (tmp_path / "broken.png").touch()
    done = fslstm("predict", model, tmp_path / "broken.png", "--csv", out)
    assert (done.code, "None of the pictures can be read." in done.err) == (1, True)


def test_a_label_that_was_corrected_has_no_probability(
    fslstm, succeed, tmp_path: Path, model, new, monkeypatch
) -> None:
    out = tmp_path / "out.csv"
    succeed("predict", model, new, "--csv", out, "--accept", 1)
    first, *others = rows_of(out)
    assert {each["label"] for each in (first, *others)} == {*painted.COLOURS}
    out.write_text(out.read_text().replace(f"{first['path']},{first['label']},", f"{first['path']},grey,"))
    files = ("--label-studio", tmp_path / "tasks.json")
    done = succeed("predict", model, new, "--csv", out, "--accept", 1, *files)
    assert re.search(rf"{Path(first['path']).name} +│ grey \({first['label']}\) +│ +– │", done.out), done.out
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert ["score" in each["predictions"][0] for each in tasks] == [False] + [True] * 11
    monkeypatch.setattr("fslstm_cli.summary._LISTED", 0)
    done = fslstm("predict", model, new, "--csv", out, "--accept", 1)
    same = [100 * float(each["probability"]) for each in others if each["label"] == first["label"]]
    assert re.search(rf"{first['label']} +│ +3 │ +{np.mean(same):.0f} │", done.out), done.out
    assert re.search(r"grey +│ +1 │ +– │", done.out), done.out


@pytest.mark.parametrize(
    "options",
    [("--above", 1), ("--wrong-at-most", 0.01), ("--wrong-at-most", 0.2, "--guaranteed")],
    ids=["above", "wrong-at-most", "guaranteed"],
)
def test_a_label_that_was_corrected_is_sure(succeed, tmp_path: Path, model, new, options) -> None:
    out, sorted_into = tmp_path / "out.csv", tmp_path / "sorted"
    sure = ("--csv", out, "--accept", 1, *options)
    succeed("predict", model, new, *sure)
    first, *others = rows_of(out)
    out.write_text(out.read_text().replace(f"{first['path']},{first['label']},", f"{first['path']},grey,"))
    done = succeed("predict", model, new, *sure, "--xmp", "--sort-into", sorted_into)
    corrected, *rest = rows_of(out)
    assert (corrected["label"], corrected["sure"]) == ("grey", "yes")
    assert [each["sure"] for each in rest] == [each["sure"] for each in others]
    assert (", or if it was corrected." in done.out) == ("--above" in options)
    assert [each.name for each in (sorted_into / "grey").iterdir()] == [Path(first["path"]).name]
    assert "<rdf:li>grey</rdf:li>" in (new / f"{Path(first['path']).name}.xmp").read_text()


def test_another_table_is_not_continued(fslstm, succeed, tmp_path: Path, model, new) -> None:
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("path,label\na,b\n")
    done = fslstm("predict", model, new, "--csv", foreign)
    assert (done.code, foreign.read_text()) == (1, "path,label\na,b\n")
    assert "not a table as 'fslstm predict' writes it" in done.err
    out = tmp_path / "out.csv"
    succeed("predict", model, new, "--csv", out)
    done = fslstm("predict", model, new, "--csv", out, "--coverage", 0.7)
    assert (done.code, "by another model or with other options" in done.err) == (2, True)
    out.write_text(out.read_text().replace(",sure\n", ",sure,my notes\n"))
    done = fslstm("predict", model, new, "--csv", out)
    assert (done.code, "has other columns than are written now (my notes)" in done.err) == (2, True)
    assert {row["model"][0] for row in rows_of(out)} == {"m"}, "no number, which a spreadsheet would write anew"


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch) -> None:
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.append([Prediction("/1.png", "a", "a", 0.5, 1.0, None, "")])
    before = table.file.read_bytes()

    class Full:
        """A file that takes ten bytes more."""

        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, content):
            if self.file.tell() > len(before):
                raise OSError(28, "No space left on device")
            return self.file.write(content[:10])

    plain = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, *a, **k: Full(plain(self, *a, **k)))
        with pytest.raises(StorageError, match=r"out\.csv: No space left on device\."):
            table.append([Prediction("/2.png", "a", "a", 0.5, 1.0, None, "")])
    assert table.file.read_bytes() == before
    assert PredictionTable(table.file, "m").done == {"/1.png"}


def test_a_table_that_must_not_be_changed_is_named(tmp_path: Path, monkeypatch) -> None:
    table = tmp_path / "out.csv"
    PredictionTable(table, "m").append([Prediction("/1.png", "owl", "owl", 0.5, 1.0, None, "")])
    opened = Path.open

    def refuse(file: Path, mode: str = "r", *more, **named):  # as the system does, but not to who may do all
        if mode == "rb+":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return opened(file, mode, *more, **named)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StorageError, match=r"Cannot write .*out\.csv: Permission denied\."):
        PredictionTable(table, "m")


def test_a_table_that_is_gone_or_another_is_not_written_to(tmp_path: Path) -> None:
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.file.rename(tmp_path / "moved.csv")
    prediction = Prediction("/1.png", "a", "a", 0.5, 1.0, None, "")
    with pytest.raises(StorageError, match=r"Cannot write .*out\.csv: No such file"):
        table.append([prediction])
    PredictionTable(table.file, "other")
    before = table.file.read_bytes()
    with pytest.raises(StorageError, match=r"out\.csv was replaced while it was written"):
        table.append([prediction])
    assert table.file.read_bytes() == before
    assert len(table) == 0


STRANGE = [
    "=1+1.png", "a,b.png", 'quote".png', "two\nlines.png", "carriage\rreturn.png",
    "<img src=x onerror=alert(1)>.png", "\x1b[31mred.png", "-x.png",
]  # fmt: skip


def test_strange_names_do_no_harm(fslstm, succeed, tmp_path: Path, model) -> None:
    new = tmp_path / "strange"
    new.mkdir()
    for number, name in enumerate(STRANGE):
        painted.picture("red", 300 + number).save(new / name.replace("/", "_"), format="png")
    os.rename(new / "a,b.png", os.fsencode(new) + b"/\xff,b.png")
    out, page = tmp_path / "out.csv", tmp_path / "out.html"
    arguments = ("predict", model, new, "--csv", out, "--html", page, "--sort-into", tmp_path / "sorted")
    done = succeed(*arguments)
    assert "\x1b" not in done.out + done.err
    rows = rows_of(out)
    assert len(rows) == len(STRANGE)
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())
    names = {os.fsencode(path_of(row["path"])) for row in rows}
    assert names == {os.fsencode(file.relative_to(tmp_path)) for file in new.iterdir()}
    assert all(cell.isprintable() for row in rows for cell in row.values())
    assert sum(file.is_file() for file in (tmp_path / "sorted").rglob("*")) == len(STRANGE)
    shown = data_of(page)["rows"]
    assert {row["path"] for row in shown} == {row["path"] for row in rows}
    assert all(row["image"] for row in shown)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", page.read_text())
    assert "Continued: 8 pictures of 8" in fslstm(*arguments).err


def test_a_label_that_a_spreadsheet_would_compute_comes_back(tmp_path: Path) -> None:
    table = PredictionTable(tmp_path / "out.csv", "m")
    labels = ["{}", "=1+1", "'quoted", "-a", "semi;colon", 'quo"te', "plain"]
    given = [
        Prediction(f"/{number}-{len(rest)}.png", label, label, 0.5, 1.0, (label, *rest), "")
        for number, label in enumerate(labels)
        for rest in ([], ["b"])
    ]
    table.append(given)
    assert list(PredictionTable(table.file, "m")) == given
    assert not re.search(r"(^|,)\"?[=+@-]", table.file.read_text(), re.MULTILINE)


def test_unreadable_pictures_are_named(fslstm, succeed, tmp_path: Path, model, new) -> None:
    (new / "broken.jpg").write_bytes(b"nothing")
    done = succeed("predict", model, new, "--csv", tmp_path / "out.csv")
    assert "broken.jpg is damaged, or not an image" in done.err
    assert "12 pictures; 1 picture could not be read." in done.out
    assert len(rows_of(tmp_path / "out.csv")) == 12
    (tmp_path / "empty.csv").touch()
    for table in ("none.csv", "empty.csv"):
        assert fslstm("predict", model, new / "broken.jpg", "--csv", tmp_path / table).code == 1
    assert not (tmp_path / "none.csv").exists()
    assert (tmp_path / "empty.csv").read_bytes() == b""
    done = fslstm("predict", model, new / "broken.jpg")
    assert (done.code, done.out) == (1, "")
    assert "None of the pictures can be read." in done.err


def test_a_picture_that_is_named_twice_is_predicted_once(fslstm, tmp_path: Path, model, new) -> None:
    first, *_ = sorted(new.iterdir())
    (tmp_path / "twice.csv").write_text("path\n" + f"{first}\n" * 3)
    done = fslstm("predict", model, tmp_path / "twice.csv", "--csv", tmp_path / "out.csv")
    assert (done.code, len(rows_of(tmp_path / "out.csv"))) == (0, 1)


def test_names_of_folders_fit_every_file_system(tmp_path: Path) -> None:
    (tmp_path / "1.png").touch()
    groups = ["語" * 100, "語" * 101]
    assert sort_into(tmp_path / "sorted", [(tmp_path / "1.png", group) for group in groups], groups) == []
    assert sum(file.is_file() for file in (tmp_path / "sorted").rglob("*")) == 2


def test_the_longest_name_is_cut_for_a_number(tmp_path: Path) -> None:
    name = f"ab{'語' * 83}.png"  # 255 bytes
    found = [(tmp_path / folder / name, "wren") for folder in "abc"]
    for file, _ in found:
        file.parent.mkdir()
        file.write_text(str(file))
    for _ in range(2):
        assert sort_into(tmp_path / "sorted", found, ["wren"]) == []
    names = {name, *(f"ab{'語' * 82}-{number}.png" for number in (2, 3))}
    assert {file.name for file in (tmp_path / "sorted" / "wren").iterdir()} == names


def test_pictures_of_the_classifier_are_left_out_where_asked(fslstm, succeed, tmp_path: Path, model, new) -> None:
    mine = FewShotClassifier.load(model).pictures_[0]
    shutil.copy(mine, new / "copy.png")  # by its name another picture
    listed = "".join(f"{file}\n" for file in [*sorted(new.iterdir()), mine])
    (tmp_path / "all.csv").write_text(f"path\n{listed}")
    done = succeed("predict", model, tmp_path / "all.csv", "--new", "--csv", tmp_path / "out.csv")
    assert "1 picture left out: in the classifier itself." in done.err
    assert {Path(row["path"]).name for row in rows_of(tmp_path / "out.csv")} == {file.name for file in new.iterdir()}
    (tmp_path / "mine.csv").write_text(f"path\n{mine}\n")
    done = fslstm("predict", model, tmp_path / "mine.csv", "--new")
    assert (done.code, "was fitted to all of these pictures" in done.err) == (1, True)


def test_sure_is_said_of_the_pictures_that_were_named(fslstm, succeed, tmp_path: Path, model, new) -> None:
    first, *others = sorted(new.iterdir())
    (tmp_path / "first.csv").write_text(f"path\n{first}\n")
    (tmp_path / "others.csv").write_text("path\n" + "".join(f"{file}\n" for file in others))
    out = tmp_path / "out.csv"
    done = fslstm("predict", model, tmp_path / "first.csv", "--csv", out, "--accept", 1, "--above", 0)
    assert re.search(r"Sure *┃", done.out), done.out
    assert [row["sure"] for row in rows_of(out)] == ["yes"]
    succeed("predict", model, tmp_path / "others.csv", "--csv", out, "--accept", 1, "--above", 0)
    assert [row["sure"] for row in rows_of(out)] == ["", *["yes"] * len(others)]
    succeed("predict", model, tmp_path / "others.csv", "--csv", out, "--accept", 1)
    assert {row["sure"] for row in rows_of(out)} == {""}, "what nobody asked this time is not said"


def test_a_table_behind_a_link_stays_there(succeed, tmp_path: Path, model, new) -> None:
    out, link = tmp_path / "out.csv", tmp_path / "link.csv"
    link.symlink_to(out)
    for _ in range(2):
        succeed("predict", model, new, "--csv", link, "--above", 0)
    assert link.is_symlink()
    assert {row["sure"] for row in rows_of(out)} <= {"yes", "no"}


@pytest.mark.parametrize(
    "command",
    [("show",), ("score", "labelled"), ("suggest", "new"), ("update", "--forget", "red"), ("export", "--card", "c.md")],
)
def test_an_exported_graph_is_for_predictions_alone(fslstm, monkeypatch, tmp_path: Path, model, new, command) -> None:
    monkeypatch.chdir(tmp_path)
    Path("birds.onnx").write_bytes(b"graph")
    done = fslstm(command[0], "birds.onnx", *command[1:])
    assert done.code == 2
    assert "is an exported graph, which only 'fslstm predict' takes" in done.err


def test_sorting_replaces_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "1.png", tmp_path / "b" / "1.png"
    for file in (one, other):
        file.parent.mkdir()
        file.write_bytes(str(file).encode())
    there = tmp_path / "out" / "wren" / "1.png"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"of another program")
    for _ in range(2):
        assert sort_into(tmp_path / "out", [(one, "wren"), (other, "wren")], ["wren"]) == []
        found = {file.name: file.read_bytes() for file in there.parent.iterdir()}
        assert found == {"1.png": b"of another program", "1-2.png": one.read_bytes(), "1-3.png": other.read_bytes()}
    linked = tmp_path / "links"
    for _ in range(2):
        sort_into(linked, [(one, "../wren"), (other, "../wren")], ["../wren"], link=True)
        assert {file.name: Path(os.readlink(file)) for file in linked.rglob("*.png")} == {
            "1.png": one,
            "1-2.png": other,
        }
    for out, link in ((tmp_path / "out", False), (linked, True)):
        (sentence,) = sort_into(out, [(one, "tit")], ["wren", "../wren", "tit"], link)
        assert ("wren/1.png" if link else "wren/1-2.png") in sentence  # beside another program's
    shutil.rmtree(tmp_path / "a")
    assert "no longer exists" in sort_into(tmp_path / "out", [(one, "wren")], ["wren"])[0]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file systems")
def test_a_copy_is_as_private_as_the_picture_before_it_is_whole(tmp_path: Path, monkeypatch) -> None:
    picture = tmp_path / "1.png"
    picture.touch(0o600)
    monkeypatch.setattr(shutil, "copystat", lambda *_, **__: None)  # which sets the mode, when all is copied
    sort_into(tmp_path / "out", [(picture, "wren")], ["wren"])
    assert (tmp_path / "out" / "wren" / "1.png").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_that_is_a_link_is_not_followed(fslstm, tmp_path: Path, model, new, link) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "sorted"
    elsewhere.mkdir()
    folder.mkdir()
    for colour in painted.COLOURS:
        (folder / colour).symlink_to(elsewhere)
    done = fslstm("predict", model, new, "--accept", 1, "--sort-into", folder, *["--link"] * link)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert "is a link, and nothing is written through it: put a folder in its place" in done.err
    assert not list(elsewhere.iterdir())


def test_paths_are_those_that_were_typed(fslstm, succeed, tmp_path: Path, model, new, monkeypatch) -> None:
    (new / "deep").mkdir()
    painted.picture("red", 900).save(tmp_path / "=1.png")
    shutil.copy(tmp_path / "=1.png", new / "deep" / "red-0.png")
    monkeypatch.chdir(tmp_path)
    done = succeed("predict", model.name, "new", "--csv", "out.csv", "--json", "out.json")
    assert "deep/red-0.png" in done.out
    paths = {row["path"] for row in rows_of(tmp_path / "out.csv")}
    assert paths == {str(each.relative_to(tmp_path)) for each in new.rglob("*.png")}
    assert {each["path"] for each in json.loads((tmp_path / "out.json").read_text())["rows"]} == paths
    assert "Continued: 13 pictures of 13" in fslstm("predict", model, new, "--csv", "out.csv").err
    succeed("predict", model, "=1.png", "--csv", "out.csv")
    assert rows_of(tmp_path / "out.csv")[-1]["path"] == "./=1.png"
    monkeypatch.chdir(new)
    assert fslstm("predict", model, ".", "--csv", tmp_path / "elsewhere" / "out.csv").code == 2
    (tmp_path / "elsewhere").mkdir()
    succeed("predict", model, ".", "--csv", tmp_path / "elsewhere" / "out.csv")
    assert all(Path(row["path"]).is_file() for row in rows_of(tmp_path / "elsewhere" / "out.csv"))


def test_no_file_is_written_over_for_another_purpose(fslstm, tmp_path: Path, model, new) -> None:
    before = model.read_bytes()
    out = tmp_path / "out"
    done = fslstm("predict", model, new, "--csv", out, "--json", out)
    assert (done.code, done.out, "is named for two outputs" in done.err) == (2, "", True)
    os.link(model, tmp_path / "same")
    (tmp_path / "labels.csv").write_text("path,label\nold.jpg,corrected by hand\n")
    for option, file, kind in (
        ("--html", model, "page"), ("--json", new / ".." / model.name, "JSON file"),
        ("--json", tmp_path / "same", "JSON file"), ("--label-studio", tmp_path / "labels.csv", "Label Studio file"),
    ):  # fmt: skip
        done = fslstm("predict", model, new, option, file)
        assert (done.code, done.out, f"is no {kind} of fslstm" in done.err) == (2, "", True), done.err
    assert "is no JSON file of fslstm" in fslstm("suggest", model, new, "--json", model).err
    (tmp_path / "README.md").write_text("notes")
    done = fslstm("export", model, "--card", tmp_path / "README.md")
    assert (done.code, "is no card of fslstm" in done.err) == (2, True)
    assert (tmp_path / "labels.csv").read_text().endswith("by hand\n")
    assert fslstm("predict", model, new, "--sort-into", model).code == 2
    assert model.read_bytes() == before
    assert not out.exists()
    picture = min(new.iterdir())
    pixels = picture.read_bytes()
    for option, words in (
        ("--csv", "is a picture, and is not"),
        ("--html", "is no page"),
        ("--json", "is no JSON file"),
    ):
        done = fslstm("predict", model, new, option, picture)
        assert (done.code, words in done.err) == (2, True)
    assert picture.read_bytes() == pixels
    done = fslstm("predict", model, new, "--csv", "/dev/null")
    assert (done.code, "is no regular file, and is not replaced: name another file" in done.err) == (2, True)


def test_json_through_a_link_and_into_a_pipe_replaces_neither(succeed, tmp_path: Path, model, new) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    succeed("predict", model, new, "--json", tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        succeed("predict", model, new, "--json", pipe)
        assert pipe.is_fifo()
        assert len(json.loads(os.read(descriptor, 1 << 16))["rows"]) == 12
    finally:
        os.close(descriptor)


def test_pictures_whose_names_become_one_text_are_both_predicted(fslstm, succeed, tmp_path: Path, model) -> None:
    new = tmp_path / "names"
    new.mkdir()
    names = [b"x\xff.png", b"x\\xff.png"]
    for number, name in enumerate(names):
        painted.picture("red", 300 + number).save(new / "1.png")
        os.rename(new / "1.png", os.fsencode(new) + b"/" + name)
    arguments = ("predict", model, new, "--csv", tmp_path / "out.csv", "--sort-into", tmp_path / "sorted")
    done = succeed(*arguments)
    assert "2 pictures." in done.out
    assert sorted(os.fsencode(path_of(row["path"])) for row in rows_of(tmp_path / "out.csv")) == sorted(
        b"names/" + name for name in names
    )
    assert sorted(os.fsencode(file.name) for file in (tmp_path / "sorted").rglob("*.png")) == sorted(names)
    assert "Continued: 2 pictures of 2" in fslstm(*arguments).err


def test_json_of_many_predictions_takes_little_memory(tmp_path: Path) -> None:
    table = PredictionTable(tmp_path / "out.csv", "m")
    table.append([Prediction(f"/{number}.png", "a", "a", 0.5, 1.0, None, "") for number in range(5000)])
    labeller = SimpleNamespace(classes=["a"], sets=None, accepted=1.0, why_uncalibrated=None)
    asked = Asked(table, table.done)
    tracemalloc.start()
    write_json(tmp_path / "out.json", asked, labeller, None)  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    told = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [each["path"] for each in told] == [f"/{number}.png" for number in range(5000)]
