"""Calibration, prediction sets and unknown classes, as ``fslstm eval`` measures them."""

from __future__ import annotations

import json

import pytest
import torch

from fslstm_plugin.evaluation.open_set import tell_apart

FEW = ("--episodes", 40, "--queries", 5, "--ways", 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def pretrained(runs, fslstm):
    """A folder with one run, made once."""
    if not (runs / "base").exists():
        result = fslstm(
            "pretrain", "--dataset", "dots", "--backbone", "tiny", "--max-steps", 3, "--batch-size", 32,
            "--runs", runs, "--name", "base",
        )  # fmt: skip
        assert result.code == 0, result.err
    return runs


def evaluated(fslstm, runs, file, *arguments):
    result = fslstm("eval", "--runs", runs, *FEW, *arguments, "--json", file)
    assert result.code == 0, result.err
    return result, json.loads(file.read_text())


def test_eval_measures_calibration_of_every_row(pretrained, fslstm, tmp_path):
    methods = ("nn", "svm", "lssvm+psm", "lssvm+bn")
    result, found = evaluated(fslstm, pretrained, tmp_path / "r.json", *methods, "--calibration", "--shots", 2)
    assert "Calibration" in result.out
    assert [row["method"] for row in found["calibration"]] == ["nn", "svm", "lssvm+psm", "lssvm+bn"]
    for row, accuracy in zip(found["calibration"], found["rows"], strict=True):
        assert row["accuracy"] == pytest.approx(accuracy["accuracy"]), "the same episodes as the accuracy's"
        for each in (row["before"], row["after"]):
            assert 0 <= each["ece"] <= 100
            assert 0 <= each["brier"] <= 2
            assert each["nll"] >= 0
        assert row["temperature"] > 0
        assert row["before"] != row["after"]
        assert row["uncalibrated"] is None
    assert "uncalibrated" not in result.out.lower()
    assert "coverage" not in found
    assert "open" not in found


def test_eval_says_which_probabilities_are_uncalibrated(pretrained, fslstm, tmp_path):
    methods = ("nn", "svm", "lssvm+psm")
    result, found = evaluated(fslstm, pretrained, tmp_path / "r.json", *methods, "--calibration", "--shots", 1)
    said = " ".join(result.out.split())
    assert said.count("Uncalibrated: ") == 1
    for row in found["calibration"]:
        assert "one labelled point" in row["uncalibrated"]
        assert f"Uncalibrated: {row['uncalibrated']}." in said
        assert (row["temperature"] == 1) == (row["before"] == row["after"]) == (row["method"] != "nn")


def test_eval_measures_prediction_sets_and_says_what_has_none(pretrained, fslstm, tmp_path):
    arguments = ("--coverage", 0.75, "--shots", 3, "--shots", 1)
    result, found = evaluated(fslstm, pretrained, tmp_path / "r.json", *arguments)
    (row,) = found["coverage"]
    assert (row["method"], row["kind"], row["asked"], row["guaranteed"]) == ("lssvm", "per-class", 75, 75)
    assert row["covered"] > 75 - 12  # 600 queries
    assert row["singletons"] <= 100
    assert 1 <= row["size"] <= 3
    assert "no prediction sets with a guarantee for lssvm+psm" in result.err
    assert "Prediction sets at coverage 75 %" in result.out
    few = "No prediction sets at 1 shot: 1 labelled image per class can guarantee a coverage of at most 50 %, not 75 %"
    assert few in " ".join(result.err.split())


def test_eval_measures_how_unknown_classes_are_told_apart(pretrained, fslstm, tmp_path):
    arguments = ("rr", "tim", "--open-ways", 2, "--shots", 1, "--interval", "classes")
    result, found = evaluated(fslstm, pretrained, tmp_path / "r.json", *arguments)
    assert "2 unknown classes" in result.out
    scores = [(row["method"], row["score"]) for row in found["open"]]
    assert scores == [
        ("rr", "p-value"), ("rr", "probability"), ("rr", "distance"), ("tim", "probability"), ("tim", "distance"),
    ]  # fmt: skip
    assert all(0 <= row[name] <= 100 for row in found["open"] for name in ("auroc", "accuracy", "refused"))
    same = [row for row in found["open"] if row["score"] == "distance"]
    assert same[0]["auroc"] == same[1]["auroc"], "it is the features' alone"


def test_numbers_follow_from_the_seed_and_reports_read_them(pretrained, fslstm, tmp_path):
    arguments = ("--calibration", "--coverage", 0.5, "--open-ways", 1, "nn", "--shots", 1)
    first, again = (evaluated(fslstm, pretrained, tmp_path / name, *arguments)[1] for name in ("a.json", "b.json"))
    for name in ("calibration", "coverage", "open"):
        assert first[name] == again[name]
    report = fslstm("report", "--runs", pretrained, "--output", tmp_path / "report.html")
    assert report.code == 0, report.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--coverage", 80), "above 0 and below 1, but got 80"),
        (
            ("--coverage", 0.9, "--shots", 1, "--shots", 5),
            "5 labelled images per class can guarantee a coverage of at ",
        ),
        (("--coverage", 0.8, "--shots", 1), "label 4 of each class, or ask for 0.5 or less."),
        (("--coverage", 0.5, "--coverage-kind", "class"), "no kind of coverage 'class'"),
        (("--coverage-kind", "marginal"), "give --coverage too"),
        (("--coverage", 0.5, "svm"), "its solution does not follow"),
        (("--coverage", 0.5, "rr+psm"), "depends on the other queries"),
        (("--open-ways", 4), "--ways 3 and --open-ways 4 need 7 classes, but dots test has 6"),
        (("--open-ways", 1, "--query-balance", "dirichlet:1"), "leave out --query-balance"),
        (("--open-ways", 3, "--interval", "classes"), "more classes than ways"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(arguments, message, pretrained, fslstm):
    result = fslstm("eval", "--runs", pretrained, *FEW, *arguments)
    assert result.code == 2, result.err
    assert message in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not result.out


def test_scores_that_tell_everything_nothing_and_the_wrong_way_round():
    known = torch.tensor([True] * 4 + [False] * 3)
    right = torch.tensor([True, True, False, False, True, True, True])
    better = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.3, 0.2, 0.1])
    assert [each.item() for each in tell_apart(better, known, right, 1.0)] == [1.0, 0.5, 1.0]
    assert [each.item() for each in tell_apart(better, known, right, 0.5)] == [1.0, 1.0, 1.0]
    assert [each.item() for each in tell_apart(-better, known, right, 1.0)] == [0.0, 0.5, 0.0]
    nothing = tell_apart(torch.zeros(7), known, right, 0.75)
    assert [each.item() for each in nothing] == pytest.approx([0.5, 0.5, 0.25])


def test_episodes_of_a_batch_are_told_apart_one_by_one():
    score = torch.rand(3, 12, generator=torch.Generator().manual_seed(0))
    known = (torch.arange(12) % 3 > 0).expand(3, -1)
    right = score > 0.4
    batch = tell_apart(score, known, right)
    for episode in range(3):
        alone = tell_apart(score[episode], known[episode], right[episode])
        assert [each[episode].item() for each in batch] == pytest.approx([each.item() for each in alone])
