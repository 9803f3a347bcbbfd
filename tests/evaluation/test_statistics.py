"""Intervals, unbalanced queries, and what the tables say about differences."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fslstm_plugin.data.balance import QueryBalance
from fslstm_plugin.data.base import Split
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.errors import UsageError
from fslstm_plugin.evaluation.setting import Setting
from fslstm_plugin.evaluation.statistics import (
    Estimate,
    estimate,
    estimate_over_classes,
    estimate_to_the_best,
    together,
)

LABELS = torch.arange(12).repeat_interleave(60)
NEW_CLASSES = 0.0  # The mean over all classes there could be, in the simulations below.


def simulated(seed: int, class_effect: float, ways: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Accuracies of 400 episodes whose 20 classes are a sample of all possible ones."""
    generator = torch.Generator().manual_seed(seed)
    effects = torch.randn(20, generator=generator) * class_effect
    classes = torch.stack([torch.randperm(20, generator=generator)[:ways] for _ in range(400)])
    return effects[classes].mean(1) + torch.randn(400, generator=generator) * 8, classes


def methods(seed: int, episodes: int, gain: float = 0.0, count: int = 12) -> torch.Tensor:
    """Accuracies of methods on the same episodes, equal but for the first one's gain."""
    generator = torch.Generator().manual_seed(seed)
    of_episodes = 10 * torch.randn(1, episodes, generator=generator)
    own = torch.randn(count, episodes, generator=generator) * torch.linspace(2, 5, count).unsqueeze(-1)
    own[0] += gain
    return of_episodes + own


def excludes_zero(differences: list[Estimate]) -> bool:
    return any(abs(each.mean) > each.ci95 for each in differences)


@pytest.mark.parametrize("episodes", [2, 5, 10, 1000])
def test_the_interval_holds_the_mean_however_few_the_episodes(episodes: int) -> None:
    values = torch.randn(2000, episodes, generator=torch.Generator().manual_seed(episodes))
    covered = [abs(each.mean) <= each.ci95 for each in map(estimate, values)]
    assert 0.935 <= sum(covered) / 2000 <= 0.965
    published = 1.96 * values[0].double().std().item() / episodes**0.5
    assert estimate(values[0]).ci95 >= published
    if episodes == 1000:
        assert estimate(values[0]).ci95 == pytest.approx(published, rel=3e-3)


@pytest.mark.parametrize("episodes", [3, 5, 10, 200])
def test_equal_methods_are_not_told_from_the_best_of_them(episodes: int) -> None:
    tables = [methods(seed, episodes) for seed in range(120)]
    assert sum(excludes_zero(estimate_to_the_best(table)) for table in tables) <= 12
    plain = [[estimate(row - table[table.mean(-1).argmax()]) for row in table] for table in tables]
    assert sum(map(excludes_zero, plain)) > 60, "which is what the choice does to intervals that ignore it"


@pytest.mark.parametrize("episodes", [2, 3, 5])
def test_few_episodes_of_equal_methods_that_happen_to_differ_alike_are_no_verdict(episodes: int) -> None:
    """Numbers of right answers are whole, so that the differences of a few episodes are often the same."""
    wrong = 0
    for seed in range(150):
        generator = torch.Generator().manual_seed(seed)
        hardness = 0.5 + 0.4 * torch.rand(1, episodes, 1, generator=generator)
        table = 100 * (torch.rand(4, episodes, 75, generator=generator) < hardness).double().mean(-1)
        compare = together(table, counted=75)
        wrong += excludes_zero([compare(first - second) for first, second in combinations(table, 2)])
    assert wrong <= 0.08 * 150


@pytest.mark.parametrize(("over", "tables"), [("episodes", 1), ("episodes", 2), ("classes", 1)])
def test_no_verdict_of_a_table_of_equal_methods_is_false(over: str, tables: int) -> None:
    """To the best, and of each method over the first, in every one of the tables shown together."""
    wrong, alone, trials = 0, 0, 60 // tables
    for seed in range(trials):
        found, singly = False, False
        for each in range(tables):
            generator = torch.Generator().manual_seed(1000 * seed + each)
            classes = torch.stack([torch.randperm(20, generator=generator)[:5] for _ in range(400)])
            of_classes = 3 * torch.randn(12, 20, generator=generator)
            table = methods(10_000 * each + seed, 400) + of_classes[:, classes].mean(-1) * (over == "classes")
            compare = together(table, tables, classes if over == "classes" else None)
            gains = [row - table[0] for row in table[1:]]
            found |= excludes_zero([*estimate_to_the_best(table, compare), *map(compare, gains)])
            usual = partial(estimate_over_classes, classes=classes) if over == "classes" else estimate
            singly |= excludes_zero([usual(each) for each in gains])
        wrong, alone = wrong + found, alone + singly
    assert wrong <= 0.1 * trials
    assert alone >= 0.15 * trials, "which is what intervals that hold each alone say"


