"""The temperature of the support, and the measures of probabilities, against references and what they must keep."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fslstm_plugin.confidence.calibration import (
    brier_score,
    expected_calibration_error,
    fit_temperature,
    negative_log_likelihood,
    probabilities,
    temperature_of,
    why_uncalibrated,
)
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.shared import leaving_out
from fslstm_plugin.naming import parse_method
from fslstm_plugin.testing import small_episodes


def draws(seed: int, points: int = 30, ways: int = 3, batch: int = 4, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logits, and labels drawn with the probabilities of the logits over a temperature of 2."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * 4 * torch.randn(batch, points, ways, generator=generator, dtype=torch.float64)
    shares = (logits / (2 * scale)).softmax(-1).flatten(0, -2)
    labels = torch.multinomial(shares, 1, generator=generator).view(batch, points)
    return logits, one_hot(labels, ways)


def smoothed_nll(logits: Tensor, targets: Tensor, temperature: Tensor) -> Tensor:
    points, ways = targets.shape[-2:]
    wanted = (targets * points + 1 / ways) / (points + 1)
    return -(wanted * (logits / temperature[..., None, None]).log_softmax(-1)).sum((-2, -1))


def test_no_other_temperature_is_more_likely() -> None:
    logits, targets = draws(0)
    found = fit_temperature(logits, targets)
    least = smoothed_nll(logits, targets, found)
    for factor in (0.5, 0.97, 1.03, 2.0):
        assert (smoothed_nll(logits, targets, factor * found) > least).all()


def test_the_temperature_of_many_points_is_the_one_that_they_were_drawn_with() -> None:
    torch.testing.assert_close(fit_temperature(*draws(1, points=20_000, batch=2)), torch.tensor([2.0, 2.0]).double(),
                               rtol=0.05, atol=0)  # fmt: skip


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_temperature_follows_the_scale_of_the_logits(scale: float) -> None:
    torch.testing.assert_close(fit_temperature(*draws(2, scale=scale)), scale * fit_temperature(*draws(2)))


def test_an_episode_of_a_batch_has_the_temperature_that_it_has_alone() -> None:
    logits, targets = draws(3)
    torch.testing.assert_close(fit_temperature(logits, targets)[2], fit_temperature(logits[2], targets[2]))


def test_a_support_without_an_error_does_not_ask_for_certainty() -> None:
    targets = one_hot(torch.arange(5).repeat_interleave(5), 5)
    shares = probabilities(targets, fit_temperature(targets, targets))
    assert 0.9 < (shares * targets).sum(-1).mean() < 0.99


def test_logits_that_say_nothing_make_probabilities_that_say_nothing() -> None:
    targets = one_hot(torch.arange(3).repeat_interleave(4), 3)
    for logits in (1 - targets, torch.zeros_like(targets)):
        shares = probabilities(logits, fit_temperature(logits, targets))
        torch.testing.assert_close(shares, torch.full_like(shares, 1 / 3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_temperature_makes_certain(dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, 1.0, -torch.inf], [2.0, 2.0, 0.0]], dtype=dtype)
    expected = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=dtype)
    assert torch.equal(probabilities(logits, 1e-300), expected)


def test_a_class_of_one_point_is_left_out_of_the_sum() -> None:
    logits, targets = draws(4, points=12, batch=1)
    logits, targets = torch.cat([logits, torch.zeros(1, 12, 1)], -1), torch.cat([targets, torch.zeros(1, 12, 1)], -1)
    found = []
    for own in (-torch.inf, 0.0, 50.0):
        lone = torch.tensor([0.0, 0.0, 0.0, own])
        found.append(fit_temperature(torch.cat([logits, lone.expand(1, 1, 4)], 1),
                                     torch.cat([targets, one_hot(torch.tensor([[3]]), 4)], 1)))  # fmt: skip
    assert found[0].isfinite().all()
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", ["nn", "rr", "lssvm", "lssvm(ridge=loo)"])
def test_at_one_shot_the_temperature_is_the_spread_of_other_classes(name: str) -> None:
    support, labels, query = small_episodes(0, (1, 1, 1, 1))
    features = EpisodeFeatures(support, query, labels, 4)
    method = parse_method(name)
    logits = method.head.leave_one_out(features.support_gram, features.targets)
    deviations = [
        (logit - torch.stack(rest).mean()).square()
        for row, label in zip(logits, labels, strict=True)
        if (rest := [row[each] for each in range(4) if each != label])
        for logit in rest
    ]
    torch.testing.assert_close(temperature_of(method, features), torch.stack(deviations).mean().sqrt())


@pytest.mark.parametrize("name", ["nn", "rr(ridge=1e-9)", "lssvm(ridge=1e-9,bias_weight=1e9)"])
@pytest.mark.parametrize("shots", [1, 2])
def test_two_classes_of_any_scale_have_the_same_probabilities(name: str, shots: int) -> None:
    support, labels, query = small_episodes(1, (shots, shots))
    method = parse_method(name)
    found = []
    for scale in (0.01, 100.0):
        features = EpisodeFeatures(scale * support, scale * query, labels)
        found.append(probabilities(method.logits(features), temperature_of(method, features)))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)
    assert found[0].min() < 0.4


def test_calibrated_probabilities_of_a_head_are_better_than_its_logits_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat_interleave(25)
    points = 0.8 * torch.randn(100, 5, 16, generator=generator).repeat_interleave(25, -2)
    points += torch.randn(points.shape, generator=generator)
    shown = torch.arange(125) % 25 < 5
    features = EpisodeFeatures(points[:, shown], points[:, ~shown], labels[shown])
    right = labels[~shown].expand(100, -1)
    for name in ("nn", "rr", "lssvm(ridge=loo)"):
        method = parse_method(name)
        logits = method.logits(features)
        before, after = probabilities(logits), probabilities(logits, temperature_of(method, features))
        assert expected_calibration_error(after, right) < 0.08 < expected_calibration_error(before, right)
        assert negative_log_likelihood(after, right).mean() < negative_log_likelihood(before, right).mean()
        assert brier_score(after, right).mean() < brier_score(before, right).mean()


WHOLE = ["lssvm+psm", "nn+can", "rr(center=episode,normalize)", "tim", "pt-map(negative=signed)", "bd-cspn", "svm"]


@pytest.mark.parametrize("name", WHOLE)
def test_points_leave_through_the_whole_method(name: str) -> None:
    """Against episodes made one by one, of classes of different size, in an order that differs between episodes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.stack(
        [torch.tensor([0, 1, 1, *[2] * 11])[torch.randperm(14, generator=generator)] for _ in range(2)]
    )
    support, query = (torch.randn(2, size, 6, generator=generator, dtype=torch.float64) for size in (14, 8))
    mean = torch.full((6,), 0.1, dtype=torch.float64)
    method = parse_method(name).eval()
    found = method.leave_one_out(EpisodeFeatures(support, query, labels, base_mean=mean))
    for episode in range(2):
        mine = labels[episode]
        first, second = ((mine == 1).nonzero().flatten()[each] for each in (0, 1))
        of_large = (mine == 2).nonzero().flatten()
        # Eleven points in ten folds: the eleventh leaves with the first.
        for out in ([first, of_large[0], of_large[10]], [second, of_large[1]], [of_large[9]]):
            out = torch.stack(out).sort().values
            kept = ~torch.isin(torch.arange(14), out)
            moved = torch.cat([support[episode, out], query[episode]])
            alone = method.logits(EpisodeFeatures(support[episode, kept], moved, mine[kept], base_mean=mean))
            torch.testing.assert_close(found[episode, out], alone[: len(out)].double())
        assert (found[episode, mine == 0] == 0).all()


