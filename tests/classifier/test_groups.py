"""Points that belong together: judged without each other, and counted once."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import painted
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fslstm_plugin import EpisodeFeatures, FewShotClassifier, parse_method
from fslstm_plugin.classifier.groups import folds, numbered, representatives
from fslstm_plugin.classifier.selection import choose_method, expected_accuracy
from fslstm_plugin.errors import UsageError
from fslstm_plugin.methods.shared.leaving_out import moved_logits
from fslstm_plugin.pictures.expectations import expectations
from fslstm_plugin.pictures.grouping import grouped

TAKEN = 0x0132


def bursts(rng: np.random.Generator, ways: int, number: int, size: int, noise: float = 1.0) -> tuple[np.ndarray, ...]:
    """Points, labels and groups: a class's mean, a burst's own shift, and little that is each point's own."""
    means = rng.normal(size=(ways, 1, 1, 16))
    shifts = rng.normal(size=(ways, number, 1, 16)) * noise
    points = means + shifts + 0.1 * rng.normal(size=(ways, number, size, 16))
    labels, groups = np.indices((ways, number, size)).reshape(3, -1)[:2]
    return points.reshape(-1, 16), labels, labels * number + groups, means


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=2, max_size=60), st.booleans())
def test_folds_are_of_whole_groups_and_leave_something_of_each_class(
    pairs: list[tuple[int, int]], nested: bool
) -> None:
    labels = torch.tensor([label for label, _ in pairs]).unique(return_inverse=True)[1]
    groups = numbered([f"{label} {place}" if nested else str(place) for label, place in pairs])
    found = folds(labels, groups)
    several = torch.stack([labels, groups], -1).unique(dim=0)[:, 0].bincount() > 1
    assert torch.equal(found >= 0, several[labels])
    for group in groups.unique():
        assert len(found[(groups == group) & (found >= 0)].unique()) <= 1
    for fold in found[found >= 0].unique():
        assert set(labels[found != fold].tolist()) == set(labels.tolist())
    kept = representatives(labels, groups)
    assert set(labels[kept].tolist()) == set(labels.tolist())
    assert set(groups[kept].tolist()) == set(groups.tolist())
    if nested:
        assert len(kept) == len(groups.unique())


@pytest.mark.parametrize("name", ["lssvm(ridge=1)", "rr(center=episode,normalize)", "nn+psm", "tim"])
def test_points_of_a_group_leave_together(name: str) -> None:
    points, labels, groups, _ = (torch.from_numpy(each) for each in bursts(np.random.default_rng(0), 3, 4, 2))
    method, together = parse_method(name), folds(labels, groups)
    query = points[:2] + 0.5 if method.is_transductive else points[:0]
    found = moved_logits(method, EpisodeFeatures(points, query, labels), together)
    for fold in together.unique():
        left = together == fold
        others = EpisodeFeatures(points[~left], torch.cat([points[left], query]), labels[~left])
        torch.testing.assert_close(found[left], method.logits(others)[: int(left.sum())].to(found))


def test_without_groups_the_expected_accuracy_is_far_too_high() -> None:
    """Over 100 draws of bursts: what is expected of new ones, its interval, and what prediction sets hold."""
    rng = np.random.default_rng(0)
    held, surplus, plain, covered = [], [], [], []
    for _ in range(100):
        points, labels, groups, means = bursts(rng, 4, 5, 4, noise=1.5)
        new = (means + 1.5 * rng.normal(size=(4, 50, 1, 16)) + 0.1 * rng.normal(size=(4, 50, 1, 16))).reshape(-1, 16)
        truth = np.repeat(np.arange(4), 50)
        classifier = FewShotClassifier("lssvm(ridge=1,normalize)").fit(points, labels, groups=groups)
        accuracy = float((classifier.predict(new) == truth).mean())
        found = expectations(classifier)
        assert found.accuracy is not None
        assert found.groups == {str(each): 5 for each in range(4)}
        held.append(found.low <= accuracy <= found.high)
        surplus.append(found.accuracy - accuracy)
        alone = expectations(FewShotClassifier("lssvm(ridge=1,normalize)").fit(points, labels))
        plain.append((alone.accuracy or 0) - accuracy)
        covered.append(
            np.mean([each in one for each, one in zip(truth, classifier.predict_set(new, 0.8), strict=True)])
        )
    assert np.mean(held) >= 0.93
    assert abs(np.mean(surplus)) < 0.05
    assert np.mean(plain) > 0.15
    assert np.mean(covered) >= 0.8


