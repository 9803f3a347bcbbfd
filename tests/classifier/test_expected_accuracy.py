"""The accuracy to expect: its interval contains the accuracy on new points, from noise to good features."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor

from fslstm_plugin import EpisodeFeatures, KernelMethod, parse_method
from fslstm_plugin.classifier.selection import DEFAULT, Expected, choose_method, expected_accuracy

DIM = 64
SIGNALS = {"noise": 0.0, "weak": 0.2, "good": 0.6}  # standard deviation of the class means, per dimension
GRID = list(product(SIGNALS, (2, 5, 10, 20, 50), (2, 3, 5, 20)))
COMPACT = list(product(SIGNALS, (2, 5, 20), (2, 5))) + [(features, 50, 2) for features in SIGNALS]


def draw(features: str, sizes: Tensor, draws: int, seed: int) -> tuple[EpisodeFeatures, Tensor]:
    """Labelled points of classes of these sizes, and new ones in the same shares with their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)
    new = labels.repeat(1 + 1000 // len(labels))
    means = SIGNALS[features] * torch.randn(draws, len(sizes), DIM, generator=generator)
    support, query = (
        (means[:, each] + torch.randn(draws, len(each), DIM, generator=generator)).double() for each in (labels, new)
    )
    return EpisodeFeatures(support, query, labels.expand(draws, -1), len(sizes)), new


def contained(features: str, sizes: Tensor, draws: int) -> tuple[float, float]:
    """The share of the draws whose interval contains the accuracy, and how much greater the estimate is on average."""
    method = parse_method(DEFAULT)
    assert isinstance(method, KernelMethod)
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)

    @cache
    def expected(correct: int) -> Expected:
        logits = torch.eye(len(sizes))[torch.where(torch.arange(len(labels)) < correct, labels, labels - 1)]
        found = expected_accuracy(logits, labels)
        assert found is not None
        return found

    part = max(1, min(draws, 5 * 10**5 // (len(labels) * max(len(labels), len(sizes) ** 2 // 4, 100))))
    held, excess = 0, 0.0
    for seed in range(0, draws, part):
        episodes, new = draw(features, sizes, min(part, draws - seed), seed)
        prepared = method.prepare(episodes)
        logits = method.head.leave_one_out(prepared.support_gram, prepared.targets, of_each_class=True)
        correct = (logits.argmax(-1) == labels).sum(-1)
        accuracy = (method.logits(episodes).argmax(-1) == new).double().mean(-1)
        for found, share in zip(map(expected, correct.tolist()), accuracy.tolist(), strict=True):
            held += found.low <= share <= found.high
            excess += found.accuracy - share
    return held / draws, excess / draws


@pytest.mark.parametrize(("features", "ways", "shots"), COMPACT)
def test_the_interval_contains_the_accuracy(features: str, ways: int, shots: int) -> None:
    held, excess = contained(features, torch.full((ways,), shots), draws=200 if ways < 20 else 100)
    assert held >= 0.9
    assert abs(excess) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(("features", "ways", "shots"), GRID)
def test_the_interval_contains_the_accuracy_in_the_whole_grid(features: str, ways: int, shots: int) -> None:
    held, excess = contained(features, torch.full((ways,), shots), draws=200)
    print(f"{features}, {ways} classes of {shots}: in {held:.1%} of the draws, {100 * excess:+.1f} points on average")
    assert held >= 0.9


@pytest.mark.parametrize("features", SIGNALS)
@pytest.mark.parametrize("sizes", [(2, 3, 5, 10, 20), (2, 2, 2, 2, 20), (3, 30)])
def test_it_does_for_classes_of_unequal_sizes(features: str, sizes: tuple[int, ...]) -> None:
    held, _ = contained(features, torch.tensor(sizes), draws=100)
    assert held >= 0.9


@pytest.mark.parametrize(("features", "ways", "shots"), [("weak", 5, 3), ("good", 10, 2)])
def test_it_does_after_the_choice_of_the_method(features: str, ways: int, shots: int) -> None:
    episodes, new = draw(features, torch.full((ways,), shots), draws=100, seed=0)
    held, excess = 0, 0.0
    for support, query, labels in zip(episodes.support, episodes.query, episodes.labels, strict=True):
        choice = choose_method(support, labels)
        logits = parse_method(choice.method).logits(EpisodeFeatures(support, query, labels, ways))
        accuracy = float((logits.argmax(-1) == new).double().mean())
        assert choice.expected is not None
        held += choice.expected.low <= accuracy <= choice.expected.high
        excess += choice.expected.accuracy - accuracy
    assert held >= 90
    assert excess / 100 < 0.05


@pytest.mark.parametrize(
    ("features", "ways", "shots"), [("weak", 5, 2), ("weak", 5, 10), ("good", 2, 5), ("noise", 3, 5)]
)
def test_the_interval_for_more_points_contains_the_accuracy_with_them(features: str, ways: int, shots: int) -> None:
    more, draws = 5, 150
    method = parse_method(DEFAULT)
    assert isinstance(method, KernelMethod)
    episodes, new = draw(features, torch.full((ways,), shots + more), draws, seed=0)
    now = torch.arange(ways * (shots + more)).view(ways, -1)[:, :shots].flatten()
    labels = episodes.labels[0, now]
    few = method.prepare(EpisodeFeatures(episodes.support[:, now], episodes.query, labels.expand(draws, -1), ways))
    logits = method.head.leave_one_out(few.support_gram, few.targets, of_each_class=True)
    accuracy = (method.logits(episodes).argmax(-1) == new).double().mean(-1).tolist()
    found = [expected_accuracy(each, labels, more) for each in logits]
    held = sum(each.low <= share <= each.high for each, share in zip(found, accuracy, strict=True) if each is not None)
    assert held >= 0.9 * draws


def test_unequal_classes_that_are_all_taken_for_the_largest_are_at_chance() -> None:
    """A share of 7 / 9 is more than 1 / (9 / 7) by rounding alone."""
    for largest, others in ((7, 2), (9, 2), (10, 3), (13, 7)):
        labels = torch.tensor([0] * largest + [1] * others)
        found = expected_accuracy(torch.eye(2)[0 * labels], labels)
        assert found is not None
        assert found.accuracy == pytest.approx(largest / len(labels))


def test_more_points_promise_more_but_at_chance_nothing() -> None:
    labels = torch.arange(3).repeat_interleave(4)
    likely = torch.eye(3)[labels]
    likely[::4] = torch.eye(3)[(labels[::4] + 1) % 3]
    found = [expected_accuracy(likely, labels, more) for more in (0, 5, 50)]
    accuracies = [each.accuracy for each in found if each is not None]
    assert accuracies == sorted(set(accuracies))
    wrong = torch.eye(3)[(labels + 1) % 3]
    assert expected_accuracy(wrong, labels, 5).accuracy == 0  # type: ignore[union-attr]
