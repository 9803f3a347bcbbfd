"""Systems whose kernel matrix hides the ridge below its rounding: more points than features, of any scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, FewShotClassifier, parse_method
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import Head, LSSVMClassifier, RidgeClassifier, one_hot
from fslstm_plugin.heads.linalg import inverse_smoother, solve_smoother

SCALES = [1e-3, 1.0, 1e3, 1e6, 1e8]
HEADS = {"lssvm": LSSVMClassifier(), "rr(ridge=0.1)": RidgeClassifier(ridge=0.1)}


def episode(scale: float, ways: int = 10, shots: int = 3, dim: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support, its labels, queries and theirs; classes lie apart."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(ways, dim, generator=generator, dtype=torch.float64)
    labels, answers = torch.arange(ways).repeat(shots), torch.arange(ways).repeat(5)
    support, query = (
        scale * (centres[each] + 0.2 * torch.randn(len(each), dim, generator=generator, dtype=torch.float64))
        for each in (labels, answers)
    )
    return support, labels, query, answers


def least_squares(name: str, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
    """The same objective in features: by an orthogonal factorisation, which does not square their condition."""
    scale, ways = support.abs().max(), int(labels.max()) + 1
    hits = one_hot(labels, ways)
    points, penalty = support / scale, 0.1**0.5 / scale * torch.ones(support.shape[-1], dtype=torch.float64)
    code = 2 * torch.eye(ways, dtype=torch.float64)
    right, asked = hits @ code, query / scale
    if name == "lssvm":
        code -= 1
        right = hits @ code
        points, asked = (torch.cat([each, torch.ones(len(each), 1)], -1) for each in (points, asked))
        penalty = torch.cat([penalty, torch.tensor([0.2**0.5], dtype=torch.float64)])
    system = torch.cat([points, torch.diag(penalty)])
    right = torch.cat([right, torch.zeros(len(penalty), right.shape[-1])])
    weights = torch.from_numpy(np.linalg.lstsq(system.numpy(), right.numpy(), rcond=None)[0])
    return asked @ weights @ (code.mT if name == "lssvm" else torch.eye(ways, dtype=torch.float64))


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_way_to_ask_gives_the_answer_of_least_squares(name: str, scale: float) -> None:
    """Single precision's rounding had been added at 1e6: 13 of 100 queries were wrong, and 30 of the estimator's."""
    support, labels, query, answers = episode(scale)
    expected = least_squares(name, support, labels, query)
    assert (expected.argmax(-1) == answers).all() or scale < 1
    method = parse_method(name)
    close(method.logits(EpisodeFeatures(support, query, labels)), expected)
    close(HEADS[name].fit_(support, labels)(query), expected)
    estimator = FewShotClassifier(method=name).fit(support.numpy(), labels.numpy())
    close(torch.from_numpy(estimator.decision_function(query.numpy())), expected)


@pytest.mark.parametrize("name", HEADS)
def test_single_precision_features_too(name: str) -> None:
    support, labels, query, _ = (each.float() if each.is_floating_point() else each for each in episode(1e6))
    expected = least_squares(name, support.double(), labels, query.double())
    close(parse_method(name).logits(EpisodeFeatures(support, query, labels)), expected)
    close(HEADS[name].fit_(support, labels)(query).double(), expected, 1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_where_the_ridge_is_lost(name: str) -> None:
    """Of the matrix itself they would be the difference of numbers 1e8 times as large."""
    head = HEADS[name]
    support, labels, query, _ = episode(1e4, ways=2, shots=4, dim=3)

    def logits(support: Tensor, query: Tensor) -> Tensor:
        return head.predict(EpisodeGram.from_features(1e4 * support, 1e4 * query), one_hot(labels, 2))

    inputs = [(each / 1e4).requires_grad_() for each in (support, query)]
    assert torch.autograd.gradcheck(logits, inputs)
    assert torch.autograd.gradgradcheck(logits, inputs)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("together", [False, True])
def test_left_out_is_fitted_without(name: str, together: bool) -> None:
    support, labels, _, _ = episode(1e6)
    targets = one_hot(labels, 10)
    gram = EpisodeGram.from_features(support, support[:0])
    found = HEADS[name].leave_one_out(gram, targets, of_each_class=together)
    for place in range(3) if together else range(len(labels)):
        out = torch.arange(10) + 10 * place if together else torch.tensor([place])
        kept = torch.ones(len(labels), dtype=torch.bool)
        kept[out] = False
        expected = least_squares(name, support[kept], labels[kept], support[out])
        close(found[out], expected, 1e-5 if together else 1e-8)


@pytest.mark.parametrize("name", HEADS)
def test_weights_and_absent_points(name: str) -> None:
    support, labels, query, _ = episode(1e6)
    twice = torch.cat([support, support[:10]])
    expected = least_squares(name, twice, torch.cat([labels, labels[:10]]), query)
    weights = torch.ones(31, 1)
    weights[:10], weights[30] = 2, 0
    targets = one_hot(torch.cat([labels, labels[:1]]), 10) * weights
    gram = EpisodeGram.from_features(torch.cat([support, torch.zeros(1, 16)]), query)
    close(HEADS[name].predict(gram, targets), expected)


def test_each_episode_of_a_batch_is_solved_as_alone() -> None:
    few, labels, query, _ = episode(1.0)
    both = torch.stack([few, 1e6 * few])
    queries = torch.stack([query, 1e6 * query])
    head = LSSVMClassifier(both, labels)
    for place in range(2):
        alone = LSSVMClassifier(both[place], labels)(queries[place])
        torch.testing.assert_close(head(queries)[place], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("offset", [0.5, 1e12])
def test_an_offset_that_hides_the_kernel(offset: float) -> None:
    """A bias that costs almost nothing; beside it the kernel's digits would be lost."""
    support, labels, query, _ = episode(1.0, ways=3)
    right = one_hot(labels, 3)
    alpha, bias = solve_smoother(support @ support.mT, right, 0.1, offset)
    points = torch.cat([support, torch.ones(len(support), 1)], -1)
    penalty = torch.diag(
        torch.cat([torch.full((16,), 0.1, dtype=torch.float64), torch.tensor([0.1 / offset], dtype=torch.float64)])
    )
    weights = torch.linalg.solve(points.mT @ points + penalty, points.mT @ right)
    close(query @ support.mT @ alpha + bias, query @ weights[:-1] + weights[-1])


