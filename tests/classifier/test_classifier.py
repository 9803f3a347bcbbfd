"""The classifier: scikit-learn's own checks, labels of any type, updates, files, pictures."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

import fslstm_plugin
from fslstm_plugin import EpisodeFeatures, FewShotClassifier, Method, parse_method
from fslstm_plugin.classifier import fitted
from fslstm_plugin.classifier.classifier import Classifier
from fslstm_plugin.classifier.fitted import FittedMethod
from fslstm_plugin.confidence.calibration import temperature_of
from fslstm_plugin.errors import DataError, RunError, UnknownNameError, UsageError
from fslstm_plugin.heads import LSSVMClassifier
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.pretrained import open_backbone

METHODS = ["lssvm", "lssvm(ridge=loo,normalize)", "lssvm(coding=one-vs-one)", "rr", "nn", "svm", "simpleshot", "tim"]
CLASSES = np.array(["owl", "<b>tit</b>", "a wren"])


def expected_failures(classifier: FewShotClassifier) -> dict[str, str]:
    if not classifier._method().is_transductive:
        return {}
    return {"check_methods_subset_invariance": "predictions of a transductive method depend on the other points"}


@parametrize_with_checks(
    [
        FewShotClassifier(),
        FewShotClassifier("lssvm(ridge=loo,normalize)"),
        FewShotClassifier("svm", temperature=2.0),
        FewShotClassifier("nn(kernel=rbf)"),
        FewShotClassifier("lssvm+psm"),
        FewShotClassifier("tim(steps=20)"),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


def draw(seed: int = 0, points: int = 15, queries: int = 12, dim: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(points) % 3)
    features = generator.standard_normal((points, dim)) + 2 * np.eye(3, dim)[labels]
    return features, CLASSES[labels], 2 * generator.standard_normal((queries, dim))


def make(method: str, **arguments) -> FewShotClassifier:
    return FewShotClassifier(method, base_mean=np.full(6, 0.1), **arguments)


def assert_same(one: FewShotClassifier, other: FewShotClassifier, query: np.ndarray) -> None:
    np.testing.assert_array_equal(one.classes_, other.classes_)
    np.testing.assert_allclose(one.decision_function(query), other.decision_function(query), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(one.predict_proba(query), other.predict_proba(query), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", [*METHODS, "lssvm+psm", "rr(power(negative=signed),center)"])
def test_it_predicts_what_the_method_does(method: str) -> None:
    X, y, query = draw()
    classifier = make(method).fit(X, y)
    assert classifier.classes_.tolist() == sorted(CLASSES)
    labels = torch.from_numpy(np.searchsorted(classifier.classes_, y))
    mean = torch.full((6,), 0.1, dtype=torch.float64)
    features = EpisodeFeatures(torch.from_numpy(X), torch.from_numpy(query), labels, 3, base_mean=mean)
    logits = parse_method(method).logits(features)
    np.testing.assert_allclose(classifier.decision_function(query), logits, rtol=1e-7, atol=1e-7)
    assert classifier.predict(query).tolist() == classifier.classes_[logits.argmax(-1)].tolist()
    temperature = temperature_of(parse_method(method), features)
    assert classifier.temperature_ == (None if parse_method(method).is_transductive else pytest.approx(temperature))
    assert classifier.calibrated_
    probabilities = (logits / temperature).softmax(-1)
    np.testing.assert_allclose(classifier.predict_proba(query), probabilities, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", METHODS[:-1])
def test_parts_of_the_queries_get_what_all_at_once_get(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, query = draw()
    whole = make(method).fit(X, y).decision_function(query)
    monkeypatch.setattr(fitted, "_QUERIES", 5)
    np.testing.assert_allclose(make(method).fit(X, y).decision_function(query), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", [*METHODS, "rr(ridge=0.1,normalize)"])
def test_points_and_classes_come_and_go_as_if_fitted_anew(method: str) -> None:
    X, y, query = draw()
    more, new, _ = draw(1, points=6)
    new = new.astype("<U20")
    new[:2] = "nightingale"
    classifier = make(method).fit(X, y)
    classifier.partial_fit(more, new)
    assert_same(classifier, make(method).fit(np.concatenate([X, more]), [*y, *new]), query)
    classifier.forget("owl")
    kept = np.concatenate([y, new]) != "owl"
    anew = make(method).fit(np.concatenate([X, more])[kept], np.concatenate([y, new])[kept])
    assert_same(classifier, anew, query)
    classifier.forget(["nightingale"])
    assert set(classifier.predict(query)) <= {"<b>tit</b>", "a wren"}


def test_the_first_partial_fit_is_a_fit() -> None:
    X, y, query = draw()
    assert_same(FewShotClassifier().partial_fit(X, y, classes=CLASSES), FewShotClassifier().fit(X, y), query)


@pytest.mark.parametrize("labels", [[3, 1, 2], [-1.0, 1.0, 2.0], [True, False, True], ["b", "c", "a"]])
def test_labels_of_any_type(labels: list) -> None:
    X, y, _ = draw()
    of = dict(zip(CLASSES, labels, strict=True))
    mine = np.array([of[each] for each in y])
    classifier = FewShotClassifier().fit(X, mine)
    assert classifier.predict(X).dtype == mine.dtype
    assert classifier.score(X, mine) == 1


def test_logits_that_are_no_numbers_make_no_label() -> None:
    class Broken(Method):
        is_transductive = False

        def logits(self, features):
            return torch.full_like(features.query @ features.support.mT @ features.targets, torch.nan)

    X, y, query = draw()
    with pytest.raises(UsageError, match="Broken gives logits that are infinite or not numbers"):
        FewShotClassifier(Broken()).fit(X, y).predict(query)


def test_wrong_updates_leave_the_classifier_as_it_was() -> None:
    X, y, query = draw()
    classifier = FewShotClassifier().fit(X, y)
    with pytest.raises(UnknownNameError, match="There is no class 'owls'. Did you mean 'owl'"):
        classifier.forget("owls")
    with pytest.raises(UsageError, match="at least two classes, but got only one class, owl"):
        classifier.forget(["a wren", "<b>tit</b>"])
    with pytest.raises(UnknownNameError, match="There is no class 'owl'"):
        classifier.partial_fit(X, y, classes=["a wren", "<b>tit</b>"])
    with pytest.raises(UsageError, match="give them one type"):
        classifier.partial_fit(X, np.arange(len(X)))
    for huge in (1e200, 1e300):
        with pytest.raises(UsageError, match="products overflow"):
            classifier.partial_fit([[huge] * 6], ["z"])
    with pytest.raises(ValueError, match="NaN"):
        classifier.partial_fit(np.full((2, 6), np.nan), ["owl", "owl"])
    assert_same(classifier, FewShotClassifier().fit(X, y), query)
    roots = FewShotClassifier("nn(power)").fit(abs(X), y)
    with pytest.raises(UsageError, match="not negative"):
        roots.partial_fit(-abs(X[:1]), ["z"])
    roots.partial_fit(abs(X[:1]), ["z"])
    assert_same(roots, FewShotClassifier("nn(power)").fit(np.r_[abs(X), abs(X[:1])], [*y, "z"]), abs(query))


@pytest.mark.parametrize(
    ("new", "refused"),
    [
        (np.array([1.0, 7.0]), True),
        (np.array([True, False]), True),
        (np.array([5, 6], dtype=np.uint64), True),  # which with int64 would become float64
        (np.array([3, 4], dtype=np.uint8), False),
    ],
)
def test_whole_numbers_stay_what_they_are(new: np.ndarray, refused: bool) -> None:
    X, *_ = draw()
    classifier = FewShotClassifier().fit(X[:4], np.array([1, 2, 1, 2]))
    if refused:
        with pytest.raises(UsageError, match="give them one type"):
            classifier.partial_fit(X[:2], new)
    else:
        classifier.partial_fit(X[:2], new)
    assert classifier.classes_.dtype == np.int64
    for other in ("2", np.datetime64("2026-01-01"), True):
        with pytest.raises(UsageError, match="The classes are int64, but these labels are .*: give them one type"):
            classifier.forget(other)


def test_one_row_needs_no_list_and_none_changes_nothing() -> None:
    X, *_ = draw()
    labels = ["owl", "wren", "owl", "wren"]
    assert FewShotClassifier().fit(X[:4], labels).remove(3).support_labels_.tolist() == [0, 1, 0]
    same = FewShotClassifier().fit(X[:4], labels).remove([]).forget([])
    assert same.support_labels_.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(("kind", "points", "guaranteed"), [("marginal", 20, 17 / 21), ("per-class", 18, 6 / 7)])
def test_sets_contain_the_true_label_as_often_as_guaranteed(kind: str, points: int, guaranteed: float) -> None:
    """Of 20 points drawn as the others are, or of 6 per class."""
    generator = np.random.default_rng(0)
    hits = []
    for _ in range(150):
        labels = generator.integers(3, size=40)
        if kind == "per-class":
            labels[:points] = np.arange(points) % 3
        X = generator.standard_normal((40, 4)) + 1.5 * np.eye(3, 4)[labels]
        if len(set(labels[:points])) == 3:
            fitted = FewShotClassifier().fit(X[:points], CLASSES[labels[:points]])
            sets = fitted.predict_set(X[points:], coverage=0.8, kind=kind)
            hits.append(np.mean([CLASSES[label] in each for label, each in zip(labels[points:], sets, strict=True)]))
    assert np.mean(hits) > guaranteed - 4 * np.std(hits) / len(hits) ** 0.5


@pytest.mark.parametrize("method", ["tim", "lssvm+psm", "svm"])
def test_methods_without_a_guarantee_refuse_sets_with_the_reason(method: str) -> None:
    X, y, query = draw()
    with pytest.raises(
        UsageError, match=r"no prediction sets with a guarantee for .*(depends on the other|its solution does not)"
    ):
        FewShotClassifier(method).fit(X, y).predict_set(query)


def test_a_coverage_that_few_points_cannot_guarantee_is_refused() -> None:
    X, y, query = draw(points=6)
    fitted = FewShotClassifier().fit(X, y)
    with pytest.raises(UsageError, match="6 labelled images can guarantee a coverage of at most 85.7 %"):
        fitted.predict_set(query, coverage=0.9, kind="marginal")
    few = "2 labelled images per class can .* at most 66.7 %, not 80 %: label 4 of each class, or ask for 0.66 or less"
    for arguments in ({"coverage": 0.8}, {}):  # the kind is never changed in silence, and 0.66 is not worth having
        with pytest.raises(UsageError, match=f"{few}, or choose the coverage kind 'marginal'"):
            fitted.predict_set(query, **arguments)
    assert len(fitted.predict_set(query, coverage=0.66)) == len(query)


def test_rare_classes_without_a_guarantee_of_their_own_are_named() -> None:
    X, y, query = draw(points=40)
    counts = dict.fromkeys(np.unique(y), 20) | {y[0]: 3}
    kept = np.concatenate([np.flatnonzero(y == label)[:count] for label, count in counts.items()])
    fitted = FewShotClassifier().fit(X[kept], y[kept])
    sentence = rf"labelled images of 1 of 3 classes \({y[0]} 3\) can guarantee a coverage of at most 75 %, not 80 %"
    with pytest.raises(UsageError, match=sentence):
        fitted.predict_set(query, coverage=0.8)
    assert len(fitted.predict_set(query, coverage=0.8, kind="marginal")) == len(query)


@pytest.mark.parametrize("method", ["nn", "lssvm", "rr(ridge=1)", "lssvm(ridge=loo)"])
@pytest.mark.parametrize("coarse", [False, True])
def test_a_set_contains_the_predicted_label(method: str, coarse: bool) -> None:
    """Also where logits tie: of coarse features, two thirds of which are zero."""
    generator = np.random.default_rng(0)
    y = np.repeat(CLASSES, 5)
    X, query = generator.standard_normal((15, 4)), generator.standard_normal((200, 4))
    if coarse:
        X, query = X.round() // 2, query.round() // 2
    fitted = FewShotClassifier(method).fit(X, y)
    predicted = fitted.predict(query)
    for coverage in (0.05, 0.5, 0.8):
        sets = fitted.predict_set(query, coverage)
        assert all(label in each for label, each in zip(predicted, sets, strict=True))
        assert [label for label, each in zip(predicted, sets, strict=True) if len(each) == 1] == [
            each[0] for each in sets if len(each) == 1
        ]


def test_sets_can_be_made_with_another_method() -> None:
    X, y, query = draw(points=30)
    mixed = FewShotClassifier("nn", set_method="lssvm").fit(X, y)
    other, plain = FewShotClassifier("lssvm").fit(X, y), FewShotClassifier("nn").fit(X, y)
    pairs = zip(mixed.predict_set(query, 0.7), other.predict_set(query, 0.7), plain.predict(query), strict=True)
    others = other.predict(query)
    for place, (found, made, label) in enumerate(pairs):
        assert label in found
        assert set(made) - {others[place]} <= set(found) <= set(made) | {label}
    assert len(FewShotClassifier("tim", set_method="nn").fit(X, y).predict_set(query, 0.7)) == len(query)
    with pytest.raises(UsageError, match="no prediction sets with a guarantee for svm"):
        FewShotClassifier("nn", set_method="svm").fit(X, y)


def test_updated_points_change_the_sets() -> None:
    X, y, query = draw(points=30)
    for set_method in (None, "rr(ridge=1)"):
        updated = FewShotClassifier(set_method=set_method).fit(X[:20], y[:20])
        updated.predict_set(query, 0.7)
        updated.partial_fit(X[20:], y[20:])
        anew = FewShotClassifier(set_method=set_method).fit(X, y)
        for one, other in zip(updated.predict_set(query, 0.7), anew.predict_set(query, 0.7), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["rr(normalize)+psm", "tim", "svm"])
def test_a_method_is_taken_as_an_object_too(name: str, tmp_path: Path) -> None:
    X, y, query = draw()
    mine, named = FewShotClassifier(parse_method(name)).fit(X, y), FewShotClassifier(name).fit(X, y)
    np.testing.assert_array_equal(mine.decision_function(query), named.decision_function(query))
    np.testing.assert_array_equal(clone(mine).fit(X, y).predict_proba(query), named.predict_proba(query))
    mine.save(tmp_path / "mine")
    assert FewShotClassifier.load(tmp_path / "mine").method == name


def test_an_object_that_no_name_describes_is_fitted_but_not_saved(tmp_path: Path) -> None:
    class Mine(Method):
        is_transductive = False

        def logits(self, features: EpisodeFeatures) -> Tensor:
            return features.query @ features.support.mT @ features.targets.to(features.query)

    X, y, query = draw()
    coded = KernelMethod(LSSVMClassifier(coding=2 * torch.eye(3) - 1))
    for method in (Mine(), parse_method("lssvm+iam(reduction=2)", dim=6), coded):
        classifier = FewShotClassifier(method).fit(X, y)
        assert len(classifier.predict(query)) == len(query)
        with pytest.raises(UsageError, match="holds a method's name only, which cannot describe"):
            classifier.save(tmp_path / "mine")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["svm", "simpleshot"])
def test_a_temperature_without_closed_form_is_that_of_points_left_out(method: str) -> None:
    """With at most ten points per class, of which each is left out with one of every other class."""
    X, y, _ = draw(points=9)
    X = np.concatenate([X, np.full((1, 6), 5.0)])
    labels = torch.tensor([*np.searchsorted(np.sort(CLASSES), y), 3])  # and the only one of a class
    mine = FittedMethod(parse_method(method), torch.from_numpy(X), labels, 4, torch.full((6,), 0.1))
    logits = mine.left_out()
    assert logits is not None
    seen = torch.zeros(4, dtype=torch.long)
    for place, label in enumerate(labels.tolist()):
        same = [other for other, its in enumerate(labels.tolist()) if other > place and its == label]
        assert same == [] or not torch.equal(logits[place], logits[same[0]])
        seen[label] += 1
    out = torch.tensor([labels.tolist().index(label) for label in range(3)])  # the first of each class
    kept = ~torch.isin(torch.arange(10), out)
    others = FittedMethod(parse_method(method), torch.from_numpy(X)[kept], labels[kept], 4, torch.full((6,), 0.1))
    torch.testing.assert_close(logits[out], others.logits(torch.from_numpy(X)[out]))
    assert logits[-1].tolist() == [0, 0, 0, 0]
    assert mine.temperature(mine.support[:0]) > 0


def test_probabilities_say_how_often_they_are_right() -> None:
    """Overlapping classes, in units that make the logits as they are too great or too small."""
    for method in ("nn", "lssvm", "svm"):
        surplus = []
        for seed in range(10):
            generator = np.random.default_rng(seed)
            labels = np.concatenate([np.arange(60) % 3, generator.integers(3, size=500)])
            X = 5 * (generator.standard_normal((560, 5)) + 1.2 * np.eye(3, 5)[labels])
            proba = FewShotClassifier(method).fit(X[:60], labels[:60]).predict_proba(X[60:])
            surplus.append(proba.max(1).mean() - (proba.argmax(1) == labels[60:]).mean())
        assert abs(np.mean(surplus)) < 0.05


def test_the_temperature_of_a_transductive_method_is_that_of_the_points_it_predicts() -> None:
    X, y, query = draw()
    classifier = FewShotClassifier("lssvm+psm").fit(X, y)
    spread = []
    for part in (query, query[:4]):
        likely, logits = classifier.predict_proba(part), classifier.decision_function(part)
        ratios = (logits - logits.mean(1, keepdims=True)) / (np.log(likely) - np.log(likely).mean(1, keepdims=True))
        np.testing.assert_allclose(ratios, ratios[0, 0])
        spread.append(ratios[0, 0])
    assert spread[0] != pytest.approx(spread[1], rel=1e-3)


def test_probabilities_that_no_labelled_point_confirms_are_uncalibrated() -> None:
    X, y, query = draw(points=3)
    for method in ("lssvm", "lssvm+psm", "svm"):
        classifier = FewShotClassifier(method).fit(X, y)
        assert not classifier.calibrated_
        assert "one labelled point" in classifier.why_uncalibrated
        if method != "lssvm":  # T = 1
            expected = torch.from_numpy(classifier.decision_function(query)).softmax(-1)
            np.testing.assert_allclose(classifier.predict_proba(query), expected)
        assert classifier.partial_fit(X + 0.1, y).calibrated_
    given = FewShotClassifier(temperature=2.0).fit(X, y)
    assert given.why_uncalibrated == "their temperature, 2, was given, and not fitted to labelled points"


@pytest.mark.parametrize("temperature", ["hot", 0.0, -1.0, float("nan")])
def test_other_temperatures_are_refused(temperature: float | str) -> None:
    X, y, _ = draw()
    with pytest.raises(UsageError, match="temperature(`|) must be"):
        FewShotClassifier(temperature=temperature).fit(X, y)


def test_methods_that_need_more_than_features_say_so() -> None:
    X, y, _ = draw()
    with pytest.raises(UsageError, match="pass base_mean"):
        FewShotClassifier("nn(center)").fit(X, y)
    with pytest.raises(UsageError, match="needs the images of an episode"):
        FewShotClassifier("lssvm+bn").fit(X, y)
    with pytest.raises(UsageError, match="there is no backbone"):
        FewShotClassifier().fit(["a.png", "b.png"], ["a", "b"])


def test_pipelines_searches_clones_and_pickles() -> None:
    X, y, query = draw(points=30)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FewShotClassifier()),
        {"fewshotclassifier__method": ["nn", "rr(ridge=1)", "lssvm"]},
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.5
    assert cross_val_score(FewShotClassifier(), X, y, cv=3).mean() > 0.5
    classifier = FewShotClassifier("rr").fit(X, y)
    assert_same(pickle.loads(pickle.dumps(classifier)), classifier, query)
    assert_same(clone(classifier).fit(X, y), classifier, query)


def test_suggestions_are_about_the_classes() -> None:
    X, y, query = draw()
    found = FewShotClassifier().fit(X, y).suggest(query, 3)
    assert len({each.place for each in found}) == 3
    assert all("between" in each.reason or "unlike" in each.reason for each in found)


@pytest.mark.parametrize("temperature", ["leave-one-out", 0.7])
@pytest.mark.parametrize("method", ["lssvm(ridge=0.3,normalize)", "simpleshot", "tim"])
def test_a_classifier_comes_back_from_its_file(method: str, temperature, tmp_path: Path) -> None:
    X, y, query = draw()
    classifier = make(method, temperature=temperature, seed=3).fit(
        X.astype(np.float32), y, [f"{i}.png" for i in range(15)]
    )
    classifier.save(tmp_path / "birds.fslstm")
    loaded = FewShotClassifier.load(tmp_path / "birds.fslstm")
    np.testing.assert_array_equal(loaded.decision_function(query), classifier.decision_function(query))
    np.testing.assert_array_equal(loaded.predict_proba(query), classifier.predict_proba(query))
    assert loaded.get_params().keys() == classifier.get_params().keys()
    assert (loaded.method, loaded.temperature, loaded.seed) == (method, temperature, 3)
    assert loaded.pictures_ == classifier.pictures_
    assert loaded.support_.dtype == np.float32
    more, new, _ = draw(2, points=6)
    assert_same(loaded.partial_fit(more, new), classifier.partial_fit(more, new), query)
    assert loaded.pictures_ == [*(f"{i}.png" for i in range(15)), *[""] * 6]


def test_a_file_with_a_method_that_is_not_here_gets_a_sentence(tmp_path: Path) -> None:
    X, y, _ = draw()
    classifier = FewShotClassifier().fit(X, y)
    classifier.method = "lsvm"
    classifier.save(tmp_path / "a")
    with pytest.raises(RunError, match=r"classifier in .* cannot be used here: There is no method or head 'lsvm'"):
        FewShotClassifier.load(tmp_path / "a")


class Colours(nn.Module):
    """Mean colour of each corner."""

    image_size = 8

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, images: Tensor) -> Tensor:
        return self.factor * nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Red, green and blue ones, in turn."""
    generator = np.random.default_rng(0)
    files = [tmp_path / f"{number}.png" for number in range(12)]
    for number, file in enumerate(files):
        pixels = generator.integers(0, 100, (20, 30, 3))
        pixels[..., number % 3] += 120
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    return files


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "LA", "P"])
def test_an_image_is_seen_as_its_file_is(mode: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(values[..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(values).convert("RGBA" if mode == "P" else mode)
        image = image.quantize(8) if mode == "P" else image
    image.save(tmp_path / "1.png")
    opened = Image.open(tmp_path / "1.png")
    X = [tmp_path / "1.png", *[opened] * 20]  # not decoded yet, and the same
    found = FewShotClassifier(backbone=Colours())._features(X)
    np.testing.assert_array_equal(found, found[:1].repeat(21, 0))
    assert FewShotClassifier(backbone=Colours())._features([image]) == pytest.approx(found[:1])


def test_an_image_that_is_cut_short_gets_a_sentence(pictures: list[Path]) -> None:
    pictures[0].write_bytes(pictures[0].read_bytes()[:-200])
    with pytest.raises(DataError, match=r"0\.png is damaged, or not an image"):
        FewShotClassifier(backbone=Colours()).fit([Image.open(file) for file in pictures], ["a", "b"] * 6)


def test_pictures_with_a_backbone(pictures: list[Path], tmp_path: Path) -> None:
    names = np.array(["red", "green", "blue"] * 4)
    classifier = FewShotClassifier("rr(ridge=1)", backbone=Colours()).fit(pictures[:6], names[:6])
    assert classifier.predict(pictures[6:]).tolist() == names[6:].tolist()
    assert classifier.pictures_ == [str(file) for file in pictures[:6]]
    assert classifier.n_features_in_ == 12
    images = [Image.open(file) for file in pictures[6:]]
    np.testing.assert_array_equal(classifier.decision_function(images), classifier.decision_function(pictures[6:]))
    texts = np.array([str(file) for file in pictures[6:]])
    np.testing.assert_array_equal(classifier.decision_function(texts), classifier.decision_function(pictures[6:]))
    features = classifier._features(pictures[6:])
    np.testing.assert_array_equal(classifier.decision_function(features), classifier.decision_function(pictures[6:]))
    assert cross_val_score(clone(classifier), pictures, names, cv=2).mean() == 1
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="broken.png"):
        classifier.predict([*pictures, tmp_path / "broken.png"])


def test_a_file_knows_the_backbone_that_its_features_are_from(pictures: list[Path], tmp_path: Path) -> None:
    backbone, file = open_backbone(Colours()), tmp_path / "a.fslstm"
    classifier = FewShotClassifier(backbone=backbone).fit(pictures, ["red", "green", "blue"] * 4)
    classifier.save(file)
    loaded = FewShotClassifier.load(file, backbone=Colours())
    np.testing.assert_array_equal(loaded.decision_function(pictures), classifier.decision_function(pictures))
    with pytest.raises(RunError, match=r"was made with the backbone module:Colours of other weights \(\w{12}\) than"):
        FewShotClassifier.load(file, backbone=Colours(2.0))
    with pytest.raises(UsageError, match="cannot be opened by name"):
        FewShotClassifier.load(file)
    FewShotClassifier().fit(np.eye(4), [0, 1, 0, 1]).save(file)
    with pytest.raises(RunError, match=f"{file} has features of length 4, but those of module:Colours have 12"):
        FewShotClassifier.load(file, backbone=Colours())


def test_a_backbone_is_opened_again_by_its_name(pictures: list[Path], tmp_path: Path) -> None:
    from fslstm_plugin.backbones import Conv4
    from fslstm_plugin.storage.weights import save_tensors

    save_tensors(tmp_path / "conv4.safetensors", Conv4(image_size=32).state_dict())
    backbone = open_backbone("conv4", weights=tmp_path / "conv4.safetensors", image_size=32)
    classifier = FewShotClassifier(backbone=backbone).fit(pictures, ["red", "green", "blue"] * 4)
    classifier.save(tmp_path / "a")
    loaded = FewShotClassifier.load(tmp_path / "a")
    assert repr(loaded) == "FewShotClassifier(backbone=PictureBackbone('conv4', 32 x 32 pixels to 2048 features))"
    np.testing.assert_allclose(loaded.decision_function(pictures), classifier.decision_function(pictures), rtol=1e-6)


def test_it_is_exported() -> None:
    assert fslstm_plugin.FewShotClassifier is FewShotClassifier


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": None}, "The method must be one or the name of one, such as 'lssvm', but got None"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0 and at most 4,294,967,295, but got -1"),
        ({"seed": "x"}, "`seed` must be a whole number of at least 0 and at most 4,294,967,295, but got 'x'"),
        ({"base_mean": [1.0, 2.0]}, "`base_mean` must be 4 finite numbers"),
        ({"base_mean": [np.nan] * 4}, "`base_mean` must be 4 finite numbers"),
        ({"base_mean": "mean"}, "`base_mean` must be 4 finite numbers"),
    ],
)
def test_wrong_settings_are_named_at_fit(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        FewShotClassifier(**{"method": "lssvm(center)", **settings}).fit(np.eye(4), list("abab"))


def test_after_a_fit_that_failed_it_is_not_fitted() -> None:
    for classifier, unfitted in ((FewShotClassifier("none"), NotFittedError), (Classifier("none"), UsageError)):
        with pytest.raises(UnknownNameError):
            classifier.fit(np.eye(4), list("abab"))
        with pytest.raises(unfitted, match="fit"):
            classifier.predict(np.eye(4))


def test_a_class_that_no_file_can_hold(tmp_path: Path) -> None:
    classifier = FewShotClassifier().fit(np.eye(4), ["\udcff", "b", "\udcff", "b"])
    with pytest.raises(UsageError, match="characters that no file can hold"):
        classifier.save(tmp_path / "x.fslstm")
    assert not list(tmp_path.iterdir())


def test_what_numpy_gives_is_saved_as_what_it_is(tmp_path: Path) -> None:
    X, y, query = draw()
    given = {"seed": np.int64(2**31), "temperature": np.float64(2), "method": np.str_("rr")}
    classifier = FewShotClassifier(**given).fit(X, y, np.arange(len(X)))
    classifier.save(tmp_path / "c.fslstm")
    loaded = FewShotClassifier.load(tmp_path / "c.fslstm")
    assert_same(classifier, loaded, query)
    assert (loaded.seed, loaded.temperature, loaded.method) == (2**31, 2.0, "rr")
    assert loaded.pictures_ == [str(number) for number in range(len(X))]


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    X, y, _ = draw()
    (tmp_path / "link").symlink_to("c.fslstm")
    FewShotClassifier("nn").fit(X, y).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert FewShotClassifier.load(tmp_path / "c.fslstm").method == "nn"


def test_tensors_of_every_kind_are_taken_like_arrays() -> None:
    support, names, query = draw()
    labels = np.unique(names, return_inverse=True)[1]
    expected = FewShotClassifier().fit(support, labels).predict(query)
    points = torch.from_numpy(support).float()
    for given in (
        points.requires_grad_(),
        points.detach().bfloat16().requires_grad_(),
        list(points.detach()),
        tuple(points.half()),
        points.detach().to(torch.float8_e5m2),
    ):
        fitted = FewShotClassifier(base_mean=torch.zeros(6, requires_grad=True)).fit(given, torch.from_numpy(labels))
        assert fitted.n_features_in_ == 6
        assert (fitted.predict(torch.from_numpy(query).requires_grad_()) == expected).mean() > 0.9
    with pytest.raises(UsageError, match="This tensor cannot become an array"):
        FewShotClassifier().fit(torch.eye(4).to_sparse(), [0, 0, 1, 1])


def test_masked_values_are_refused_and_not_taken_for_what_lies_below() -> None:
    points, labels = np.eye(4), [0, 0, 1, 1]
    masked = np.ma.masked_equal(points, 1)
    fitted = FewShotClassifier().fit(np.ma.masked_equal(points, 7), labels)  # none is masked
    for call in (
        lambda: FewShotClassifier().fit(masked, labels),
        lambda: FewShotClassifier().fit([*masked], labels),
        lambda: FewShotClassifier().fit(points, np.ma.masked_equal(labels, 1)),
        lambda: fitted.partial_fit(masked, labels),
        lambda: fitted.predict(masked),
    ):
        with pytest.raises(UsageError, match="must have no masked values, but has"):
            call()


@pytest.fixture(scope="module")
def small() -> FewShotClassifier:
    from fslstm_plugin.backbones import Conv4

    return FewShotClassifier(backbone=Conv4(image_size=32))


def test_arrays_of_pixels_are_pictures(small: FewShotClassifier) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (40, 50, 3), dtype=np.uint8) for _ in range(4)]
    expected = small.fit([Image.fromarray(each) for each in pixels], [0, 0, 1, 1]).support_
    for given in (
        pixels,
        np.stack(pixels),
        tuple(pixels),
        [torch.from_numpy(each).permute(2, 0, 1) for each in pixels],
        torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2),
    ):
        np.testing.assert_array_equal(small.fit(given, [0, 0, 1, 1]).support_, expected)
        assert small.predict(given).shape == (4,)
    grey = [each[..., 0] for each in pixels]
    assert small.fit(grey, [0, 0, 1, 1]).support_.shape == expected.shape
    assert FewShotClassifier().fit(np.eye(4, dtype=np.uint8), [0, 0, 1, 1]).n_features_in_ == 4, "features, as before"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a.png", r"X must be a list of pictures, but is one \(a.png\): put it in a list"),
        (Path("a.png"), "X must be a list of pictures, but is one"),
        (Image.new("RGB", (9, 9)), r"is one \(an image\)"),
        ([np.zeros((9, 9, 3))] * 4, r"must be uint8 of shape \(H, W, 3\) or \(H, W\), but got float64"),
        ([np.zeros((9, 9, 4), np.uint8)] * 4, r"but got uint8 of shape \(9, 9, 4\)"),
        (np.ma.masked_equal(np.ones((4, 9, 9, 3), np.uint8), 1), "A picture must have no masked values"),
        (["a.png", 3, "b.png", "c.png"], "X holds pictures, but also an object of type int"),
    ],
)
def test_what_are_no_points_is_one_sentence(given, words: str, small: FewShotClassifier) -> None:
    for call in (lambda: small.fit(given, [0, 0, 1, 1]), lambda: FewShotClassifier().fit(given, [0, 0, 1, 1])):
        with pytest.raises(UsageError, match=words):
            call()
    fitted = FewShotClassifier().fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(UsageError, match=words):
        fitted.predict(given)


