"""IAM, PSM and CAN: the published numbers, explicit features, counts, and wrong input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.errors import UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import (
    Dual,
    Head,
    LSSVMClassifier,
    PrototypeClassifier,
    RidgeClassifier,
    SVMClassifier,
    one_hot,
)
from fslstm_plugin.naming import parse_method
from fslstm_plugin.transduction import CandidateSelection, InverseAttentionModule, PseudoSupportModule
from fslstm_plugin.transduction.psm import average_weights

FOLDER = Path(__file__).resolve().parents[1] / "golden"
GOLDEN = np.load(FOLDER / "heads.npz")
IAM = {name: torch.from_numpy(values) for name, values in np.load(FOLDER / "iam.npz").items()}


class Parzen(Head):
    """A third party's head: nothing but `solve`."""

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        return Dual(targets, torch.zeros_like(targets[..., 0, :]))


HEADS: dict[str, Callable[[], Head]] = {
    "prototype": PrototypeClassifier,
    "ridge": RidgeClassifier,
    "lssvm": LSSVMClassifier,
    "lssvm_one_vs_one": lambda: LSSVMClassifier(coding="one-vs-one"),
    "svm": SVMClassifier,
    "svm_rbf": lambda: SVMClassifier(kernel="rbf"),
    "ridge_polynomial": lambda: RidgeClassifier(kernel="polynomial"),
    "third_party": Parzen,
}
every_head = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
Episode = tuple[Tensor, Tensor, Tensor]


