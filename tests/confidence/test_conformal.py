"""Prediction sets: the closed form against heads fitted to every query and label, and coverage as guaranteed."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from fslstm_plugin.classifier.fitted import FittedMethod
from fslstm_plugin.classifier.selection import choose_method
from fslstm_plugin.confidence.conformal import (
    attained_coverage,
    is_per_class,
    p_values,
    prediction_sets,
    ranks,
    require_attainable,
    require_prediction_sets,
    usual_coverage,
    why_no_prediction_sets,
)
from fslstm_plugin.errors import UnknownNameError, UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import LSSVMClassifier, one_hot
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.naming import parse_method
from fslstm_plugin.testing import small_episodes

METHODS = ["nn", "nn(kernel=rbf)", "rr(ridge=1)", "lssvm", "lssvm(kernel=cosine,normalize)", "lssvm(coding=ecoc)"]
POWERS = (0.1, 0.3, 0.8, 2, 5)
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


@pytest.mark.parametrize("kind", ["per-class", "marginal"])
@pytest.mark.parametrize("coding", [torch.tensor([[1, 1], [-1, 1], [-1, -1]]), "one-vs-all"])
def test_p_values_of_any_coding_and_of_a_solved_system(kind: str, coding: str | Tensor) -> None:
    """With a matrix a label changes other logits than its class's."""
    support, labels, query = small_episodes(3, (4, 2, 3))
    head, targets = LSSVMClassifier(ridge=1.0, coding=coding), one_hot(labels, 3)
    gram = EpisodeGram.from_features(support, query)
    per_class = is_per_class(kind)
    found = ranks(head.leave_one_out_with_queries(gram, targets, of_own_class=per_class), targets, kind)
    solved = head.solved_system(EpisodeGram.from_features(support, query[:0]), targets)
    again = head.leave_one_out_with_queries(gram, targets, of_own_class=per_class, system=solved)
    torch.testing.assert_close(ranks(again, targets, kind), found)
    for row, label in itertools.product(range(3), range(3)):
        mine = torch.cat([labels, torch.tensor([label])])
        surprise = scores(KernelMethod(head), torch.cat([support, query[row : row + 1]]), mine, 3)
        higher = surprise >= surprise[-1] - 1e-12
        among = mine == label if kind == "per-class" else torch.ones_like(mine, dtype=torch.bool)
        assert found[row, label].item() == pytest.approx(higher[among].double().mean().item())


