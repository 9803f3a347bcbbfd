"""What must not change an answer: heads, transduction, episodes, evaluation."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.data.balance import QueryBalance
from fslstm_plugin.data.sampler import EpisodeSampler
from fslstm_plugin.data.sets.cifarfs import CIFAR_FS
from fslstm_plugin.data.sets.glyphs import CHARACTERS
from fslstm_plugin.evaluation.runner import indexed, run_methods
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import Dual, Head, LSSVMClassifier, PrototypeClassifier, RidgeClassifier, SVMClassifier
from fslstm_plugin.kernels import RBF, Cosine, Kernel, Linear, Polynomial
from fslstm_plugin.methods.base import Method
from fslstm_plugin.methods.kernel import KernelMethod
from fslstm_plugin.naming import parse_method
from fslstm_plugin.transduction import CandidateSelection, PseudoSupportModule

Answer = Callable[[Head, Tensor, Tensor, Tensor], Tensor]
ANSWERS: dict[str, Answer] = {
    "plain": lambda head, support, labels, query: head.fit_(support, labels, 3)(query),
    "psm": lambda head, *episode: PseudoSupportModule(3)(head, *episode, ways=3),
    "can": lambda head, *episode: CandidateSelection(0.4, 2)(head, *episode, ways=3),
}
every_answer = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
seeds = st.integers(0, 2**32 - 1)
factors = st.floats(0.05, 20)

# A head whose parameters fit features that are multiplied by a factor.
SCALED: dict[str, Callable[[float], Head]] = {
    "prototype": lambda factor: PrototypeClassifier(),
    "ridge": lambda factor: RidgeClassifier(ridge=5 * factor**2),
    "lssvm": lambda factor: LSSVMClassifier(ridge=0.1 * factor**2, bias_weight=2 / factor**2),
    "svm_rbf": lambda factor: SVMClassifier(kernel=RBF(0.1 / factor**2)),
    "ridge_rbf": lambda factor: RidgeClassifier(ridge=0.1, kernel=RBF(0.1 / factor**2)),
    "lssvm_polynomial": lambda factor: LSSVMClassifier(kernel=Polynomial(2, scale=0.1 / factor**2)),
    "prototype_cosine": lambda factor: PrototypeClassifier(kernel=Cosine()),
}
# A head that answers on features with a constant one of this value as the first answers without.
SHIFTED: dict[str, Callable[[float], tuple[Head, Head]]] = {
    "prototype": lambda value: (PrototypeClassifier(), PrototypeClassifier()),
    "lssvm": lambda value: (
        LSSVMClassifier(bias_weight=2.0),
        LSSVMClassifier(bias_weight=1 / (1 / 2.0 - value**2)),
    ),
    "svm_rbf": lambda value: (SVMClassifier(kernel=RBF(0.1)), SVMClassifier(kernel=RBF(0.1))),
    "ridge_rbf": lambda value: (
        RidgeClassifier(ridge=0.1, kernel=RBF(0.1)),
        RidgeClassifier(ridge=0.1, kernel=RBF(0.1)),
    ),
}
# A head for every support point once, and one for every point twice.
DOUBLED: dict[str, tuple[Head, Head]] = {
    "prototype": (PrototypeClassifier(), PrototypeClassifier()),
    "prototype_rbf": (PrototypeClassifier(kernel=RBF()), PrototypeClassifier(kernel=RBF())),
    "ridge": (RidgeClassifier(ridge=5.0), RidgeClassifier(ridge=10.0)),
    "lssvm": (LSSVMClassifier(ridge=0.1), LSSVMClassifier(ridge=0.2)),
    "lssvm_ecoc": (LSSVMClassifier(ridge=0.1, coding="ecoc"), LSSVMClassifier(ridge=0.2, coding="ecoc")),
    "lssvm_pairs": (LSSVMClassifier(ridge=0.1, coding="one-vs-one"), LSSVMClassifier(ridge=0.2, coding="one-vs-one")),
}


def episode(seed: int, dim: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """Three classes of unequal shots, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([2, 0, 2, 1, 0, 2])
    centres = torch.randn(3, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(15, dim, generator=generator, dtype=torch.float64)
    return centres[labels] + noise[:6], labels, centres[torch.arange(9) % 3] + noise[6:]


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=2e-5 * expected.abs().max().item())


