"""The ridge that the support chooses itself, against refits without each point."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.errors import UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import LSSVMClassifier, RidgeClassifier, one_hot
from fslstm_plugin.heads.leave_one_out import choose_ridge, leave_one_out_errors
from fslstm_plugin.transduction import PseudoSupportModule


def episode(seed: int, points: int = 12, dim: int = 6, ways: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(points) % ways)[torch.randperm(points, generator=generator)]
    features = torch.randn(points + 5, dim, generator=generator, dtype=torch.float64)
    features[:points] += 2 * torch.eye(ways, dim, dtype=torch.float64)[labels]
    return features[:points], labels, features[points:]


def refitted_error(support: Tensor, labels: Tensor, ridge: float, coding: str) -> float:
    """The error of each point's binary scores from an LSSVM fitted to all others, by the head itself."""
    error = 0.0
    for left_out in range(len(support)):
        others = torch.arange(len(support)) != left_out
        head = LSSVMClassifier(ridge=ridge, coding=coding)
        code = head.code(3).double()
        gram = EpisodeGram.from_features(support[others], support[left_out : left_out + 1])
        dual = head._solve_binary(gram.support, one_hot(labels[others], 3), code)
        scores = gram.cross @ dual.alpha + dual.bias
        error += (code[labels[left_out]] - scores).square().sum().item()
    return error


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), ridge=st.floats(1e-3, 1e3), coding=st.sampled_from(["one-vs-all", "ecoc"]))
def test_the_closed_form_is_the_error_of_explicit_refits(seed: int, ridge: float, coding: str) -> None:
    support, labels, _ = episode(seed)
    head = LSSVMClassifier(coding=coding)
    matrix = support @ support.mT + 1 / head.bias_weight
    right = head.code(3).double()[labels]
    found = leave_one_out_errors(matrix, right, torch.tensor([ridge, 2 * ridge]).double(), torch.ones(12).double())
    expected = [refitted_error(support, labels, factor * ridge, coding) for factor in (1, 2)]
    assert found.tolist() == pytest.approx(expected, rel=1e-7)


def test_the_chosen_ridge_has_the_least_error_of_explicit_refits() -> None:
    support, labels, query = episode(5)
    matrix = support @ support.mT + 0.5
    right = LSSVMClassifier().code(3).double()[labels]
    kernel = support @ support.mT
    chosen = choose_ridge(kernel, matrix, right, torch.ones(12, dtype=torch.float64)).item()
    scale = kernel.diagonal().mean().item()
    errors = {
        ridge: refitted_error(support, labels, ridge, "one-vs-all")
        for ridge in (scale * 10 ** (step / 2) for step in range(-8, 7))
    }
    assert chosen == pytest.approx(min(errors, key=errors.__getitem__))
    assert min(errors) < chosen < max(errors), "the example has an optimum inside the grid"
    automatic = LSSVMClassifier(support, labels, ridge="loo")(query)
    torch.testing.assert_close(automatic, LSSVMClassifier(support, labels, ridge=chosen)(query))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), power=st.floats(-5, 5))
def test_the_choice_follows_the_scale_of_the_features(seed: int, power: float) -> None:
    """Of features alone; the constant of the bias, which does not follow it, is the same to all small features."""
    support, labels, query = episode(seed)
    factor = 10**power

    def logits(scale: float, bias_weight: float = 2.0) -> Tensor:
        return LSSVMClassifier(scale * support, labels, ridge="loo", bias_weight=bias_weight)(scale * query)

    torch.testing.assert_close(logits(factor, 2 / factor**2), logits(1), rtol=1e-6, atol=1e-6)
    for small_or_large in (1e-4, 1e4):
        torch.testing.assert_close(logits(small_or_large), logits(small_or_large**1.25), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("coding", ["one-vs-all", "one-vs-one"])
def test_a_batch_is_chosen_episode_by_episode(coding: str) -> None:
    parts = [episode(seed) for seed in range(4)]
    support, labels, query = (torch.stack(values) for values in zip(*parts, strict=True))
    batch = LSSVMClassifier(support, labels, ways=3, ridge="loo", coding=coding)(query)
    for logits, (s, y, q) in zip(batch, parts, strict=True):
        torch.testing.assert_close(logits, LSSVMClassifier(s, y, ridge="loo", coding=coding)(q))


def test_the_choice_does_not_depend_on_absent_points_and_works_with_psm() -> None:
    support, labels, query = episode(3)
    gram = EpisodeGram.from_features(support, query, transductive=True)
    targets = one_hot(labels, 3)
    head = LSSVMClassifier(ridge="loo")
    extended = gram.append(torch.zeros(2, 5, dtype=torch.float64))
    padded = torch.cat([targets, torch.zeros(2, 3, dtype=torch.float64)])
    torch.testing.assert_close(head.predict(extended, padded), head.predict(gram, targets))
    assert PseudoSupportModule(3)(head, support, labels, query).isfinite().all()


def test_gradients_are_those_of_the_chosen_multiple() -> None:
    support, labels, query = episode(1, points=6)
    assert torch.autograd.gradcheck(
        lambda s, q: LSSVMClassifier(s, labels, ridge="loo")(q),
        (support.requires_grad_(), query.requires_grad_()),
    )


def test_degenerate_supports_get_an_answer() -> None:
    support = torch.zeros(4, 3)
    assert LSSVMClassifier(support, torch.tensor([0, 1, 0, 1]), ridge="loo")(torch.ones(2, 3)).isfinite().all()


@pytest.mark.parametrize("ridge", ["auto", 0.0, -1.0, float("nan")])
def test_other_ridges_are_refused(ridge: float | str) -> None:
    with pytest.raises(UsageError, match="ridge`? must be"):
        LSSVMClassifier(ridge=ridge)


def test_a_normalised_gram_matrix_is_that_of_normalised_features() -> None:
    support, labels, query = episode(2)
    unit = [torch.nn.functional.normalize(features, dim=-1) for features in (support, query)]
    gram = EpisodeGram.from_features(support, query, transductive=True).normalized()
    targets, psm = one_hot(labels, 3), PseudoSupportModule(3)
    for head in (RidgeClassifier(ridge=0.5), LSSVMClassifier(kernel="rbf")):
        torch.testing.assert_close(psm.refine(head, gram, targets), psm(head, unit[0], labels, unit[1]))