@pytest.mark.parametrize("name", [*METHODS, "lssvm(ridge=loo)", "rr(ridge=1,kernel=rbf(scale=0.1))"])
@pytest.mark.parametrize("kind", ["per-class", "marginal"])
def test_p_values_of_a_support_that_is_known_before_its_queries_are_the_same(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fslstm_plugin.classifier.fitted._PAIRS", 27)  # three queries at a time
    support, labels, query = small_episodes(0, (4, 2, 3))
    fitted = FittedMethod(parse_method(name), support, labels, 3)
    features = EpisodeFeatures(support.double(), query.double(), labels, 3)
    expected = p_values(parse_method(name), features, kind)
    assert len(query) > 3
    for _ in range(2):
        torch.testing.assert_close(fitted.p_values(query, kind, seed=0), expected)


def drawn_alike(seed: int, episodes: int, points: int, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    """Labelled points and one query from one distribution; a class may have no labelled point."""
    generator = torch.Generator().manual_seed(seed)
    return of_labels(torch.randint(ways, (episodes, points + 1), generator=generator), generator, ways)


def of_fixed_size(seed: int, episodes: int, shots: int, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    """So many labelled points of each class, and one query of any."""
    generator = torch.Generator().manual_seed(seed)
    labelled = torch.arange(ways).repeat_interleave(shots).expand(episodes, -1)
    return of_labels(torch.cat([labelled, torch.randint(ways, (episodes, 1), generator=generator)], 1), generator, ways)


def of_sizes(seed: int, episodes: int, sizes: tuple[int, ...]) -> tuple[EpisodeFeatures, Tensor]:
    """Classes of these sizes, and one query of any."""
    generator, ways = torch.Generator().manual_seed(seed), len(sizes)
    labelled = torch.arange(ways).repeat_interleave(torch.tensor(sizes)).expand(episodes, -1)
    return of_labels(torch.cat([labelled, torch.arange(episodes)[:, None] % ways], 1), generator, ways)


def of_labels(labels: Tensor, generator: torch.Generator, ways: int) -> tuple[EpisodeFeatures, Tensor]:
    centres = torch.randn(len(labels), ways, 6, generator=generator)
    points = torch.randn(*labels.shape, 6, generator=generator, dtype=torch.float64)
    points += centres.gather(1, labels.unsqueeze(-1).expand(-1, -1, 6))
    return EpisodeFeatures.from_points(points, one_hot(labels[:, :-1], ways)), labels[:, -1]


def hits(name: str, features: EpisodeFeatures, true: Tensor, kind: str, coverage: float) -> float:
    sets = p_values(parse_method(name), features, kind, seed=1) > 1 - coverage + 1e-9
    return sets.squeeze(1).gather(-1, true.unsqueeze(-1)).double().mean().item()


def assert_near(found: float, guaranteed: float, episodes: int) -> None:
    """Within four standard deviations of a binomial share; the draws are the same in every run."""
    assert abs(found - guaranteed) < 4 * (guaranteed * (1 - guaranteed) / episodes) ** 0.5


@pytest.mark.parametrize(
    ("name", "shots", "coverage"),
    [
        *((name, 1, 0.5) for name in SIMULATED),
        *((name, 5, 0.8) for name in SIMULATED),
        ("nn", 2, 0.6),
        ("lssvm", 20, 0.9),
    ],
)
def test_per_class_p_values_are_right_as_often_as_guaranteed(name: str, shots: int, coverage: float) -> None:
    episodes = 2000
    features, true = of_fixed_size(shots, episodes, shots, ways=3)
    assert_near(hits(name, features, true, "per-class", coverage), attained_coverage(coverage, shots), episodes)


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
def test_marginal_p_values_are_right_as_often_as_guaranteed(name: str, points: int, coverage: float) -> None:
    episodes = 2000
    features, true = drawn_alike(points, episodes, points, ways=3)
    assert_near(hits(name, features, true, "marginal", coverage), attained_coverage(coverage, points), episodes)


@pytest.mark.parametrize(("sizes", "coverage"), [((3, 20, 20, 20, 20), 0.75), ((2, 3, 5, 10, 20), 0.6)])
@pytest.mark.parametrize("name", ["nn", "lssvm"])
def test_sets_cover_each_class_however_unequal_the_sizes_are(
    name: str, sizes: tuple[int, ...], coverage: float
) -> None:
    each = 400
    features, true = of_sizes(1, each * len(sizes), sizes)
    method = parse_method(name)
    found = p_values(method, features, seed=1)
    predicted = method.logits(features).argmax(-1)
    alone = (found > 1 - coverage + 1e-9).squeeze(1).gather(-1, true.unsqueeze(-1)).squeeze(-1).double()
    sets = prediction_sets(found, predicted, coverage).squeeze(1)
    covered = sets.gather(-1, true.unsqueeze(-1)).squeeze(-1).double()
    assert sets.gather(-1, predicted).all()
    assert (covered >= alone).all()
    for label, size in enumerate(sizes):
        assert_near(alone[true == label].mean().item(), attained_coverage(coverage, size), each)


def test_sets_of_one_label_are_the_prediction_and_right_more_often_than_guaranteed() -> None:
    """Features that are told apart well, where p-values alone leave a sixth of the sets empty."""
    features, true = of_fixed_size(0, 1000, 5, ways=3)
    clear = EpisodeFeatures.from_points(
        features.points + 6 * torch.eye(3, 6)[torch.cat([features.labels, true.unsqueeze(-1)], -1)], features.targets
    )
    method = parse_method("lssvm")
    found, predicted = p_values(method, clear), method.logits(clear).argmax(-1)
    assert (found.amax(-1) <= 0.2).double().mean() > 0.1
    sets = prediction_sets(found, predicted, 0.8).squeeze(1)
    single = sets.sum(-1) == 1
    assert torch.equal(sets[single].long().argmax(-1), predicted.squeeze(1)[single])
    assert single.double().mean() > 0.95
    assert (predicted.squeeze(1) == true)[single].double().mean() > 0.95


def test_after_a_choice_the_sets_of_a_method_that_was_not_chosen_keep_the_guarantee() -> None:
    """Of noise, where the method that seems best is so by luck, which new points do not share."""
    names = ["lssvm(ridge=1,normalize)", *(f"nn(power(exponent={power},negative=signed))" for power in POWERS)]
    chosen, first, others = [], [], 0
    for seed in range(150):
        generator = torch.Generator().manual_seed(seed)
        points = torch.randn(50, 3, generator=generator, dtype=torch.float64)
        labels, true = torch.arange(2).repeat_interleave(5), torch.arange(40) % 2
        name = choose_method(points[:10], labels, names).method
        others += name != names[0]
        features = EpisodeFeatures(points[:10], points[10:], labels)
        for each, hits in ((name, chosen), (names[0], first)):
            found = p_values(parse_method(each), features, seed=seed)
            hits.append((found > 0.2 + 1e-9).gather(-1, true.unsqueeze(-1)).double().mean())
    lucky, mean = (torch.stack(each).mean().item() for each in (chosen, first))
    error, other_error = (torch.stack(each).std().item() / len(each) ** 0.5 for each in (chosen, first))
    assert others > 30
    assert lucky < 5 / 6 - 2 * error, "the choice costs coverage"
    assert abs(mean - 5 / 6) < 3 * other_error


def test_ties_are_broken_at_random_and_so_cover_no_more_than_guaranteed() -> None:
    """Features of two values, so that most scores are equal."""
    episodes, shots = 4000, 4
    features, true = of_fixed_size(0, episodes, shots, ways=2)
    coarse = EpisodeFeatures(features.support.sign(), features.query.sign(), features.labels, 2)
    coarse = EpisodeFeatures(coarse.support[..., :1], coarse.query[..., :1], features.labels, 2)
    assert_near(hits("nn", coarse, true, "per-class", 0.8), 0.8, episodes)


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


def test_what_can_be_guaranteed_grows_with_the_labelled_points() -> None:
    targets = one_hot(torch.arange(5).repeat_interleave(5), 5)
    require_attainable(5 / 6, targets, "per-class")
    require_attainable(25 / 26, targets, "marginal")
    with pytest.raises(UsageError, match=r"^5 labelled images per class can guarantee .* at most 83.3 %, not 90 %: .*"):
        require_attainable(0.9, targets)
    with pytest.raises(UsageError, match=r"label 9 of each class, or ask for 0.83 or less, or .* kind 'marginal'"):
        require_attainable(0.9, targets)
    with pytest.raises(
        UsageError, match=r"at most 83.3 %, not 99 %: label 99 of each class, or ask for 0.83 or less.$"
    ):
        require_attainable(0.99, targets)
    with pytest.raises(UsageError, match=r"^25 .* at most 96.2 %, not 99 %: label 99, or ask for 0.96 or less.$"):
        require_attainable(0.99, targets, "marginal")
    with pytest.raises(
        UsageError, match=r"^1 labelled image per class .* 50 %, not 80 %: label 4 of each class, or ask for 0.5 or"
    ):
        require_attainable(0.8, targets[::5])
    uneven = targets[torch.tensor([0, 5, 6, 10, 11, 15, 16, 20, 21])]
    with pytest.raises(UsageError, match="^The 1 labelled image of the smallest class can guarantee .* at most 50 %"):
        require_attainable(0.6, uneven)
    with pytest.raises(
        UsageError, match=r"^The labelled images of 1 of 5 classes \(a 1\) can .* at most 50 %, not 60 %"
    ):
        require_attainable(0.6, uneven, names="abcde")
    with pytest.raises(UsageError, match=r"^The labelled images of 5 of 5 classes \(a 1, b 2, c 2, d 2, e 2\) can .*"):
        require_attainable(0.9, uneven, names="abcde")
    with pytest.raises(
        UsageError, match="3 labelled images per class can guarantee a coverage of at most 75 %, not 80"
    ):
        usual_coverage(targets[torch.arange(25) % 5 < 3])
    for kind, least in (("per-class", 4), ("marginal", 1)):  # what is usual is not refused
        for points in range(least, 30):
            require_attainable(usual_coverage(targets.repeat(points, 1), kind), targets.repeat(points, 1), kind)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 80, -0.1, float("nan"), "much"])
def test_other_coverages_are_refused(coverage: float) -> None:
    with pytest.raises(UsageError, match="above 0 and below 1, but got"):
        prediction_sets(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64), coverage)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lssvm+psm", "depends on the other queries"),
        ("lssvm+bn", "depends on the other queries"),
        ("rr+can", "depends on the other queries"),
        ("lssvm+iam", "depends on the other queries"),
        ("tim", "depends on the other queries"),
        ("simpleshot", "no closed form for leaving out"),
        ("svm", "its solution does not follow"),
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