def episode(seed: int = 0, batch: tuple[int, ...] = (), queries: int = 12, dim: int = 16) -> Episode:
    """Three classes of 2, 1 and 3 shots in no order, the queries unbalanced (float64)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    labels = torch.tensor([2, 0, 2, 1, 0, 2])
    of_queries = (torch.arange(queries) % 5).clamp(max=2)
    centres = normal(3, dim)
    query = centres[..., of_queries, :] + normal(queries, dim)
    return centres[..., labels, :] + normal(6, dim), labels, query


def psm_by_features(head: Head, data: Episode, iterations: int) -> tuple[Tensor, bool]:
    """PSM as the paper tells it: average features, append them, fit again; and whether a class was left out."""
    support, labels, query = data
    logits = head.fit_(support, labels, 3)(query)
    left_out = False
    for _ in range(iterations):
        predicted = logits.argmax(-1)
        found = predicted.unique()
        left_out |= len(found) < 3
        support = torch.cat([support, *(query[predicted == c].mean(0, keepdim=True) for c in found)])
        labels = torch.cat([labels, found])
        logits = head.fit_(support, labels, 3)(query)
    return logits, left_out


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("iterations", [1, 10])
@pytest.mark.parametrize("case", ["way5_shot1", "way5_shot5"])
@pytest.mark.parametrize("name", ["prototype", "ridge", "lssvm"])
def test_published_psm(name: str, case: str, iterations: int) -> None:
    support, labels, query, expected = (
        torch.from_numpy(GOLDEN[f"{case}/{key}"]) for key in ("support", "labels", "query", f"psm{iterations}_{name}")
    )
    head = HEADS[name]()
    gram = EpisodeGram.from_features(support, query, transductive=True)
    path = PseudoSupportModule(iterations).trajectory(head, gram, one_hot(labels, 5))
    # The published loop appends a zero vector for a class without queries; ours leaves it out.
    comparable = one_hot(path[:-1].argmax(-1), 5).any(-2).all(-1).all(0)
    assert comparable.any()
    actual = PseudoSupportModule(iterations)(head, support, labels, query, ways=5)
    close(actual[comparable], expected[comparable], 1e-4)


@every_head
def test_psm_is_fitting_to_averages(make: Callable[[], Head]) -> None:
    expected, _ = psm_by_features(make(), episode(1), 4)
    close(PseudoSupportModule(4)(make(), *episode(1), ways=3), expected)


@every_head
def test_psm_leaves_out_a_class_without_queries(make: Callable[[], Head]) -> None:
    support, labels, query = episode(2)
    query = support[labels == 0].mean(0) + 0.01 * query[:4]
    expected, left_out = psm_by_features(make(), (support, labels, query), 3)
    assert left_out
    close(PseudoSupportModule(3)(make(), support, labels, query, ways=3), expected)


def test_psm_trajectory_holds_every_refit() -> None:
    support, labels, query = episode(3)
    gram = EpisodeGram.from_features(support, query, transductive=True)
    path = PseudoSupportModule(5).trajectory(RidgeClassifier(), gram, one_hot(labels, 3))
    assert path.shape == (6, 12, 3)
    close(path[0], RidgeClassifier(support, labels)(query))
    for k in range(6):
        close(path[k], PseudoSupportModule(k)(RidgeClassifier(), support, labels, query))


def weighted_psm_by_features(head: Head, data: Episode, iterations: int) -> tuple[Tensor, float]:
    """PSM with one new point for each average, however often it comes; and the least weight of an average."""
    support, labels, query = data
    targets = one_hot(labels, 3)
    shots = targets.sum(0)
    logits = head.predict(EpisodeGram.from_features(support, query), targets)
    least = 1.0
    for _ in range(iterations):
        predicted, weights = logits.argmax(-1), average_weights(logits, shots)
        for label in predicted.unique():
            support = torch.cat([support, query[predicted == label].mean(0, keepdim=True)])
            targets = torch.cat([targets, weights[label] * one_hot(label[None], 3)])
            least = min(least, weights[label].item())
        logits = head.predict(EpisodeGram.from_features(support, query), targets)
    return logits, least


@every_head
def test_tested_psm_is_fitting_to_weighted_averages(make: Callable[[], Head]) -> None:
    support, labels, query = episode(13, queries=40)
    centres = torch.stack([support[labels == label].mean(0) for label in range(3)])
    query = centres[(torch.arange(40) // 6).clamp(max=2)] + 0.5 * query  # 6, 6 and 28 of them
    expected, least = weighted_psm_by_features(make(), (support, labels, query), 4)
    assert least < 0.9
    close(PseudoSupportModule(4, prior="tested")(make(), support, labels, query), expected)


def counted(*counts: int) -> Tensor:
    """Logits that predict each class so often."""
    return one_hot(torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)), len(counts))


def test_tested_weights_by_hand() -> None:
    """20 queries per class: evidence 10, expected 1 + 5 with one shot, and so the exponent 2."""
    weights = average_weights(counted(30, 10), torch.ones(2))
    torch.testing.assert_close(weights, torch.tensor([1 / 2, 1 / 4], dtype=torch.float64) ** 2)
    # Shots 1 and 1/3 of that on average: expected 1 + 5 (1 + 1/3) / 2.
    exponent = 3 * (10 / (1 + 10 / 3) - 1)
    weights = average_weights(counted(30, 10), torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(weights, torch.tensor([1 / 2, 1 / 4], dtype=torch.float64) ** exponent)


@pytest.mark.parametrize("counts", [(15,) * 5, (1, 1), (17, 13, 15, 16, 14), (1, 0, 0), (4,)])
def test_predictions_that_may_be_balanced_have_the_published_weights(counts: tuple[int, ...]) -> None:
    assert (average_weights(counted(*counts), torch.ones(len(counts))) == 1).all()


@every_head
def test_tested_psm_is_the_published_one_on_balanced_predictions(make: Callable[[], Head]) -> None:
    support, labels = 3 * torch.eye(3, 16, dtype=torch.float64), torch.arange(3)
    generator = torch.Generator().manual_seed(14)
    query = support.repeat(8, 1) + 0.1 * torch.randn(24, 16, generator=generator, dtype=torch.float64)
    tested = PseudoSupportModule(3, prior="tested")(make(), support, labels, query)
    assert torch.equal(tested, PseudoSupportModule(3)(make(), support, labels, query))
    assert (tested.argmax(-1).bincount() == 8).all()


def test_what_a_head_prefers_for_every_query_is_no_evidence() -> None:
    logits = counted(15, 15, 15, 15, 15) * torch.linspace(0.5, 1.5, 75)[:, None]
    preferring = logits + torch.tensor([0.9, 0.0, 0.0, 0.0, 0.0])
    assert preferring.argmax(-1).bincount()[0] >= 30
    assert (average_weights(preferring, torch.full((5,), 5.0)) == 1).all()
    same_counts = counted(*preferring.argmax(-1).bincount(minlength=5).tolist())
    assert (average_weights(same_counts, torch.full((5,), 5.0)) < 0.1).all()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 40), shift=st.floats(-5, 5), data=st.data())
def test_tested_weights_are_weights(seed: int, queries: int, shift: float, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(queries, 4, generator=generator, dtype=torch.float64)
    logits[:, 0] += shift
    shots = torch.tensor([1.0, 2.0, 5.0, 1.0], dtype=torch.float64)
    weights = average_weights(logits, shots)
    assert ((weights >= 0) & (weights <= 1)).all()
    classes = torch.tensor(data.draw(st.permutations(range(4))))
    order = torch.tensor(data.draw(st.permutations(range(queries))))
    torch.testing.assert_close(average_weights(7 * logits[order][:, classes] + 3, shots[classes]), weights[classes])


@every_head
def test_tested_psm_of_one_class_of_queries_stays_finite(make: Callable[[], Head]) -> None:
    """Its weights vanish, and leave the plain head's predictions."""
    support, labels, query = episode(15, queries=60)
    query = support[labels == 2].mean(0) + 0.01 * query
    logits = PseudoSupportModule(10, prior="tested")(make(), support, labels, query)
    assert logits.isfinite().all()
    assert (logits.argmax(-1) == 2).all()


