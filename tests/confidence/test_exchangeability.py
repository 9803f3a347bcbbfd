"""The permutation test of whether new points are drawn like the labelled ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fslstm_plugin import parse_method
from fslstm_plugin.classifier.fitted import FittedMethod
from fslstm_plugin.confidence.exchangeability import LEVEL, Difference, difference

CLASSES, DIM = 4, 16


def drawn(shape: tuple[int, ...], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of classes, and these."""
    labels = torch.randint(CLASSES, shape, generator=generator)
    centres = 4 * torch.eye(CLASSES, DIM)
    return torch.randn(*shape, DIM, generator=generator) + centres[labels], labels


@pytest.mark.parametrize("grouped", [False, True])
def test_exchangeable_points_are_seldom_found_different(grouped: bool) -> None:
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(1000):
        points, labels = drawn((60,), generator)
        groups = labels.tensor_split([20]) if grouped else None
        found.append(difference(points[:20], points[20:], groups, permutations=199).p_value)
    p_values = torch.tensor(found)
    # Within three standard errors of uniform numbers.
    assert (p_values <= LEVEL).double().mean() <= LEVEL + 3 * (LEVEL / 1000) ** 0.5
    assert abs(p_values.mean() - 0.5) <= 3 * (1 / 12 / 1000) ** 0.5


def test_with_groups_the_proportions_of_classes_do_not_matter() -> None:
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(200):
        points, labels = drawn((400,), generator)
        labelled = torch.cat([(labels == each).nonzero()[:5, 0] for each in range(CLASSES)])
        new = torch.cat([(labels == each).nonzero()[5 : 5 + 20 * each + 1, 0] for each in range(CLASSES)])
        mine, others = points[labelled], points[new]
        grouped = difference(mine, others, (labels[labelled], labels[new]), permutations=199)
        found.append((grouped.p_value, difference(mine, others, permutations=199).p_value))
    grouped_rate, plain_rate = (torch.tensor(found) <= 0.05).double().mean(0)
    assert grouped_rate <= 0.05 + 3 * (0.05 / 200) ** 0.5
    assert plain_rate > 0.25


@pytest.mark.parametrize("balanced", [True, False])
def test_groups_that_are_predicted_give_few_false_alarms(balanced: bool) -> None:
    generator, found = torch.Generator().manual_seed(0), []
    method, chances = parse_method("lssvm(ridge=1,normalize)"), torch.tensor([1.0, 1.0, 1.0, 1.0])
    if not balanced:
        chances = torch.tensor([8.0, 4.0, 1.0, 1.0])
    for _ in range(300):
        labels = torch.arange(CLASSES).repeat(5)
        more = torch.multinomial(chances, 80, replacement=True, generator=generator)
        centres = 2 * torch.eye(CLASSES, DIM)
        points, new = (centres[each] + torch.randn(len(each), DIM, generator=generator) for each in (labels, more))
        fitted = FittedMethod(method, points, labels, CLASSES)
        left_out = fitted.left_out()
        assert left_out is not None
        groups = left_out.argmax(-1), fitted.logits(new).argmax(-1)
        found.append(difference(points, new, groups, permutations=199).is_significant)
    # The documented 1 to 4 %, and three standard errors.
    assert sum(found) / 300 <= (0.02 if balanced else 0.04) + 3 * (0.04 / 300) ** 0.5


def test_points_from_elsewhere_are_found_and_named() -> None:
    generator = torch.Generator().manual_seed(0)
    points, labels = drawn((100,), generator)
    moved = points.clone()
    moved[70:] += 2
    found = difference(moved[:30], moved[30:], labels.tensor_split([30]))
    assert found.is_significant
    assert set(found.shares.topk(10).indices.tolist()) <= set(range(40, 70))
    assert not difference(points[:30], points[30:], labels.tensor_split([30])).is_significant


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31), st.floats(0.1, 10))
def test_shares_add_up_and_lengths_do_not_matter(count: int, others: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    points, labels = drawn((count + others,), generator)
    groups = labels.tensor_split([count])
    found = difference(points[:count], points[count:], groups, permutations=19)
    assert 1 / 20 <= found.p_value <= 1
    assert found.shares.shape == (others,)
    again = difference(scale * points[:count], points[count:], groups, permutations=19)
    assert again.p_value == found.p_value
    torch.testing.assert_close(again.shares, found.shares)


def test_the_statistic_is_the_energy_distance() -> None:
    generator = torch.Generator().manual_seed(0)
    mine, other = (torch.nn.functional.normalize(drawn((n,), generator)[0].double(), dim=-1) for n in (5, 7))
    expected = 2 * torch.cdist(mine, other).mean() - torch.cdist(mine, mine).mean() - torch.cdist(other, other).mean()
    # Each side's shares add up to the half of it that its distances make.
    weight = 5 * 7 / (5 + 7)
    whole = difference(mine, other).shares.sum() + difference(other, mine).shares.sum()
    torch.testing.assert_close(whole, weight * expected, atol=1e-6, rtol=1e-6)


def test_groups_that_only_one_side_has_tell_nothing() -> None:
    points = torch.eye(4)
    assert difference(points[:2], points[2:], (torch.tensor([0, 0]), torch.tensor([1, 1]))).p_value == 1


def test_the_level_is_reached_by_the_smallest_p_value() -> None:
    assert Difference(LEVEL, torch.zeros(1)).is_significant
    assert not Difference(2 * LEVEL, torch.zeros(1)).is_significant