@pytest.mark.parametrize("queries", [(3, 3, 3), (9, 0, 0), (40, 3, 1)])
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("name", ["lssvm(bpa,ridge=1,normalize)", "nn(center=episode,normalize)"])
def test_an_adapter_to_which_all_points_are_alike_keeps_the_guarantee(name, spread, queries) -> None:
    """For each class, however many queries come of it, though each query's features depend on the others."""
    generator = torch.Generator().manual_seed(1)
    means = spread * torch.randn(400, 3, 8, generator=generator)
    labels = torch.arange(3).repeat_interleave(5)
    truth = torch.arange(3).repeat_interleave(torch.tensor(queries))
    support, query = (
        means[:, places] + torch.randn(400, len(places), 8, generator=generator) for places in (labels, truth)
    )
    method = parse_method(name)
    assert method.is_transductive
    found = p_values(method, EpisodeFeatures(support, query, labels, ways=3), "per-class")
    mine = found.gather(-1, truth.expand(400, -1).unsqueeze(-1)).squeeze(-1)
    for label in truth.unique():
        covered = (mine[:, truth == label] > 1 / 6 + 1e-9).double().mean(-1)
        error = covered.std() / len(covered) ** 0.5
        assert abs(covered.mean() - 5 / 6) < 4 * error


def test_transduction_that_looks_at_labels_has_no_sets() -> None:
    for name in ("lssvm+psm", "lssvm(bpa,ridge=1)+psm", "tim(bpa)", "lssvm+bn"):
        assert "depends on the other queries" in why_no_prediction_sets(parse_method(name))