def test_the_prior_is_part_of_the_name() -> None:
    assert str(parse_method("lssvm+psm(prior=tested,iterations=3)")) == "lssvm+psm(iterations=3,prior=tested)"
    assert str(parse_method("lssvm+psm(prior=uniform)")) == "lssvm+psm"


def can_by_features(head: Head, data: Episode, counts: list[int], probability: bool) -> Tensor:
    """CAN's transduction with an explicit sort of all queries, refitted to their features."""
    support, labels, query = data
    logits = head.fit_(support, labels, 3)(query)
    for count in counts:
        score = (logits.softmax(-1) if probability else logits).amax(-1).tolist()
        best = sorted(range(len(query)), key=lambda i: (-score[i], i))[:count]
        candidates = torch.tensor(best)
        new_labels = torch.cat([labels, logits.argmax(-1)[candidates]])
        logits = head.fit_(torch.cat([support, query[candidates]]), new_labels, 3)(query)
    return logits


@every_head
@pytest.mark.parametrize("score", ["logit", "probability"])
def test_can_is_fitting_to_the_best_queries(make: Callable[[], Head], score: str) -> None:
    expected = can_by_features(make(), episode(4), [5, 10, 12], score == "probability")
    can = CandidateSelection(fraction=5 / 12, iterations=3, score=score)
    close(can(make(), *episode(4), ways=3), expected)


def test_can_counts() -> None:
    assert CandidateSelection().counts(75) == [35, 70]
    assert CandidateSelection(fraction=0.5, iterations=3).counts(9) == [4, 8, 9]
    for queries in range(1, 150):
        for taken in range(1, queries + 1):
            assert CandidateSelection(taken / queries, 1).counts(queries) == [taken]


