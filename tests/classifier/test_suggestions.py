"""What to label next: the rule recomputed naively, and that it is worth more than chance."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fslstm_plugin.classifier import suggestions
from fslstm_plugin.classifier.suggestions import suggest
from fslstm_plugin.errors import UsageError
from fslstm_plugin.heads import LSSVMClassifier

CLASSES = ["wren", "robin", "tit"]


def draw(seed: int, labelled: int = 3, pool: int = 40, dim: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(labelled + pool, dim, generator=generator, dtype=torch.float64)
    probabilities = torch.randn(pool, len(CLASSES), generator=generator).softmax(-1)
    return points[:labelled], points[labelled:], probabilities


def test_each_choice_leaves_the_least_variance() -> None:
    """Against the Gaussian process solved anew for every candidate."""
    labelled, pool, probabilities = draw(0)
    points = F.normalize(torch.cat([labelled, pool]), dim=-1)
    points = points - points.mean(0)
    kernel, noise = points @ points.mT, 0.1 * points.square().sum(-1).mean()

    def variance_left(known: list[int]) -> float:
        system = kernel[known][:, known] + noise * torch.eye(len(known), dtype=torch.float64)
        cross = kernel[known][:, 3:]
        return float((kernel.diagonal()[3:] - (cross * torch.linalg.solve(system, cross)).sum(0)).sum())

    known = [0, 1, 2]
    for each in suggest(labelled, pool, probabilities, CLASSES, 5):
        left = [variance_left([*known, 3 + place]) for place in range(len(pool))]
        assert left[each.place] == pytest.approx(min(left), rel=1e-9)
        known.append(3 + each.place)


def test_no_point_comes_twice_and_all_come_where_there_are_fewer() -> None:
    labelled, pool, probabilities = draw(1, pool=6)
    pool[1:4] = pool[0]  # copies, of which one is as good as all
    found = suggest(labelled, pool, probabilities, CLASSES, 10)
    assert sorted(each.place for each in found) == list(range(6))
    assert {each.place for each in found[:3]} - {0, 1, 2, 3} == {4, 5}
    assert suggest(labelled, pool[:0], probabilities[:0], CLASSES, 3) == []


@pytest.mark.parametrize("points", [torch.zeros(5, 4), torch.ones(5, 4)])
def test_points_that_are_all_alike_get_an_answer(points: Tensor) -> None:
    assert len({each.place for each in suggest(points[:2], points, torch.full((5, 3), 1 / 3), CLASSES, 3)}) == 3


def test_reasons_name_the_likeliest_classes_and_what_is_new() -> None:
    labelled = torch.eye(6)[:2].repeat_interleave(3, 0)
    between, new = torch.eye(6)[0] + torch.eye(6)[1], torch.eye(6)[4]
    pool = torch.stack([between, between, new, new, new])
    probabilities = torch.tensor([[0.1, 0.5, 0.4]] * 2 + [[0.6, 0.2, 0.2]] * 3)
    reasons = {each.reason for each in suggest(labelled, pool, probabilities, CLASSES, 2)}
    assert reasons == {"between robin and tit, like 1 other", "unlike anything labelled, like 2 others"}


def test_a_large_pool_is_sampled_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "MOST", 10)
    labelled, pool, probabilities = draw(2)
    chosen = [{each.place for each in suggest(labelled, pool, probabilities, CLASSES, 10, seed)} for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert max(chosen[0]) >= 10


def test_labelling_what_is_suggested_is_worth_more_than_chance() -> None:
    """Five overlapping classes with odd points among them, one labelled point each and five more labels to spend."""
    gains = []
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(200) % 5
        noise = torch.randn(200, 30, generator=generator) * (1 + 3 * (torch.rand(200, 1, generator=generator) < 0.1))
        points = F.normalize(2 * torch.randn(5, 30, generator=generator)[labels] + 2 * noise, dim=-1).double()
        labelled, pool, test = points[:5], points[5:105], points[105:]

        def accuracy(more: list[int]) -> float:
            known = torch.tensor([*range(5), *(5 + each for each in more)])
            head = LSSVMClassifier(points[known], labels[known], ridge=1.0)  # noqa: B023 - called at once
            return float((head(test).argmax(-1) == labels[105:]).double().mean())  # noqa: B023

        probabilities = LSSVMClassifier(labelled, labels[:5], ridge=1.0)(pool).softmax(-1)
        suggested = [each.place for each in suggest(labelled, pool, probabilities, list(range(5)), 5)]
        by_chance = [torch.randperm(100, generator=generator)[:5].tolist() for _ in range(5)]
        gains.append(accuracy(suggested) - sum(map(accuracy, by_chance)) / 5)
    gain = torch.tensor(gains)
    assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5


@pytest.mark.parametrize(("count", "columns"), [(0, 3), (2.5, 3), (2, 2)])
def test_wrong_arguments_get_a_sentence(count: int, columns: int) -> None:
    labelled, pool, probabilities = draw(0)
    with pytest.raises(UsageError, match="count. must be|Suggestions need"):
        suggest(labelled, pool, probabilities[:, :columns], CLASSES, count)