def test_the_interval_is_as_wide_as_the_groups_are_few() -> None:
    logits, labels = torch.eye(2).repeat(20, 1), torch.tensor([0, 1] * 20)
    groups = torch.arange(20).repeat_interleave(2) // 2 * 2 + labels  # twenty, of two points each
    grouped_, plain = expected_accuracy(logits, labels, groups=groups), expected_accuracy(logits, labels)
    assert grouped_ is not None
    assert plain is not None
    assert grouped_.low == pytest.approx(expected_accuracy(logits[:20], labels[:20]).low)  # type: ignore[union-attr]
    assert grouped_.low < plain.low
    assert expected_accuracy(logits, labels, groups=labels) is None


def test_the_choice_of_a_method_leaves_groups_out() -> None:
    """Among bursts the nearest mean beside a point is of its burst, which flatters what follows single points."""
    points, labels, groups, _ = (
        torch.from_numpy(each) for each in bursts(np.random.default_rng(1), 4, 5, 4, noise=1.5)
    )
    alone = choose_method(points, labels, ["lssvm(ridge=1,normalize)"]).expected
    together = choose_method(points, labels, ["lssvm(ridge=1,normalize)"], groups=groups).expected
    assert alone is not None
    assert together is not None
    assert alone.accuracy > together.accuracy + 0.1


def test_groups_come_and_go_with_their_points_and_are_in_the_file(tmp_path: Path) -> None:
    X, y, groups, _ = bursts(np.random.default_rng(2), 3, 4, 2)
    whole = FewShotClassifier().fit(X, y, groups=groups)
    parts = FewShotClassifier().fit(X[:20], y[:20], groups=groups[:20]).partial_fit(X[20:], y[20:], groups=groups[20:])
    query = X + 0.1
    np.testing.assert_allclose(parts.predict_proba(query), whole.predict_proba(query))
    for mine, expected in zip(parts.predict_set(query, 0.7), whole.predict_set(query, 0.7), strict=True):
        np.testing.assert_array_equal(mine, expected)
    fewer = parts.remove([0, 1])
    anew = FewShotClassifier().fit(X[2:], y[2:], groups=groups[2:])
    np.testing.assert_allclose(fewer.familiarity(query), anew.familiarity(query))
    np.testing.assert_allclose(fewer.left_out(), anew.left_out())
    fewer.save(tmp_path / "a.fslstm")
    loaded = FewShotClassifier.load(tmp_path / "a.fslstm")
    assert loaded.groups_ == fewer.groups_ == [str(each) for each in groups[2:]]
    np.testing.assert_allclose(loaded.predict_proba(query), fewer.predict_proba(query))
    alone = FewShotClassifier().fit(X, y, groups=[None] * len(X))
    np.testing.assert_array_equal(alone.left_out(), FewShotClassifier().fit(X, y).left_out())
    with pytest.raises(UsageError, match="a group for each of 24 points, but got 3"):
        FewShotClassifier().fit(X, y, groups=[1, 2, 3])


def test_classes_of_one_group_are_uncalibrated() -> None:
    X, y, _, _ = bursts(np.random.default_rng(3), 2, 3, 2)
    classifier = FewShotClassifier().fit(X, y, groups=y)
    assert classifier.why_uncalibrated is not None
    assert "one group of labelled points" in classifier.why_uncalibrated
    assert expectations(classifier).accuracy is None


