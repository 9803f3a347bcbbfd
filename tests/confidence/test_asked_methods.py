"""A method of anyone's with a closed form for leaving out has all that heads have, and with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, FewShotClassifier, Method, parse_method
from fslstm_plugin.classifier.selection import choose_method
from fslstm_plugin.confidence.calibration import temperature_of, why_uncalibrated
from fslstm_plugin.confidence.conformal import KINDS, p_values
from fslstm_plugin.heads.leave_one_out import one_of_each_class
from fslstm_plugin.registry import METHODS
from fslstm_plugin.testing import check_method, small_episodes

WAYS = 3


class Means(Method):
    """Minus the squared distance to the mean of each class, in features."""

    is_transductive = False
    why_no_leave_one_out = None  # type: ignore[assignment]

    def logits(self, features: EpisodeFeatures) -> Tensor:
        targets = features.targets.to(features.support)
        means = targets.mT @ features.support / targets.sum(-2).unsqueeze(-1)
        return self._compared(features.query.unsqueeze(-2), means.unsqueeze(-3))

    def leave_one_out(self, features: EpisodeFeatures, *, of_each_class: bool = True) -> Tensor:
        targets = features.targets.to(features.support)
        points, leave = one_of_each_class(targets)
        gone = (leave if of_each_class else targets > 0).to(targets).unsqueeze(-1)
        lost = F.one_hot(points, targets.shape[-2]).to(targets) @ features.support.unsqueeze(-3) * gone
        counts = targets.sum(-2).unsqueeze(-1).unsqueeze(-3) - gone
        means = ((targets.mT @ features.support).unsqueeze(-3) - lost) / counts.clamp(min=1)
        found = self._compared(features.support.unsqueeze(-2), means)
        return torch.where(counts.squeeze(-1) > 0, found, -torch.inf)

    def _compared(self, points: Tensor, means: Tensor) -> Tensor:
        return -(points - means).square().mean(-1)


@pytest.fixture
def means() -> Iterator[Method]:
    METHODS.register("own-means", Means)
    try:
        yield parse_method("own-means")
    finally:
        METHODS.forget("own-means")


def drawn(seed: int, shots: tuple[int, ...]) -> EpisodeFeatures:
    support, labels, query = small_episodes(seed, shots, batch=(2,))
    return EpisodeFeatures(support, query, labels, WAYS)


def test_it_keeps_the_contract(means: Method) -> None:
    check_method(type(means))


def test_a_wrong_closed_form_is_noticed() -> None:
    class Careless(Means):
        def leave_one_out(self, features: EpisodeFeatures, *, of_each_class: bool = True) -> Tensor:
            return 1.01 * super().leave_one_out(features, of_each_class=of_each_class)

    with pytest.raises(AssertionError, match="leave_one_out must give a point the logits of a fit without it"):
        check_method(Careless)


@pytest.mark.parametrize("shots", [(1, 1, 1), (4, 4, 4), (5, 2, 1)])
def test_its_temperature_is_that_of_the_head(means: Method, shots: tuple[int, ...]) -> None:
    features = drawn(0, shots)
    torch.testing.assert_close(temperature_of(means, features), temperature_of(parse_method("nn"), features))
    assert why_uncalibrated(means, features.targets, 5) == why_uncalibrated(parse_method("nn"), features.targets, 5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shots", [(4, 4, 4), (5, 2, 1)])
def test_its_p_values_are_those_of_the_head(means: Method, shots: tuple[int, ...], kind: str) -> None:
    features = drawn(1, shots)
    torch.testing.assert_close(p_values(means, features, kind), p_values(parse_method("nn"), features, kind))


def test_it_is_fitted_chosen_and_makes_prediction_sets(means: Method) -> None:
    support, labels, query = small_episodes(2, (6, 5, 4))
    mine, head = (FewShotClassifier(name).fit(support, labels) for name in (str(means), "nn"))
    assert mine.temperature_ == pytest.approx(head.temperature_)
    for kind in KINDS:
        found, expected = (each.predict_set(query, coverage=0.75, kind=kind) for each in (mine, head))
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    assert mine.left_out() == pytest.approx(head.left_out())
    chosen, plain = (choose_method(support, labels, [name]) for name in (str(means), "nn"))
    assert chosen.expected == pytest.approx(plain.expected)