def test_can_breaks_ties_by_the_earlier_query() -> None:
    support, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    query = torch.tensor([[0.0, 3.0], [3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])
    actual = CandidateSelection(0.25, 1)(RidgeClassifier(), support, labels, query)
    expected = RidgeClassifier(torch.cat([support, query[:1]]), torch.tensor([0, 1, 1]))(query)
    torch.testing.assert_close(actual, expected)


MODULES = {
    "psm": PseudoSupportModule(4),
    "psm_tested": PseudoSupportModule(4, prior="tested"),
    "can": CandidateSelection(0.4, 2),
}
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


@every_module
@every_head
def test_a_batch_is_its_episodes(make: Callable[[], Head], module: PseudoSupportModule) -> None:
    support, labels, query = episode(5, batch=(2, 3))
    logits = module(make(), support, labels, query, ways=3)
    close(logits[1, 2], module(make(), support[1, 2], labels, query[1, 2], ways=3), 1e-6)


@every_module
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_permutations_permute_the_answer(module: PseudoSupportModule, seed: int, data: st.DataObject) -> None:
    support, labels, query = episode(seed)
    logits = module(LSSVMClassifier(), support, labels, query)
    points = torch.tensor(data.draw(st.permutations(range(6))))
    queries = torch.tensor(data.draw(st.permutations(range(12))))
    classes = torch.tensor(data.draw(st.permutations(range(3))))
    moved = module(LSSVMClassifier(), support[points], classes[labels[points]], query[queries])
    close(moved[:, classes], logits[queries])


@every_module
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_single_precision(module: PseudoSupportModule, scale: float) -> None:
    """Averages that repeat make the Gram matrix singular."""
    support, labels, query = episode(6, dim=64)
    single = module(LSSVMClassifier(), scale * support.float(), labels, scale * query.float())
    assert single.dtype == torch.float32
    close(single.double(), module(LSSVMClassifier(), scale * support, labels, scale * query), 1e-3)


@every_module
def test_no_iterations_are_the_plain_head(module: PseudoSupportModule) -> None:
    support, labels, query = episode(7)
    none = type(module)(iterations=0)(RidgeClassifier(), support, labels, query)
    torch.testing.assert_close(none, RidgeClassifier(support, labels)(query))


@every_module
def test_wrong_input_is_named(module: PseudoSupportModule) -> None:
    support, labels, query = episode(8)
    with pytest.raises(UsageError, match="got Linear: subclass fslstm_plugin.heads.Head"):
        module(torch.nn.Linear(16, 3), support, labels, query)
    with pytest.raises(UsageError, match="class 3 has none"):
        module(RidgeClassifier(), support, labels, query, ways=4)
    with pytest.raises(UsageError, match="query features hold 192 NaN"):
        module(RidgeClassifier(), support, labels, query * torch.nan)
    with pytest.raises(UsageError, match="support set is empty"):
        module(RidgeClassifier(), support[None][:0], labels, query[None][:0])
    assert module(RidgeClassifier(), support, labels, query[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: PseudoSupportModule(-1),
            "`iterations` must be a whole number of at least 0 and at most 1,000,000, but got -1",
        ),
        (lambda: PseudoSupportModule(prior="test"), "no prior 'test'. Did you mean 'tested'"),
        (lambda: PseudoSupportModule(prior=2), "no prior '2'"),  # type: ignore[arg-type]
        (
            lambda: CandidateSelection(iterations=-1),
            "`iterations` must be a whole number of at least 0 and at most 1,000,000, but got -1",
        ),
        (lambda: CandidateSelection(fraction=0.0), "above 0 and at most 1, but got 0.0"),
        (lambda: CandidateSelection(score="logits"), "Did you mean 'logit'"),
        *((lambda dim=dim: InverseAttentionModule(dim), "`dim` must be") for dim in (0, 8.5, "8", None, 10**12)),
        (lambda: InverseAttentionModule(8, reduction=16), "at least 1 and at most 8, but got 16"),
        (lambda: InverseAttentionModule(8, dropout=1.0), r"of at least 0 and below 1, but got 1.0"),
    ],
)
def test_wrong_options_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_any_kind_of_whole_number_will_do() -> None:
    assert PseudoSupportModule(np.int64(3)).iterations == 3