def with_feature(features: Tensor, value: float) -> Tensor:
    return torch.cat([features, torch.full_like(features[:, :1], value)], 1)


@every_answer
@pytest.mark.parametrize("make", SCALED.values(), ids=SCALED)
@settings(max_examples=10, deadline=None)
@given(seed=seeds, factor=factors)
def test_scaled_features_and_parameters_give_the_same_logits(make, answer: Answer, seed: int, factor: float) -> None:
    support, labels, query = episode(seed)
    plain = answer(make(1), support, labels, query)
    scaled = answer(make(factor), factor * support, labels, factor * query)
    if isinstance(make(1), PrototypeClassifier) and isinstance(make(1).kernel, Linear):
        scaled = scaled / factor**2  # a distance, not a class indicator
    close(scaled, plain)


@every_answer
@pytest.mark.parametrize("make", SHIFTED.values(), ids=SHIFTED)
@settings(max_examples=10, deadline=None)
@given(seed=seeds, value=st.floats(0.01, 0.6))
def test_a_constant_feature_is_a_bias(make, answer: Answer, seed: int, value: float) -> None:
    support, labels, query = episode(seed)
    without, on_more = make(value)
    more = answer(on_more, with_feature(support, value), labels, with_feature(query, value))
    if isinstance(without, PrototypeClassifier):  # its logits are divided by the number of features
        more = more * (1 + 1 / support.shape[-1])
    close(more, answer(without, support, labels, query))


@pytest.mark.parametrize(("once", "twice"), DOUBLED.values(), ids=DOUBLED)
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_every_support_point_twice_is_half_the_ridge(once: Head, twice: Head, seed: int) -> None:
    support, labels, query = episode(seed)
    doubled = twice.fit_(torch.cat([support, support]), torch.cat([labels, labels]), 3)(query)
    close(doubled, once.fit_(support, labels, 3)(query))


@pytest.mark.parametrize("kernel", [Linear(), RBF()], ids=["linear", "rbf"])
@settings(max_examples=10, deadline=None)
@given(seed=seeds, data=st.data())
def test_the_order_of_the_features_is_nothing(kernel: Kernel, seed: int, data: st.DataObject) -> None:
    support, labels, query = episode(seed)
    order = torch.tensor(data.draw(st.permutations(range(10))))
    for head in (PrototypeClassifier, RidgeClassifier, SVMClassifier, LSSVMClassifier):
        moved = head(kernel=kernel).fit_(support[:, order], labels, 3)(query[:, order])
        close(moved, head(kernel=kernel).fit_(support, labels, 3)(query))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    episodes=st.integers(2, 9),
    batches=st.lists(st.integers(1, 12), min_size=2, max_size=2),
    spread=st.just(0.0) | st.floats(0.01, 3),  # between them rounding decides, and differs from batch to batch
)
def test_accuracies_are_percentages_and_the_same_in_any_batch(seed, episodes, batches, spread) -> None:
    """Also where every feature is the same, so that every logit is a tie."""
    labels = torch.arange(6).repeat_interleave(12)
    generator = torch.Generator().manual_seed(seed)
    features = 1 + spread * torch.randn(len(labels), 20, generator=generator)
    names = [head + module for head in ("nn", "rr", "lssvm") for module in ("", "+psm(iterations=2)", "+can")]
    methods = [parse_method(name) for name in names]
    sampler = EpisodeSampler(labels, 5, 2, 4, seed)
    one, other = (run_methods(indexed(features), sampler, methods, episodes, batch_episodes=batch) for batch in batches)
    for outcome, again in zip(one, other, strict=True):
        assert len(outcome.accuracies) == episodes
        assert 0 <= outcome.accuracies.min() <= outcome.accuracies.max() <= 100
        assert torch.equal(outcome.accuracies, again.accuracies)
        assert torch.equal(outcome.share_errors, again.share_errors)
        if not spread:
            assert (outcome.accuracies == 20).all(), "a tie of all classes is given to the first"
            assert outcome.share_errors.tolist() == pytest.approx([32] * episodes), "80 points of one, 20 of four"


