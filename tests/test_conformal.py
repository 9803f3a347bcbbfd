"""Label sets: the closed form against heads fitted to every query and label, and coverage as promised."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from fslstm_plugin.conformal import (
    attained_coverage,
    p_values,
    prediction_sets,
    require_attainable,
    require_prediction_sets,
    usual_coverage,
)
from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods import KernelMethod, parse_method
from fslstm_plugin.testing import small_episodes

METHODS = ["nn", "nn(kernel=rbf)", "rr(ridge=1)", "lssvm", "lssvm(kernel=cosine,normalize)", "lssvm(coding=ecoc)"]
SIMULATED = ["nn", "rr(ridge=1)", "lssvm", "lssvm(ridge=loo)"]


def scores(method: KernelMethod, points: Tensor, labels: Tensor, ways: int) -> Tensor:
    """The margin of each point by the head fitted to the others."""
    found = []
    for left_out, label in enumerate(labels.tolist()):
        others = torch.arange(len(points)) != left_out
        gram = EpisodeGram.from_features(points[others], points[left_out : left_out + 1])
        logits = method.head.predict(gram, one_hot(labels[others], ways))[0].nan_to_num(-torch.inf)
        rest = [logit for each, logit in enumerate(logits.tolist()) if each != label]
        found.append(max(rest) - logits[label].item())
    return torch.tensor(found)


@pytest.mark.parametrize("shots", [(1, 1, 1), (4, 2, 3)])
@pytest.mark.parametrize("name", METHODS)
def test_p_values_are_those_of_heads_fitted_to_every_query_and_label(name: str, shots: tuple[int, ...]) -> None:
    method = parse_method(name)
    support, labels, query = small_episodes(0, shots, (2,))
    features = EpisodeFeatures(support, query, labels, 3)
    marginal, per_class = (p_values(method, features, kind) for kind in ("marginal", "per-class"))
    for episode, row, label in itertools.product(range(2), range(3), range(3)):
        mine = torch.cat([labels[episode], torch.tensor([label])])
        points = torch.cat([support[episode], query[episode, row : row + 1]])
        adapted = method.prepare(EpisodeFeatures(points, points[:1], mine, 3)).support
        surprise = scores(method, adapted, mine, 3)
        higher = surprise >= surprise[-1] - 1e-12
        assert marginal[episode, row, label].item() == pytest.approx(higher.double().mean().item())
        assert per_class[episode, row, label].item() == pytest.approx(higher[mine == label].double().mean().item())


def drawn_alike(seed: int, episodes: int, points: int, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    """Labelled points and one query from one distribution; a class may have no labelled point."""
    generator = torch.Generator().manual_seed(seed)
    return of_labels(torch.randint(ways, (episodes, points + 1), generator=generator), generator, ways)


def of_fixed_size(seed: int, episodes: int, shots: int, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    """So many labelled points of each class, and one query of any."""
    generator = torch.Generator().manual_seed(seed)
    labelled = torch.arange(ways).repeat_interleave(shots).expand(episodes, -1)
    return of_labels(torch.cat([labelled, torch.randint(ways, (episodes, 1), generator=generator)], 1), generator, ways)


def of_labels(labels: Tensor, generator: torch.Generator, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    centres = torch.randn(len(labels), ways, 6, generator=generator)
    points = torch.randn(*labels.shape, 6, generator=generator, dtype=torch.float64)
    points += centres.gather(1, labels.unsqueeze(-1).expand(-1, -1, 6))
    return EpisodeFeatures.from_points(points, one_hot(labels[:, :-1], ways)), labels[:, -1]


def hits(name: str, features: EpisodeFeatures, right: Tensor, kind: str, coverage: float) -> float:
    sets = p_values(parse_method(name), features, kind, seed=1) > 1 - coverage + 1e-9
    return sets.squeeze(1).gather(-1, right.unsqueeze(-1)).double().mean().item()


def assert_near(found: float, promised: float, episodes: int) -> None:
    """Within four standard deviations of a binomial share; the draws are the same in every run."""
    assert abs(found - promised) < 4 * (promised * (1 - promised) / episodes) ** 0.5


@pytest.mark.parametrize(
    ("name", "shots", "coverage"),
    [
        *((name, 1, 0.5) for name in SIMULATED),
        *((name, 5, 0.8) for name in SIMULATED),
        ("nn", 2, 0.6),
        ("lssvm", 20, 0.9),
    ],
)
def test_per_class_sets_hold_the_right_label_as_often_as_promised(name: str, shots: int, coverage: float) -> None:
    episodes = 2000
    features, right = of_fixed_size(shots, episodes, shots, ways=3)
    assert_near(hits(name, features, right, "per-class", coverage), attained_coverage(coverage, shots), episodes)


@pytest.mark.parametrize(
    ("name", "points", "coverage"),
    [
        ("rr(ridge=1)", 4, 0.5),
        ("lssvm", 4, 0.5),
        ("lssvm(ridge=loo)", 4, 0.5),
        ("nn", 20, 0.8),
        ("lssvm", 20, 0.8),
        ("lssvm(ridge=loo)", 20, 0.8),
        ("rr(ridge=1)", 60, 0.95),
    ],
)
def test_marginal_sets_hold_the_right_label_as_often_as_promised(name: str, points: int, coverage: float) -> None:
    episodes = 2000
    features, right = drawn_alike(points, episodes, points, ways=3)
    assert_near(hits(name, features, right, "marginal", coverage), attained_coverage(coverage, points), episodes)


def test_ties_are_broken_at_random_and_so_cover_no_more_than_promised() -> None:
    """Features of two values, so that most scores are equal."""
    episodes, shots = 4000, 4
    features, right = of_fixed_size(0, episodes, shots, ways=2)
    coarse = EpisodeFeatures(features.support.sign(), features.query.sign(), features.labels, 2)
    coarse = EpisodeFeatures(coarse.support[..., :1], coarse.query[..., :1], features.labels, 2)
    assert_near(hits("nn", coarse, right, "per-class", 0.8), 0.8, episodes)


@pytest.mark.parametrize(("name", "shots", "coverage"), [("rr(ridge=1)", 3, 0.5), ("lssvm", 3, 0.5), ("nn", 9, 0.9)])
def test_ties_are_ties_whatever_rounding_makes_of_them(name: str, shots: int, coverage: float) -> None:
    """Three possible points, each class with shares of its own; equal scores come from different formulas."""
    episodes, generator = 3000, torch.Generator().manual_seed(shots)
    shares = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    labels = torch.cat(
        [torch.arange(2).repeat_interleave(shots).expand(episodes, -1), torch.arange(episodes)[:, None] % 2], 1
    )
    chosen = torch.multinomial(shares[labels].flatten(0, 1), 1, generator=generator).view_as(labels)
    features = EpisodeFeatures.from_points(torch.eye(3, dtype=torch.float64)[chosen], one_hot(labels[:, :-1], 2))
    assert_near(
        hits(name, features, labels[:, -1], "per-class", coverage), attained_coverage(coverage, shots), episodes
    )


def test_the_order_of_ties_follows_from_the_seed_and_the_episode_alone() -> None:
    features = EpisodeFeatures(torch.zeros(3, 6, 2), torch.zeros(3, 4, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
    method = parse_method("nn")
    whole = p_values(method, features, seed=3)
    last = EpisodeFeatures(features.support[2:], features.query[2:], features.labels[2:])
    assert torch.equal(p_values(method, last, seed=3, first=2), whole[2:])
    assert not torch.equal(p_values(method, features, seed=4), whole)
    assert not torch.equal(whole[0], whole[1])


def test_what_can_be_promised_grows_with_the_labelled_points() -> None:
    targets = one_hot(torch.arange(5).repeat_interleave(5), 5)
    require_attainable(5 / 6, targets, "per-class")
    require_attainable(25 / 26, targets, "marginal")
    with pytest.raises(UsageError, match=r"^5 labelled images per class can promise .* at most 83.3 %, not 90 %: .*"):
        require_attainable(0.9, targets)
    with pytest.raises(UsageError, match=r"the nearest is 0.83. For 0.9 label 9 of each class, or .* kind 'marginal'"):
        require_attainable(0.9, targets)
    with pytest.raises(
        UsageError, match=r"at most 83.3 %, not 99 %: the nearest is 0.83. For 0.99 label 99 of each class.$"
    ):
        require_attainable(0.99, targets)
    with pytest.raises(UsageError, match=r"^25 .* at most 96.2 %, not 99 %: the nearest is 0.96. For 0.99 label 99.$"):
        require_attainable(0.99, targets, "marginal")
    with pytest.raises(
        UsageError, match=r"^1 labelled image per class .* 50 %.* is 0.5. For 0.8 label 4 of each class"
    ):
        require_attainable(0.8, targets[::5])
    uneven = targets[torch.tensor([0, 5, 6, 10, 11, 15, 16, 20, 21])]
    with pytest.raises(UsageError, match="^1 labelled image per class"):
        require_attainable(0.6, uneven)
    for kind in ("per-class", "marginal"):  # what is called the nearest is not refused
        for points in range(1, 30):
            require_attainable(usual_coverage(targets.repeat(points, 1), kind), targets.repeat(points, 1), kind)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 80, -0.1, float("nan"), "much"])
def test_other_coverages_are_refused(coverage: float) -> None:
    with pytest.raises(UsageError, match="above 0 and below 1, such as 0.8"):
        prediction_sets(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64), coverage)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lssvm+psm", "depends on the other queries"),
        ("lssvm+bn", "depends on the other queries"),
        ("rr(center=episode)", "depends on the other queries"),
        ("lssvm+iam", "depends on the other queries"),
        ("tim", "depends on the other queries"),
        ("simpleshot", "cannot leave out its points"),
        ("svm", "SVMClassifier cannot leave out its points in closed form"),
        ("lssvm(coding=one-vs-one)", "a coding that has 0"),
    ],
)
def test_methods_without_a_guarantee_say_why(name: str, reason: str) -> None:
    method = parse_method(name, dim=16)
    with pytest.raises(UsageError, match=reason) as refusal:
        require_prediction_sets(method)
    assert str(method) in str(refusal.value)


def test_kinds_are_known_by_name() -> None:
    features = EpisodeFeatures(torch.eye(2), torch.eye(2), torch.tensor([0, 1]))
    with pytest.raises(UnknownNameError, match="Did you mean 'per-class'"):
        p_values(parse_method("nn"), features, "per class")