def published_iam() -> InverseAttentionModule:
    iam = InverseAttentionModule(32, reduction=4)
    names = {key.replace("reduce", "0").replace("expand", "2"): key for key in IAM if "." in key}
    iam.load_state_dict({name: IAM[key] for name, key in names.items()})
    return iam.eval()


def test_published_iam() -> None:
    adjusted = published_iam()(IAM["support"], IAM["labels"], IAM["query"], ways=5)
    close(adjusted, IAM["adjusted"], 1e-4)


def test_iam_replaces_each_row_by_its_class_mean() -> None:
    """The module by its equations, for unequal shots in no order."""
    torch.manual_seed(9)
    iam = published_iam().double()
    support, labels, query = episode(9, dim=32)
    weights = (iam.query_map(support) @ iam.key_map(query).mT / 32**0.5).softmax(-1)
    attention = weights @ iam.value_map(query)
    rows = torch.stack([attention[labels == label].mean(0) for label in labels])
    close(iam(support, labels, query), iam.norm(support + iam.output_map(rows)), 1e-10)


def test_iam_batches_and_differentiates() -> None:
    iam = published_iam().double()
    support, labels, query = episode(10, batch=(2,), dim=32)
    adjusted = iam(support, labels, query, ways=3)
    close(adjusted[1], iam(support[1], labels, query[1], ways=3), 1e-10)
    few = (support[:1, :, :].requires_grad_(), query[:1, :3].requires_grad_())
    assert torch.autograd.gradcheck(lambda s, q: iam(s, labels, q), few, fast_mode=True)


def test_iam_drops_features_of_each_point_in_training_only() -> None:
    support, labels, query = episode(11, dim=32)
    iam = published_iam().double()
    support[2] = support[0]  # Two equal points of one class, hence of one shift.
    adjusted = iam(support, labels, query)
    torch.testing.assert_close(adjusted[0], adjusted[2])
    adjusted = iam.train()(support, labels, query)
    assert not torch.allclose(adjusted[0], adjusted[2])


def test_iam_names_wrong_features() -> None:
    support, labels, query = episode(12)
    with pytest.raises(UsageError, match=r"IAM is for 32 features, but got support \(6, 16\)"):
        published_iam()(support, labels, query)


REDUCED: dict[str, Callable[[], Head]] = {
    "prototype": PrototypeClassifier,
    "ridge": RidgeClassifier,
    "ridge_small": lambda: RidgeClassifier(ridge=1e-3),
    "lssvm": LSSVMClassifier,
    "lssvm_ecoc": lambda: LSSVMClassifier(coding="ecoc", bias_weight=0.5),
}
UNREDUCED: dict[str, Callable[[], Head]] = {
    "lssvm_hamming": lambda: LSSVMClassifier(decoding="hamming"),
    "lssvm_one_vs_one": lambda: LSSVMClassifier(coding="one-vs-one"),
    "lssvm_loo": lambda: LSSVMClassifier(ridge="loo"),
    "ridge_tiny": lambda: RidgeClassifier(ridge=1e-12),
    "prototype_rbf": lambda: PrototypeClassifier(kernel="rbf"),
    "ridge_cosine": lambda: RidgeClassifier(kernel="cosine"),
    "svm": SVMClassifier,
}


def averages(seed: int, weights: list[float]) -> tuple[Tensor, Tensor]:
    """Averages of some queries with labels of these weights, 0 for an absent one."""
    generator = torch.Generator().manual_seed(seed)
    members = (torch.rand(len(weights), 12, generator=generator) < 0.4).double()
    members[:, 0] = 1
    weight = torch.tensor(weights, dtype=torch.float64).unsqueeze(-1)
    labels = torch.randint(3, (len(weights),), generator=generator)
    return members / members.sum(-1, keepdim=True) * (weight > 0), one_hot(labels, 3) * weight