def test_a_batch_leaves_no_features_in_memory() -> None:
    """Not even until Python looks for objects that refer to each other: a batch takes hundreds of megabytes."""
    sampler = EpisodeSampler(torch.arange(6).repeat_interleave(30), 4, 1, 5, seed=0)
    names = ("rr", "rr(normalize)", "simpleshot", "pt-map(negative=signed)", "lssvm(power(negative=signed),normalize)")
    methods = [parse_method(name) for name in names]
    features = torch.randn(180, 8)
    gc.collect()
    gc.disable()
    before = _episode_features()  # of other tests
    try:
        run_methods(indexed(features, base_mean=features.mean(0)), sampler, methods, 40, batch_episodes=20)
        assert len(_episode_features()) == len(before)
    finally:
        gc.enable()


def _episode_features() -> list[EpisodeFeatures]:
    """All that are in memory."""
    return [each for each in gc.get_objects() if issubclass(type(each), EpisodeFeatures)]


@pytest.mark.parametrize("batch", [3, 50])
def test_share_errors_are_counted_in_each_episode(batch: int) -> None:
    """Whether a query is predicted rightly does not matter, only how many of each class there are."""
    labels = torch.arange(6).repeat_interleave(60)
    sampler = EpisodeSampler(labels, 4, 1, 5, seed=0, balance=QueryBalance.parse("dirichlet:1"))

    class Fixed(Method):
        is_transductive = False

        def logits(self, features):  # one query of the first class, three of the second, the others of the fourth
            return torch.eye(4)[[0, 1, 1, 1, *[3] * 16]].expand(len(features.points), -1, -1)

    (outcome,) = run_methods(indexed(torch.rand(len(labels), 3)), sampler, [Fixed()], 9, batch_episodes=batch)
    expected = []
    for number in range(9):
        true = sampler.query_labels(number, 1)[0].tolist()
        expected.append(sum(abs(true.count(each) - count) / 20 for each, count in enumerate([1, 3, 0, 16])) / 4 * 100)
    assert outcome.share_errors.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 5


@pytest.mark.parametrize(
    "splits", [CHARACTERS, {split: CIFAR_FS.split_classes(split) for split in ("train", "val", "test")}]
)
def test_no_class_is_in_two_splits(splits) -> None:
    classes = [name for names in splits.values() for name in names]
    assert len(classes) == len(set(classes)) == 100


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(5, 12), min_size=3, max_size=8), seed=seeds)
def test_an_episode_stays_within_its_split(sizes: list[int], seed: int) -> None:
    """Classes of unequal sizes; every image exists, belongs to its class, and is support or query but not both."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    sampler = EpisodeSampler(labels, 3, 2, 3, seed)
    indices = sampler.batch(0, 4)
    assert 0 <= indices.min() <= indices.max() < len(labels)
    for one in indices:
        support, query = one[: sampler.num_support], one[sampler.num_support :]
        assert not set(support.tolist()) & set(query.tolist())
        classes = labels[one]
        assert all(len(classes[sampler.labels == label].unique()) == 1 for label in range(3))


@pytest.mark.parametrize(("ways", "shots", "queries", "most"), [(5, 1, 5, 128), (20, 5, 100, 4)])
def test_large_episodes_go_together_in_small_batches(ways: int, shots: int, queries: int, most: int) -> None:
    sizes: list[int] = []

    class Counting(PrototypeClassifier):
        def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
            sizes.append(len(kernel))
            return super().solve(kernel, targets)

    features = torch.rand(ways * 110, 16)
    sampler = EpisodeSampler(torch.arange(ways).repeat_interleave(110), ways, shots, queries, seed=0)
    method = KernelMethod(Counting(), transduction=PseudoSupportModule(0))
    run_methods(indexed(features), sampler, [method], 6 if most < 6 else 200, workers=1)
    assert max(sizes) <= most
    assert most < 128 or max(sizes) == most, "small episodes fill a batch"