def test_missing_groups_are_points_by_themselves() -> None:
    X, y, query = draw()
    bursts = ["a", "a", *[None] * (len(X) - 2)]
    expected = FewShotClassifier().fit(X, y, groups=bursts)

    class NotAvailable:  # as pandas' NA
        def __eq__(self, other: object) -> object:  # type: ignore[override]
            return self

        __ne__ = __eq__

        def __bool__(self) -> bool:
            raise TypeError

    for missing in (float("nan"), np.datetime64("NaT", "D"), np.ma.masked, NotAvailable(), ""):
        found = FewShotClassifier().fit(X, y, groups=[missing if each is None else each for each in bursts])
        assert found.groups_ == expected.groups_
        np.testing.assert_array_equal(found.predict_proba(query), expected.predict_proba(query))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fitted: fitted.remove([0, 0]), "named twice"),
        (lambda fitted: fitted.remove([999]), "`places` must be a whole number"),
    ],
)
def test_rows_that_are_not_there_once_are_refused_and_nothing_changes(call, message: str) -> None:
    X, y, _ = draw()
    fitted = FewShotClassifier().fit(X, y)
    before = fitted.support_labels_.copy()
    with pytest.raises(UsageError, match=message):
        call(fitted)
    np.testing.assert_array_equal(fitted.support_labels_, before)