@pytest.mark.parametrize("make", REDUCED.values(), ids=REDUCED)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    weights=st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=8),
    own=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=3, max_size=3),
    dim=st.sampled_from([2, 16, 64]),
)
def test_the_reduced_problem_has_the_same_answers(
    make: Callable[[], Head], seed: int, weights: list[float], own: list[float], dim: int
) -> None:
    """For any points appended, absent ones, weights, unequal shots, and fewer features than points."""
    support, labels, query = episode(seed, (2,), dim=dim)
    # The first point of each class stays; others are absent, once, or twice there.
    support, targets = support.clone(), one_hot(labels, 3).repeat(2, 1, 1)
    for point, weight in zip([2, 4, 5], own, strict=True):
        targets[0, point] *= weight
        support[0, point] *= weight > 0
    gram = EpisodeGram.from_features(support, query, transductive=True)
    mix, more = averages(seed, weights)
    mix, more = mix.expand(2, -1, -1), more.expand(2, -1, -1)
    whole = make().predict(gram.append(mix), torch.cat([targets, more], -2))
    head, rest, few = make().reduced(gram, targets)
    assert few.shape[-2] != targets.shape[-2] or isinstance(head, PrototypeClassifier)
    close(head.predict(rest, few), make().predict(gram, targets), 1e-6)
    close(head.predict(rest.append(mix), torch.cat([few, more], -2)), whole, 1e-6)
    copies = torch.tensor([[3, 1], [0, 3]])
    whole = make().predict(gram.append_queries(copies), torch.cat([targets, one_hot(copies % 3, 3)], -2))
    close(head.predict(rest.append_queries(copies), torch.cat([few, one_hot(copies % 3, 3)], -2)), whole, 1e-6)


@pytest.mark.parametrize("make", UNREDUCED.values(), ids=UNREDUCED)
def test_what_elimination_would_change_is_not_reduced(make: Callable[[], Head]) -> None:
    support, labels, query = episode(13)
    gram, targets, made = EpisodeGram.from_features(support, query, transductive=True), one_hot(labels, 3), make()
    assert made.reduced(gram, targets) == (made, gram, targets)


def test_single_precision_is_reduced_only_where_the_ridge_is_far_above_its_rounding() -> None:
    support, labels, query = episode(14)
    exact = EpisodeGram.from_features(support, query, transductive=True)
    assert exact.query is not None
    blocks = (exact.support.float(), exact.cross.float(), exact.query_norms.float())
    gram, targets = EpisodeGram(*blocks, exact.dim, exact.query.float()), one_hot(labels, 3)
    assert LSSVMClassifier().reduced(gram, targets.float())[1] is gram
    head, rest, few = RidgeClassifier().reduced(gram, targets.float())
    assert rest is not gram
    mix, more = averages(14, [1.0, 2.0])
    whole = RidgeClassifier().predict(exact.append(mix), torch.cat([targets, more]))
    actual = head.predict(rest.append(mix.float()), torch.cat([few, more.float()]))
    assert actual.dtype == torch.float32
    close(actual.double(), whole, 1e-4)


@pytest.mark.parametrize("make", REDUCED.values(), ids=REDUCED)
def test_gradients_flow_through_the_reduced_problem(make: Callable[[], Head]) -> None:
    support, labels, query = episode(15, dim=8)
    mix, more = averages(15, [1.0, 0.5, 0.0])

    def logits(support: Tensor, query: Tensor) -> Tensor:
        gram = EpisodeGram.from_features(support, query, transductive=True)
        head, gram, targets = make().reduced(gram, one_hot(labels, 3))
        return head.predict(gram.append(mix), torch.cat([targets, more]))

    assert torch.autograd.gradcheck(logits, (support.requires_grad_(), query.requires_grad_()), fast_mode=True)