@pytest.mark.parametrize("episodes", [10, 30])
@pytest.mark.parametrize("share", [0.98, 0.995, 0.999])
def test_hardly_an_error_in_a_few_episodes_is_no_certainty(episodes: int, share: float) -> None:
    """Episodes differ in how hard they are; the usual interval covers 50 % at 10 episodes and 99.9 %."""
    generator = torch.Generator().manual_seed(0)
    hardness = 0.5 * torch.randn(1000, episodes, generator=generator)
    wrong = (1 - share) * hardness.exp() / torch.tensor(0.5**2 / 2).exp()
    draws = torch.rand(1000, episodes, 75, generator=generator)
    accuracies = 100 * (draws > wrong.unsqueeze(-1)).double().mean(-1)
    covered = [abs(each.mean - 100 * share) <= each.ci95 for each in (estimate(row, 75) for row in accuracies)]
    assert sum(covered) >= 925
    if share > 0.99 and episodes == 10:
        usual = [abs(each.mean - 100 * share) <= each.ci95 for each in map(estimate, accuracies)]
        assert sum(usual) < 900


def test_ordinary_accuracies_have_the_interval_they_had() -> None:
    generator = torch.Generator().manual_seed(0)
    accuracies = 100 * (torch.rand(1000, 75, generator=generator) < 0.6).double().mean(-1)
    harder = accuracies + 5 * torch.randn(1000, generator=generator)
    assert estimate(harder, 75) == estimate(harder)


def test_a_clear_difference_to_the_best_is_found() -> None:
    for seed in range(5):
        best, *others = estimate_to_the_best(methods(seed, 1000, gain=2.0))
        assert best == (0, 0)
        assert all(each.mean < -each.ci95 < 0 for each in others)


def test_of_two_methods_none_was_chosen() -> None:
    table = methods(0, 300, gain=-1.0, count=2)
    first, second = estimate_to_the_best(table)
    assert second == (0, 0)
    assert first == pytest.approx(estimate(table[0] - table[1]), rel=0.02)


def test_differences_to_the_best_are_the_same_each_time_in_any_order_and_unit() -> None:
    table = methods(1, 50)
    found = estimate_to_the_best(table)
    assert estimate_to_the_best(table) == found
    order = torch.randperm(12)
    moved = estimate_to_the_best(100 * table[order] + 7)
    for place, each in zip(order, moved, strict=True):
        assert each == pytest.approx([100 * number for number in found[place]], rel=0.02, abs=1e-4)


def test_methods_that_never_differ_have_no_interval() -> None:
    table = methods(2, 50, count=3)[[0, 0, 1, 2]]
    twins = estimate_to_the_best(table)[:2]
    assert twins[0] == twins[1]
    assert estimate_to_the_best(table[:2]) == [(0, 0), (0, 0)]
    assert estimate_to_the_best(table[:1]) == [(0, 0)]
    assert estimate_to_the_best(table[:, :1])[0].ci95 in (0.0, float("inf"))


@pytest.mark.parametrize(("ways", "effect"), [(5, 6.0), (5, 2.0), (10, 2.0), (15, 2.0), (15, 6.0), (19, 4.0)])
def test_the_interval_over_classes_covers_new_classes_however_many_an_episode_takes(ways: int, effect: float) -> None:
    usual, over_classes = [], []
    for seed in range(150):
        values, classes = simulated(seed, effect, ways)
        for covered, found in ((usual, estimate(values)), (over_classes, estimate_over_classes(values, classes))):
            covered.append(abs(found.mean - NEW_CLASSES) <= found.ci95)
    assert sum(over_classes) / 150 >= 0.95
    if effect == 6.0:
        assert sum(usual) / 150 < 0.65


@pytest.mark.parametrize(
    ("shift", "spread", "count", "ways", "least"), [(1.5, 1, 6, 2, 0.94), (4, 1, 3, 2, 0.94), (3, 2, 12, 5, 0.91)]
)
def test_the_interval_over_classes_covers_percentages_that_few_classes_lower(
    shift: float, spread: float, count: int, ways: int, least: float
) -> None:
    """Accuracies of 78, 97 and 87 %; an interval by the percentages alone covers 93, 89 and 88 %."""
    generator = torch.Generator().manual_seed(0)
    truth = 100 * (shift + spread * torch.randn(10**6, generator=generator)).sigmoid().mean().item()
    covered = 0
    for _ in range(300):
        easy = (shift + spread * torch.randn(count, generator=generator)).sigmoid()
        classes = torch.rand(200, count, generator=generator).argsort(-1)[:, :ways]
        right = torch.rand(200, ways, 15, generator=generator) < easy[classes].unsqueeze(-1)
        found = estimate_over_classes(100 * right.double().mean((1, 2)), classes, 15 * ways)
        covered += abs(found.mean - truth) <= found.ci95
    assert covered >= least * 300


def test_the_interval_over_classes_is_the_jackknife_when_every_subset_is_an_episode() -> None:
    # With all pairs of 6 classes and effects that add up, the jackknife's variance has a closed form.
    effects = torch.tensor([3.0, -1.0, 4.0, 1.0, -5.0, 9.0], dtype=torch.float64)
    classes = torch.combinations(torch.arange(6)).repeat(4000, 1)  # so many that their own noise vanishes
    found = estimate_over_classes(effects[classes].mean(1), classes)
    assert found.mean == pytest.approx(effects.mean().item())
    expected = 2.5706 * (effects.var() / 6).sqrt().item()  # Student's t with 5 degrees of freedom
    assert found.ci95 == pytest.approx(expected, rel=2e-3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), effect=st.floats(0, 20))