def test_the_inverse_and_its_derivative() -> None:
    points = 1e5 * torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = inverse_smoother(points @ points.mT, 0.1, 0.5)
    wide = torch.cat([points, torch.full((6, 1), 0.5**0.5)], -1)
    inside = torch.linalg.inv(wide.mT @ wide + 0.1 * torch.eye(3))  # Woodbury's identity
    close(found, (torch.eye(6) - wide @ inside @ wide.mT) / 0.1)
    kernel = torch.diag(torch.tensor([1e12, 1e12, 0.0])).double().requires_grad_()
    (gradient,) = torch.autograd.grad(inverse_smoother(kernel, 0.1)[2, 2], kernel)
    assert gradient[2, 2].item() == pytest.approx(-100)


def test_the_inverse_where_the_factor_has_a_zero() -> None:
    """Copies at great scale: rounding leaves nothing of the second, and the ridge alone tells them apart."""
    found = inverse_smoother(1e36 * torch.ones(2, 2, dtype=torch.float64), 50.0)
    close(found, torch.tensor([[0.01, -0.01], [-0.01, 0.01]], dtype=torch.float64))


@pytest.mark.parametrize("head", [LSSVMClassifier(coding="one-vs-one"), LSSVMClassifier(coding="ecoc")])
def test_codings_at_large_scale(head: Head) -> None:
    """Beside so large features neither ridge nor bias constant matters any more."""
    support, labels, query, _ = episode(1.0, ways=5, shots=20)
    small, large = (head.fit_(scale * support, labels)(scale * query) for scale in (1e5, 1e7))
    close(large, small, 1e-8)
