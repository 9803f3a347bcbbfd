"""Label Studio's JSON: what is written is read there, and its exports are read here."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import painted
import pytest

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.errors import DataError
from fslstm_plugin.pictures import labelled


def exported(tasks: list[dict]) -> list[dict]:
    """What Label Studio exports where the first three predictions were accepted, one of them after a cancelled one."""
    done = []
    for number, task in enumerate(tasks):
        result = [] if number > 2 else task["predictions"][0]["result"]
        annotations = [{"id": number, "was_cancelled": False, "result": result}] if number < 4 else []
        annotations += [{"was_cancelled": True, "result": [{"type": "choices", "value": {"choices": ["wrong"]}}]}]
        done.append({"id": number, **task, "annotations": annotations})
    return done


def test_predictions_go_there_and_labels_come_back(succeed, tmp_path: Path, model, new) -> None:
    os.rename(new / "blue-0.png", new / "a b#%ü.png")
    succeed("predict", model, new, "--label-studio", tmp_path / "tasks.json", "--accept", 1)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == 12
    assert tasks[0]["data"]["image"] == "/data/local-files/?d=new/a%20b%23%25%C3%BC.png"
    (prediction,) = tasks[0]["predictions"]
    assert prediction["model_version"] == "colours.fslstm"
    assert prediction["result"][0]["value"]["choices"][0] in painted.COLOURS
    (tmp_path / "export.json").write_text(json.dumps(exported(tasks)))
    found = labelled(tmp_path / "export.json")
    assert [each.path for each in found] == sorted(new.iterdir())[:3]
    done = succeed("update", model, "--add", tmp_path / "export.json")
    assert "18 pictures, 3 classes" in done.out
    names = FewShotClassifier.load(model).pictures_
    assert str(new / "a b#%ü.png") in names


def test_suggestions_become_tasks_in_their_order(succeed, tmp_path: Path, model, new) -> None:
    files = ("--json", tmp_path / "next.json", "--label-studio", tmp_path / "tasks.json")
    succeed("suggest", model, new, "--count", 3, *files)
    asked = [row["path"] for row in json.loads((tmp_path / "next.json").read_text())["rows"]]
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert tasks == [{"data": {"image": f"/data/local-files/?d={path}"}} for path in asked]


def test_the_short_export_is_read_too(tmp_path: Path) -> None:
    rows = [{"image": "/data/local-files/?d=1.png", "id": 1, "choice": "owl"}, {"image": "2.png", "id": 2}]
    (tmp_path / "min.json").write_text(json.dumps(rows))
    assert [(each.path, each.label) for each in labelled(tmp_path / "min.json")] == [(tmp_path / "1.png", "owl")]


def test_the_last_annotation_that_answers_counts(tmp_path: Path) -> None:
    results = [[chosen("owl")], [chosen("wren")], []]
    task = {"data": {"image": "1.png"}, "annotations": [{"result": each} for each in results]}
    (tmp_path / "export.json").write_text(json.dumps([task]))
    assert [each.label for each in labelled(tmp_path / "export.json")] == ["wren"]


def chosen(label: str) -> dict:
    return {"type": "choices", "value": {"choices": [label]}}


SEVERAL = {"choices": ["owl", "wren"]}


@pytest.mark.parametrize(
    "task",
    [
        {"image": "1.png", "choice": SEVERAL},
        {"data": {"image": "1.png"}, "annotations": [{"result": [{"type": "choices", "value": SEVERAL}]}]},
        {"data": {"image": "1.png"}, "annotations": [{"result": [chosen("owl"), chosen("wren")]}]},  # two questions
    ],
)
def test_several_choices_for_a_picture_are_refused(tmp_path: Path, task: dict) -> None:
    (tmp_path / "export.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match=re.escape("several choices for 1.png (owl, wren): choose one of them")):
        labelled(tmp_path / "export.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", r"x.json is damaged or has an unexpected format \(Expecting value"),
        ('[{"image": "1.png", "choice": "owl", "id": NaN}]', "x.json is damaged .*NaN is no number"),
        ("[" * 100_000, "x.json is damaged .*recursion"),
        ('{"a": 1}', "must be Label Studio"),
        ("[]", "There are no pictures in"),
        ('[{"data": {"image": "1.png"}}]', "No task in .* is labelled"),
        ('[{"image": "/data/upload/1/1.png", "choice": "owl"}]', "which Label Studio holds itself"),
        ('[{"image": null, "choice": "owl"}]', "the image of a task must be text, but is None"),
        ('[{"image": "1.png", "choice": {"choices": [null]}}]', "the choice for 1.png must be text, but is None"),
        ('[{"image": "http://a/1.png", "choice": "owl"}]', "which Label Studio holds itself"),
    ],
)
def test_another_json_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=words):
        labelled(tmp_path / "x.json")