def test_leaving_out_by_moving_is_leaving_out_in_closed_form() -> None:
    support, labels, query = small_episodes(2, (4, 4, 4))
    features = EpisodeFeatures(support, query, labels)
    for name in ("nn", "rr(normalize)", "lssvm(ridge=1,bias_weight=3)"):
        method = parse_method(name)
        torch.testing.assert_close(leaving_out.moved_logits(method, features), method.leave_one_out(features))


def test_parts_do_not_change_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(5, 15, 6, generator=generator, dtype=torch.float64)
    features = EpisodeFeatures(points[:, :9], points[:, 9:], torch.arange(9) % 3)
    whole = parse_method("lssvm+psm").leave_one_out(features)
    for numbers in (1, 15 * 21 * 2):
        monkeypatch.setattr(leaving_out, "_NUMBERS", numbers)
        torch.testing.assert_close(parse_method("lssvm+psm").leave_one_out(features), whole)


def overlapping_clusters() -> tuple[EpisodeFeatures, Tensor]:
    """Sixty 5-way 5-shot episodes, and the labels of their 75 queries."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(5).repeat_interleave(20)
    points = 0.6 * torch.randn(60, 5, 24, generator=generator).repeat_interleave(20, -2)
    points += torch.randn(points.shape, generator=generator)
    shown = torch.arange(100) % 20 < 5
    features = EpisodeFeatures(points[:, shown], points[:, ~shown], labels[shown], base_mean=torch.zeros(24))
    return features, labels[~shown].expand(60, -1)


@pytest.mark.parametrize("name", ["rr(normalize)+psm", "lssvm(ridge=1,normalize)+psm", "lssvm(ridge=1,normalize)+can",
                                  "tim", "laplacian-shot", "bd-cspn", "svm"])  # fmt: skip
def test_every_method_is_calibrated_by_points_that_leave_through_it(name: str) -> None:
    features, right = overlapping_clusters()
    method = parse_method(name)
    logits = method.logits(features).double()
    before, after = probabilities(logits), probabilities(logits, temperature_of(method, features))
    assert expected_calibration_error(after, right) < 0.05 < 0.1 < expected_calibration_error(before, right)
    assert negative_log_likelihood(after, right).mean() < negative_log_likelihood(before, right).mean()
    if "+" in name:  # whose head alone never sees what the refit does to the logits
        alone = probabilities(logits, temperature_of(parse_method(name.partition("+")[0]), features))
        assert expected_calibration_error(alone, right) > 0.08
        assert negative_log_likelihood(after, right).mean() < negative_log_likelihood(alone, right).mean()


class OfFixedShape(Method):
    """Takes episodes of one shape, as a network with a place for each point does."""

    is_transductive = True

    def why_not_shape(self, ways: int, num_support: int, num_query: int) -> str | None:
        return None if (num_support, num_query) == (4, 3) else "other numbers of points"

    def logits(self, features: EpisodeFeatures) -> Tensor:
        self.require_shape(features)
        return features.query @ features.support.mT @ features.targets.to(features.support)

    @property
    def family(self) -> str:
        return "fixed"


def test_what_can_leave_out_nothing_is_uncalibrated_and_says_why() -> None:
    support, query = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(3, 3)
    once, twice = (EpisodeFeatures(support, query, torch.arange(4) % ways) for ways in (4, 2))
    for name in ("lssvm+psm", "nn+can", "tim", "svm", "simpleshot", "lssvm"):
        method = parse_method(name)
        assert why_uncalibrated(method, twice.targets, 3) is None
        reason = why_uncalibrated(method, once.targets, 3)
        assert reason is not None
        assert "one labelled point" in reason
        assert (temperature_of(method, once) == 1) == (name != "lssvm")
    fixed = OfFixedShape()
    assert why_uncalibrated(fixed, twice.targets, 3) == (
        "fixed takes episodes of one shape only, and a point that is left out changes it"
    )
    assert temperature_of(fixed, twice) == 1


def test_the_calibration_error_is_that_of_bins_counted_one_by_one() -> None:
    generator = torch.Generator().manual_seed(5)
    shares = torch.rand(500, 4, generator=generator, dtype=torch.float64).softmax(-1)
    labels = torch.randint(4, (500,), generator=generator)
    confidence, predicted = shares.max(-1)
    expected = 0.0
    for number in range(15):
        mine = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if mine.any():
            correct = (predicted == labels)[mine].double().mean()
            expected += mine.double().mean() * (correct - confidence[mine].mean()).abs()
    assert expected_calibration_error(shares, labels) == pytest.approx(float(expected))
    assert expected_calibration_error(torch.eye(4)[labels], labels) == 0


def test_scores_of_single_predictions() -> None:
    shares = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert brier_score(shares, torch.tensor([1, 1])).tolist() == [2.0, 0.5]
    assert negative_log_likelihood(shares.double(), torch.tensor([0, 0])).tolist() == pytest.approx([0, 0.6931471805])
    assert negative_log_likelihood(shares, torch.tensor([1, 1])).isfinite().all()