def test_the_interval_over_classes_is_never_narrower_and_moves_with_the_values(seed: int, effect: float) -> None:
    values, classes = simulated(seed, effect)
    found = estimate_over_classes(values, classes)
    assert found.ci95 >= estimate(values).ci95
    assert found.mean == pytest.approx(estimate(values).mean)
    scaled = estimate_over_classes(3 * values + 7, classes)
    assert (scaled.mean, scaled.ci95) == pytest.approx((3 * found.mean + 7, 3 * found.ci95), abs=1e-5)
    renamed = torch.randperm(20)[classes]
    assert estimate_over_classes(values, renamed).ci95 == pytest.approx(found.ci95)


def test_an_interval_over_classes_needs_classes_to_leave_out() -> None:
    with pytest.raises(UsageError, match="more classes than ways"):
        estimate_over_classes(torch.rand(50), torch.arange(5).expand(50, 5))


def of_classes(classes: int) -> Split:
    labels = torch.arange(classes).repeat_interleave(20)
    return Split("dots", "test", torch.zeros(20 * classes, 8, 8, 3), labels, tuple(map(str, range(classes))))


@pytest.mark.parametrize(("ways", "classes", "episodes"), [(5, 5, 1000), (5, 20, 7), (19, 20, 39), (5, 20, 2)])
def test_an_interval_over_classes_that_cannot_be_taken_is_refused_beforehand(ways, classes, episodes) -> None:
    setting = Setting(ways, 1, 4, episodes, interval="classes")
    with pytest.raises(
        UsageError, match=rf"more classes than ways.* got {episodes} episodes of {ways} ways with \d+ cl"
    ):
        setting.check(of_classes(classes))


def test_an_interval_over_classes_that_the_episodes_do_not_give_is_refused_beforehand() -> None:
    split = of_classes(12)
    for seed in range(12):
        setting = Setting(shots=1, episodes=12, seed=seed, interval="classes")
        counts = setting.classes(split).flatten().bincount(minlength=12)
        if (counts == 0).logical_or((counts >= 2) & (counts <= 10)).all():
            setting.check(split)
        else:
            with pytest.raises(UsageError, match="but got 12 episodes of 5 ways with"):
                setting.check(split)


def test_an_interval_over_classes_that_can_be_taken_is_not_refused() -> None:
    for ways, classes, episodes in ((5, 20, 80), (19, 20, 1000), (5, 6, 100)):
        Setting(ways, 1, 4, episodes, interval="classes").check(of_classes(classes))


@settings(max_examples=40, deadline=None)
@given(
    concentration=st.floats(0.01, 100), ways=st.integers(2, 8), queries=st.integers(1, 7), seed=st.integers(0, 2**31)
)
def test_unbalanced_episodes_keep_their_total_and_share_no_image(concentration, ways, queries, seed):
    sampler = EpisodeSampler(LABELS, ways, 2, queries, seed, balance=QueryBalance(concentration))
    indices, labels = sampler.batch(3, 4), sampler.query_labels(3, 4)
    assert torch.equal(indices, EpisodeSampler(LABELS, ways, 2, queries, seed, (), sampler.balance).batch(0, 7)[3:])
    assert labels.shape == (4, ways * queries)
    for episode, targets in zip(indices, labels, strict=True):
        assert len(episode.unique()) == ways * (2 + queries)
        support, query = LABELS[episode].split([2 * ways, ways * queries])
        assert torch.equal(query, support[::2][targets])
        assert len(support.unique()) == ways


def test_proportions_follow_the_dirichlet_distribution() -> None:
    for concentration in (1.0, 5.0):
        balance = QueryBalance(concentration)
        shares = torch.tensor([balance.counts(5, 200, 0, episode) for episode in range(3000)]).double() / 1000
        assert shares.mean(0) == pytest.approx([0.2] * 5, abs=0.01)
        expected = 0.2 * 0.8 / (5 * concentration + 1)
        assert shares.var(0).mean().item() == pytest.approx(expected, rel=0.07)


def test_balanced_episodes_are_those_without_the_option() -> None:
    plain = EpisodeSampler(LABELS, 5, 1, 4, seed=3)
    assert torch.equal(plain.query_labels(0, 1)[0], plain.labels[plain.num_support :])


@pytest.mark.parametrize(
    "text", ["dirichlet", "dirichlet:", "dirichlet:x", "dirichlet:0", "dirichlet:nan", "uniform:1"]
)
def test_a_query_balance_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ichlet"):
        QueryBalance.parse(text)


def test_unbalanced_queries_need_enough_images() -> None:
    with pytest.raises(UsageError, match="`queries=15` need up to 76 images per class, but class '0' has 60"):
        EpisodeSampler(LABELS, 5, 1, 15, seed=0, balance=QueryBalance(1.0))
