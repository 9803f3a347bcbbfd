"""Labels that are taken without a look: the promise holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fslstm_plugin import FewShotClassifier
from fslstm_plugin.confidence.certainty import LeftOut, cautious, least_probability
from fslstm_plugin.errors import UsageError
from fslstm_plugin.pictures.predictor import left_out


@given(st.lists(st.sampled_from([0.3, 0.5, 0.8, 0.9, 0.99, 1.0]), max_size=30), st.floats(0.01, 0.5))
def test_as_many_are_taken_as_the_share_allows(probabilities: list[float], share: float) -> None:
    given = np.array(probabilities)
    pictures = len(given) + 3
    least = least_probability(given, pictures, share)
    expected = {each: float((1 - given[given >= each]).sum()) for each in probabilities}
    allowed = [each for each, wrong in expected.items() if wrong <= share * pictures + 1e-12]
    assert least == (min(allowed) if allowed else math.inf)


@given(
    st.lists(st.sampled_from([0.3, 0.5, 0.8, 0.9, 0.99, 1.0]), max_size=30),
    st.lists(st.tuples(st.sampled_from([0.3, 0.5, 0.8, 0.9]), st.booleans()), min_size=1, max_size=30),
    st.floats(0.01, 0.5),
)
def test_no_more_of_the_labelled_points_would_be_sure_and_wrong(
    probabilities: list[float], labelled: list[tuple[float, bool]], share: float
) -> None:
    shares = np.array([[each, 1 - each] for each, _ in labelled])
    wrong = np.array([is_wrong for _, is_wrong in labelled])
    left_out = LeftOut.of(shares, np.where(wrong, 1 - shares.argmax(-1), shares.argmax(-1)))
    least = least_probability(np.array(probabilities), len(probabilities) + 3, share, left_out)
    assert least >= least_probability(np.array(probabilities), len(probabilities) + 3, share)
    if math.isfinite(least):
        assert (wrong & (shares.max(-1) >= least)).sum() <= share * len(labelled) + 1e-9


def test_cautious_probabilities_keep_their_order_and_are_no_greater() -> None:
    shares = np.random.default_rng(0).dirichlet([0.3] * 4, size=50)
    found = cautious(shares, np.array([2, 5, 5, 1]))
    assert np.array_equal(found.argsort(-1), shares.argsort(-1))
    assert (found.max(-1) <= shares.max(-1)).all()
    np.testing.assert_allclose(found.sum(-1), 1)
    np.testing.assert_allclose(cautious(np.array([1.0, 0.0]), np.array([1, 1])), 0.5)


def test_the_share_is_within_its_range() -> None:
    with pytest.raises(UsageError, match="`wrong_at_most` must be"):
        least_probability(np.ones(3), 3, 1.0)


def _draw(
    generator: np.random.Generator, sizes: Sequence[int], shares: np.ndarray, spread: float
) -> tuple[np.ndarray, ...]:
    """Labelled points of classes of these sizes, and new ones in these shares.

    The classes are around random means, some directions of which vary more than others, as features do.
    """
    means = generator.normal(size=(len(sizes), 64))
    scale = spread * np.geomspace(3, 0.3, 64)
    labels, new = np.repeat(np.arange(len(sizes)), sizes), generator.choice(len(sizes), 200, p=shares)
    support, query = (means[each] + generator.normal(size=(len(each), 64)) * scale for each in (labels, new))
    return support, labels, query, new


def _wrong_and_sure(method: str, sizes: Sequence[int], shares: np.ndarray, spread: float = 1.0) -> tuple[float, float]:
    """Shares of the labels that are wrong and sure, and that are sure, in 30 draws."""
    generator = np.random.default_rng(sum(sizes))
    wrong, taken = [], []
    for _ in range(30):
        support, labels, new, truth = _draw(generator, sizes, shares, spread)
        classifier = FewShotClassifier(method).fit(support, labels)
        found = cautious(classifier.predict_proba(new), np.array(sizes))
        sure = found.max(-1) >= least_probability(found.max(-1), len(new), 0.05, left_out(classifier))
        wrong.append((sure & (found.argmax(-1) != truth)).mean())
        taken.append(sure.mean())
    return float(np.mean(wrong)), float(np.mean(taken))


@pytest.mark.parametrize("shots", [2, 5, 20])
@pytest.mark.parametrize("ways", [2, 5, 20])
@pytest.mark.parametrize("method", ["lssvm(ridge=1,normalize)", "nn"])
def test_few_pictures_get_a_wrong_label_that_is_sure(method: str, ways: int, shots: int) -> None:
    wrong, taken = _wrong_and_sure(method, [shots] * ways, np.full(ways, 1 / ways))
    assert wrong < 0.06
    assert taken > 0.05


@pytest.mark.parametrize("sizes", [(30, 3), (30, 30, 3, 3, 3, 3, 3, 3)])
def test_of_unequal_numbers_it_holds_in_their_proportions_alone(sizes: tuple[int, ...]) -> None:
    counts, method = np.array(sizes), "lssvm(ridge=1,normalize)"
    wrong, _ = _wrong_and_sure(method, sizes, counts / counts.sum(), spread=3.0)
    equally, _ = _wrong_and_sure(method, sizes, np.full(len(sizes), 1 / len(sizes)), spread=3.0)
    assert wrong < 0.05 < 0.06 < equally