def photographs(folder: Path) -> Path:
    """Two colours in three bursts each, of two pictures a second apart, the bursts by the hour."""
    for colour in ("red", "blue"):
        (folder / colour).mkdir(parents=True)
        for number in range(6):
            exif = Image.Exif()
            when = datetime(2024, 5, 1 + (colour == "red"), number // 2) + timedelta(seconds=number % 2)
            exif[TAKEN] = when.strftime("%Y:%m:%d %H:%M:%S")
            painted.picture(colour, number).save(folder / colour / f"{number}.jpg", exif=exif)
    return folder


def test_groups_by_time(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "labelled")
    painted.picture("red", 9).save(folder / "red" / "untimed.png")
    said: list[str] = []
    found = {f"{each.path.parent.name}/{each.path.name}": each.group for each in grouped(folder, "time", said.append)}
    assert found["blue/0.jpg"] == found["blue/1.jpg"] == "2024-05-01 00:00:00"
    assert len(set(found.values())) == 7
    assert found["red/untimed.png"] == ""
    assert said == ["Pictures without a time in their EXIF data: 1; each is a group of its own."]
    assert len({each.group for each in grouped(folder, "time:7200", said.append)}) == 3
    for by, words in (
        ("time:soon", "a number of seconds"),
        ("time:0", "a number of seconds above 0"),
        ("folder", "belong together"),
    ):
        with pytest.raises(UsageError, match=words):
            grouped(folder, by, said.append)


def test_groups_by_column_and_by_picture(tmp_path: Path) -> None:
    rows = ["path,label,nest,x,y,width,height", "a.png,owl,1,0,0,5,5", "a.png,wren,1,5,0,5,5", "b.png,owl,,,,,"]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    assert [each.group for each in grouped(tmp_path / "a.csv", "nest")] == ["1", "1", ""]
    assert [each.group for each in grouped(tmp_path / "a.csv", "picture")] == ["a.png", "a.png", ""]
    assert [each.group for each in grouped(tmp_path / "a.csv", None)] == ["", "", ""]
    with pytest.raises(UsageError, match=r"has no column nest: group by folder, time, picture"):
        grouped(photographs(tmp_path / "labelled"), "nest", print)


def test_fit_and_update_by_groups(fslstm, succeed, tmp_path: Path) -> None:
    folder, model = photographs(tmp_path / "labelled"), tmp_path / "a.fslstm"
    more = painted.backbone(tmp_path)
    done = succeed("fit", folder, "-o", model, "--groups", "time", *more)
    assert "with its whole group" in done.out
    assert "limited by the 3 groups of each;" in done.out
    refused = fslstm("predict", model, folder, "--coverage", 0.9)
    assert "3 labelled groups per class can guarantee a coverage of at most 75 %" in refused.err
    assert "label 9 groups of each class" in refused.err
    extra = tmp_path / "extra" / "red" / "late"
    extra.mkdir(parents=True)
    for number in range(2):
        painted.picture("red", 50 + number).save(extra / f"{number}.png")
    done = succeed("update", model, "--add", tmp_path / "extra", "--groups", "folder")
    assert "3 to 4 groups" in done.out
    succeed("predict", model, folder, "--coverage", 0.7)
    done = fslstm("update", model, "--remove", "0.jpg", "--groups", "folder")
    assert done.code == 2
    assert "--groups is for the pictures of --add" in done.err
    done = fslstm("update", model, "--remove", "0.jpg", "--max-pixels", 9)
    assert (done.code, "--max-pixels is for the pictures of --add" in done.err) == (2, True)
    done = fslstm("fit", folder, "-o", tmp_path / "b.fslstm", "--groups", "nest", *more)
    assert done.code == 2
    assert "has no column nest" in done.err
