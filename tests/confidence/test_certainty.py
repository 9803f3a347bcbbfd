"""Labels that are taken without a look: the promise holds."""

from __future__ import annotations

import math

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


def _draw(generator: np.random.Generator, ways: int, shots: int, spread: float) -> tuple[np.ndarray, ...]:
    """Classes around random means, some directions of which vary more than others, as features do."""
    means = generator.normal(size=(ways, 64))
    scale = spread * np.geomspace(3, 0.3, 64)
    support = np.repeat(means, shots, 0) + generator.normal(size=(ways * shots, 64)) * scale
    new = generator.integers(ways, size=200)
    return support, np.repeat(np.arange(ways), shots), means[new] + generator.normal(size=(200, 64)) * scale, new


@pytest.mark.parametrize("shots", [2, 5, 20])
@pytest.mark.parametrize("ways", [2, 5, 20])
@pytest.mark.parametrize("method", ["lssvm(ridge=1,normalize)", "nn"])
def test_few_pictures_get_a_wrong_label_that_is_sure(method: str, ways: int, shots: int) -> None:
    generator = np.random.default_rng(ways * shots)
    wrong, taken = [], []
    for _ in range(30):
        support, labels, new, truth = _draw(generator, ways, shots, spread=1.0)
        classifier = FewShotClassifier(method).fit(support, labels)
        shares = cautious(classifier.predict_proba(new), np.array([shots] * ways))
        sure = shares.max(-1) >= least_probability(shares.max(-1), len(new), 0.05, left_out(classifier))
        wrong.append((sure & (shares.argmax(-1) != truth)).mean())
        taken.append(sure.mean())
    assert np.mean(wrong) < 0.06
    assert np.mean(taken) > 0.05
