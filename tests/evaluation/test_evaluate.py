"""`evaluate`, for features in Python: what it takes, and the sentence for what it refuses."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.adapters import FeatureAdapter, InverseAttentionModule
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.evaluate import evaluate
from fslstm_plugin.heads import LSSVMClassifier, RidgeClassifier
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.kernel import KernelMethod

LABELS = np.repeat(np.arange(6), 20)
FEATURES = np.random.default_rng(0).normal(size=(120, 16)) + np.eye(6, 16)[LABELS]
SHORT = {"episodes": 20, "queries": 5}


def accuracy(features, labels) -> float:
    (row,) = evaluate(features, labels, ["nn"], **SHORT)
    return row.accuracy


def test_a_default_device_changes_nothing() -> None:
    def numbers() -> list:
        rows = evaluate(FEATURES, LABELS, ["lssvm(ridge=loo,coding=ecoc)", "tim", "svm+psm"], **SHORT)
        classifier = FewShotClassifier().fit(FEATURES[::2], LABELS[::2]).partial_fit(FEATURES[1:9], LABELS[1:9])
        sets = [each.tolist() for each in classifier.remove([3]).predict_set(FEATURES, 0.8)]
        suggested = [each.place for each in classifier.suggest(FEATURES, 3)]
        return [
            *((row.accuracy, row.ci95) for row in rows),
            classifier.predict_proba(FEATURES).tolist(),
            sets,
            suggested,
        ]

    expected = numbers()
    with torch.device("meta"):  # as "cuda" by `torch.set_default_device`, where there is no GPU
        assert numbers() == expected


def test_any_order_of_bytes_length_of_floats_and_layout_is_taken() -> None:
    expected = accuracy(FEATURES, LABELS)
    for kind in (">f8", "<f4", ">f4", np.longdouble):
        assert accuracy(FEATURES.astype(kind), LABELS) == expected, kind
    assert accuracy(torch.tensor(FEATURES), torch.tensor(LABELS)) == expected
    assert accuracy(torch.tensor(FEATURES).to_sparse(), LABELS) == expected
    assert accuracy(FEATURES, [f"class {label}" for label in LABELS]) == expected


@pytest.mark.parametrize(
    ("features", "labels", "methods", "message"),
    [
        (FEATURES, np.where(LABELS == 3, np.nan, LABELS), ["nn"], "Some labels are not a number"),
        (FEATURES, np.array([None, *LABELS[1:]], dtype=object), ["nn"], "labels must be of one type"),
        (FEATURES, torch.tensor(LABELS).to_sparse(), ["nn"], "`labels` must be one array of labels"),
        (FEATURES, torch.tensor(LABELS).to("meta"), ["nn"], "`labels` must be one array of labels"),
        (FEATURES, [[1], [2, 3]] * 60, ["nn"], "`labels` must be one array of labels"),
        (torch.tensor(FEATURES).to("meta"), LABELS, ["nn"], "`features` must be an array of floating-point numbers"),
        (torch.nested.nested_tensor([*torch.tensor(FEATURES)]), LABELS, ["nn"], "`features` must be an array of"),
        (np.ma.masked_greater(FEATURES, 2), LABELS, ["nn"], "`features` must have no masked values, but has"),
        ([*np.ma.masked_greater(FEATURES, 2)], LABELS, ["nn"], "`features` must have no masked values, but has"),
        (FEATURES, np.ma.masked_equal(LABELS, 3), ["nn"], "`labels` must have no masked values, but has 20: leave"),
        (FEATURES.astype(int), LABELS, ["nn"], "must be floating point"),
        (FEATURES.astype(str).astype(object), LABELS, ["nn"], "must be an array of floating-point numbers"),
        (FEATURES * np.inf, LABELS, ["nn"], "`features` must be finite"),
        (FEATURES * 1e25, LABELS, ["nn"], "too large for float32"),  # their squares are
        (FEATURES + 1e9, LABELS, ["nn"], "so far from 0 that rounding hides their differences"),
        (FEATURES, LABELS, "nn", "methods must be a list of names or methods"),
        (FEATURES, LABELS, [], "methods must be a list of names or methods"),
        (FEATURES, LABELS, [3], "methods must be a list of names or methods"),
        (FEATURES, LABELS, ["lssvm+bn"], "needs images, and there are none with"),
        (FEATURES, LABELS, ["feat"], "trained with a backbone, and there are none with"),
    ],
)
def test_other_data_is_refused(features, labels, methods, message) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(features, labels, methods, **SHORT)


def test_a_callers_method_stays_as_it_was() -> None:
    method = KernelMethod(LSSVMClassifier()).train()
    evaluate(FEATURES, torch.tensor(LABELS, dtype=torch.float32, requires_grad=True), [method], **SHORT)
    assert method.training


@pytest.mark.parametrize("name", ["ways", "shots", "queries", "seed", "episodes"])
@pytest.mark.parametrize("value", [2.5, "2", -1, True])
def test_what_is_counted_is_a_whole_number(name, value) -> None:
    with pytest.raises(UsageError, match=name):
        evaluate(FEATURES, LABELS, ["nn"], **(SHORT | {name: value}))


def test_several_shots_have_a_row_for_each() -> None:
    rows = evaluate(FEATURES, LABELS, ["nn", "rr"], shots=[1, 5], **SHORT)
    assert [(row.shots, row.method) for row in rows] == [(1, "nn"), (1, "rr"), (5, "nn"), (5, "rr")]
    for row in rows:
        (alone,) = evaluate(FEATURES, LABELS, [row.method], shots=row.shots, **SHORT)
        assert row.accuracy == alone.accuracy


@pytest.mark.parametrize("shots", [range(1, 3), np.array([1, 2, 1]), torch.tensor([1, 2])])
def test_numbers_of_arrays_are_numbers(shots) -> None:
    short = {name: np.int64(value) for name, value in SHORT.items()}
    rows = evaluate(FEATURES, LABELS, ["nn"], shots=shots, **short)
    assert [row.shots for row in rows] == [1, 2]
    assert msgspec.json.encode(rows)


def test_a_word_of_numpys_is_a_word() -> None:
    assert str(KernelMethod(LSSVMClassifier(coding=np.str_("ecoc")))) == "lssvm(coding=ecoc)"


def test_methods_that_differ_in_an_array_have_a_row_each() -> None:
    codes = 2 * torch.eye(5) - 1, torch.eye(5) - torch.eye(5).roll(1, 0)
    methods = [KernelMethod(LSSVMClassifier(coding=code)) for code in codes]
    rows = evaluate(FEATURES, LABELS, methods, **SHORT)
    assert len({row.method for row in rows}) == 2
    for row, method in zip(rows, methods, strict=True):
        (alone,) = evaluate(FEATURES, LABELS, [method], **SHORT)
        assert (row.method, row.accuracy) == (alone.method, alone.accuracy)


def test_methods_of_one_name_with_other_weights_are_refused_together() -> None:
    methods = [KernelMethod(LSSVMClassifier(), [InverseAttentionModule(16)]) for _ in range(2)]
    with pytest.raises(UsageError, match=r"Two methods with weights are called lssvm\+iam: evaluate each by itself"):
        evaluate(FEATURES, LABELS, methods, **SHORT)
    assert len(evaluate(FEATURES, LABELS, [methods[0], methods[0], "nn", "nn"], **SHORT)) == 2


class Doubling(Method):
    is_transductive = False

    def logits(self, features):
        return features.query.mul_(2) @ features.support.mT @ features.targets.to(features.query)


class DoublingHead(RidgeClassifier):
    def solve(self, kernel, targets):
        return super().solve(kernel.mul_(2), targets)


class DoublingAdapter(FeatureAdapter):
    def adapt(self, features):
        return features.derived(lambda points: points.mul_(2))


@pytest.mark.parametrize(
    "method",
    [
        Doubling(),
        KernelMethod(DoublingHead()),
        KernelMethod(RidgeClassifier(), [DoublingAdapter()]),
    ],
    ids=str,
)
def test_a_method_that_changes_what_the_others_are_given_is_refused(method: Method) -> None:
    with pytest.raises(UsageError, match="changes in place what it is given: see"):
        evaluate(FEATURES, LABELS, [method, "nn", "svm"], **SHORT)


def test_a_classifier_refuses_a_method_that_changes_its_points() -> None:
    classifier = FewShotClassifier(Doubling(), temperature=1.0).fit(FEATURES, LABELS)
    with pytest.raises(UsageError, match="Doubling changes in place what it is given"):
        classifier.predict(FEATURES)


class Raw(FeatureAdapter):
    def adapt(self, features):
        return features.points


def test_an_adapter_that_gives_no_features_is_named() -> None:
    with pytest.raises(UsageError, match=r"Raw.adapt must give EpisodeFeatures, as .*, but gave a Tensor"):
        evaluate(FEATURES, LABELS, [KernelMethod(RidgeClassifier(), [Raw()])], **SHORT)


@pytest.mark.parametrize("shots", [[1, 0], [[1]], ["1"], [], np.array([]), torch.tensor([])])
def test_shots_that_are_no_numbers_are_refused(shots) -> None:
    message = "of at least 1" if len(shots) else r"or several, such as 5 or \[1, 5\], but got none"
    with pytest.raises(UsageError, match=f"`shots` must be a whole number {message}"):
        evaluate(FEATURES, LABELS, ["nn"], shots=shots, **SHORT)


def test_an_episode_has_two_ways_at_least() -> None:
    for ways in (1, 10**20):
        with pytest.raises(UsageError, match="`ways` must be a whole number of at least 2 and at most 1,000,000"):
            evaluate(FEATURES, LABELS, ["nn"], ways=ways, **SHORT)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="fpga"):
        evaluate(FEATURES, LABELS, ["nn"], device="fpga", **SHORT)


def test_a_method_that_does_not_say_whether_it_is_transductive_is_named() -> None:
    from fslstm_plugin.testing import check_method

    class Silent(Method):
        def logits(self, features):
            return features.query @ features.support.mT @ features.targets.to(features.query)

    with pytest.raises(AssertionError, match="Silent: is_transductive must say"):
        check_method(Silent)


@pytest.mark.parametrize("method", ["lssvm", "rr", "nn"])
def test_a_classifier_refuses_features_that_rounding_would_decide(method: str) -> None:
    with pytest.raises(UsageError, match="so far from 0 that rounding hides their differences"):
        FewShotClassifier(method=method).fit(FEATURES + 1e12, LABELS)


@pytest.mark.parametrize("method", ["lssvm", "rr"])
def test_features_too_small_beside_the_ridge_are_refused(method: str) -> None:
    with pytest.raises(UsageError, match="so small that beside a ridge of"):
        FewShotClassifier(method=method).fit(FEATURES * 1e-9, LABELS).predict_proba(FEATURES)
    FewShotClassifier(method=f"{method}(normalize)").fit(FEATURES * 1e-9, LABELS).predict_proba(FEATURES)
