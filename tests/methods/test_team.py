"""TEAM, our reconstruction: its metric, its similarity, and its mixing of images."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.methods.team import TEAM, geometric_mean_root, mean_square, metric_root, spanned
from fslstm_plugin.naming import parse_method
from fslstm_plugin.testing import check_method, small_episodes


@pytest.mark.parametrize("name", ["team(prior=0.1,temperature=3,mixing=0)"])
def test_it_keeps_the_contract_with_other_options(name: str) -> None:
    check_method(lambda: parse_method(name))


def features_of(*place: int) -> EpisodeFeatures:
    """An episode of 6 support points and 7 queries in 12 dimensions."""
    support, labels, query = small_episodes(4, batch=(2, 3))
    return EpisodeFeatures(support[place], query[place], labels[place])


def positive(size: int) -> Tensor:
    root = torch.randn(size, size, dtype=torch.float64)
    return root @ root.mT + 0.1 * torch.eye(size)


def test_the_metric_is_the_geometric_mean() -> None:
    p, r = positive(6), positive(6)
    root = geometric_mean_root(p, r)
    metric = root @ root.mT
    torch.testing.assert_close(metric @ p @ metric, r, rtol=0, atol=1e-8)
    assert torch.linalg.eigvalsh(metric).min() > 0
    same = geometric_mean_root(p, p)
    torch.testing.assert_close(same @ same.mT, torch.eye(6, dtype=torch.float64))


def test_it_minimises_what_it_should() -> None:
    p, r = positive(4), positive(4)

    def objective(metric: Tensor) -> Tensor:
        return (metric @ p).trace() + (torch.linalg.inv(metric) @ r).trace()

    root = geometric_mean_root(p, r)
    metric = (root @ root.mT).requires_grad_()
    (gradient,) = torch.autograd.grad(objective(metric), metric)
    assert gradient.abs().max() < 1e-8
    assert all(objective(metric + 0.05 * positive(4)) > objective(metric) for _ in range(5))


@pytest.mark.parametrize("dim", [3, 40])
def test_coordinates_keep_all_differences(dim: int) -> None:
    points = torch.randn(9, dim, dtype=torch.float64)
    coordinates, rank = spanned(points)
    assert rank == min(dim, 8)
    torch.testing.assert_close(coordinates.square().sum(-1).mean(), rank.double())
    ratio = torch.cdist(coordinates, coordinates)[0, 1:] / torch.cdist(points, points)[0, 1:]
    torch.testing.assert_close(ratio, ratio[:1].expand(8))


def test_pairs_are_those_of_the_page() -> None:
    features = features_of(0, 0)
    coordinates, _ = spanned(features.points)
    labels, support, query = features.labels, coordinates[:6], coordinates[6:]
    together = [(support[i] - support[j]) for i in range(6) for j in range(i) if labels[i] == labels[j]]
    together += [each - support[(support - each).norm(dim=-1).argmin()] for each in query]
    apart = [(support[i] - support[j]) for i in range(6) for j in range(i) if labels[i] != labels[j]]
    similar, different = (torch.stack(pairs).mT @ torch.stack(pairs) / len(pairs) for pairs in (together, apart))
    prior = torch.linalg.inv(coordinates.mT @ coordinates / 13 + torch.eye(13))
    root = metric_root(coordinates, features.targets, 0.5)
    metric = root @ root.mT
    p, r = similar + 0.5 * torch.linalg.inv(prior), different + 0.5 * prior
    torch.testing.assert_close(metric @ p @ metric, r)


def test_no_pair_means_nothing() -> None:
    assert mean_square(torch.eye(2), torch.zeros(2, 2)).abs().max() == 0


def test_scores_are_the_product_of_both_softmaxes() -> None:
    features = features_of()
    logits = TEAM(temperature=2.0).logits(features)
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2, 3, 7, dtype=torch.float64))
    alone = features_of(1, 2)
    coordinates, rank = spanned(alone.points)
    points = coordinates @ metric_root(coordinates, alone.targets, 1.0)
    means = torch.stack([points[:6][alone.labels == label].mean(0) for label in range(3)])
    similarity = -torch.cdist(points[6:], means).square() / (2 * rank)
    product = similarity.softmax(1) * similarity.softmax(0)
    torch.testing.assert_close(logits[1, 2].exp(), product / product.sum(1, keepdim=True))


def test_a_greater_scale_of_the_features_changes_nothing() -> None:
    features = features_of()
    greater = EpisodeFeatures(features.support * 100 + 3, features.query * 100 + 3, features.labels)
    torch.testing.assert_close(TEAM().logits(greater), TEAM().logits(features), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("same", [True, False])
def test_points_that_coincide_have_finite_scores_and_gradients(same: bool) -> None:
    points = torch.ones(8, 4) if same else torch.eye(4).repeat(2, 1)
    points.requires_grad_()
    features = EpisodeFeatures(points[:4], points[4:], torch.arange(4) % 2)
    loss, logits = TEAM().loss(features, torch.arange(4) % 2, F.cross_entropy)
    loss.backward()
    assert logits.isfinite().all()
    assert points.grad.isfinite().all()


def test_the_loss_falls_along_its_gradient() -> None:
    features, labels = features_of(), torch.arange(7).expand(2, 3, 7) % 3
    method = TEAM().double()
    points = features.points.clone().requires_grad_()

    def loss_of(points: Tensor) -> Tensor:
        return method.loss(EpisodeFeatures(points[..., :6, :], points[..., 6:, :], features.labels), labels, None)[0]

    first = loss_of(points)
    first.backward()
    assert loss_of(points.detach() - 0.1 * points.grad) < first


def test_images_are_mixed_within_their_episode() -> None:
    images = torch.zeros(3, 5, 5, 1, 1)
    for sample in range(5):
        images[:, sample, sample] = 1.0  # an image says which one it is
    images += 10 * torch.arange(3)[:, None, None, None, None]
    mixed = TEAM().training_images(images) - 10 * torch.arange(3)[:, None, None, None, None]
    shares = mixed.flatten(2)
    torch.testing.assert_close(shares.sum(-1), torch.ones(3, 5))
    torch.testing.assert_close(shares.sum(-2), torch.ones(3, 5), msg="others are a permutation")
    own = shares.diagonal(dim1=-2, dim2=-1)
    assert (own >= 0.5 - 1e-6).all(), "most of an image is its own"
    rest = [episode[(episode > 1e-4) & (episode < 0.5)].unique().tolist() for episode in shares]
    for values in rest:
        assert max(values, default=0) - min(values, default=0) < 1e-4, "one share an episode"
    assert len({round(max(values), 3) for values in rest if values}) > 1, "but not one for all"
    assert TEAM(mixing=0.0).training_images(images) is images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("prior=0", "prior must be a finite number above 0, but got 0."),
        ("temperature=-1", "temperature must be a finite number above 0, but got -1."),
        ("mixing=-1", "mixing must be a finite number of at least 0, but got -1."),
    ],
)
def test_what_is_refused(options: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_method(f"team({options})")
