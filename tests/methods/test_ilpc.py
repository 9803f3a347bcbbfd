"""iLPC: published numbers of the first round and of all, its rules for stopping, batches, odd episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fslstm_plugin.errors import UsageError
from fslstm_plugin.features import EpisodeFeatures
from fslstm_plugin.heads import one_hot
from fslstm_plugin.methods.ilpc import ILPC, balance, cleanest, neighbour_graph, propagate
from fslstm_plugin.naming import parse_method

FOLDER = Path(__file__).resolve().parents[1] / "golden"
INPUTS, GOLDEN = np.load(FOLDER / "transductive.npz"), np.load(FOLDER / "transductive_tim.npz")
CASES = ("5way1shot", "5way5shot", "unbalanced")


def golden(case: str) -> EpisodeFeatures:
    support, query = (torch.from_numpy(INPUTS[f"{case}/{what}"]) for what in ("support", "query"))
    return EpisodeFeatures(support, query, torch.from_numpy(INPUTS[f"{case}/support_labels"]).long())


def episodes(seed: int, *leading: int, shots=(2, 2, 2), queries: int = 15, dim: int = 24):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    centres = torch.randn(*leading, len(shots), dim, generator=generator)
    noise = torch.randn(*leading, len(labels) + queries, dim, generator=generator)
    classes = torch.cat([labels, torch.arange(queries) % len(shots)])
    support, query = (centres[..., classes, :] + noise).split([len(labels), queries], -2)
    return support, query, labels


@pytest.mark.parametrize("case", CASES)
def test_published_first_round(case):
    method, features = ILPC(), golden(case)
    gram, n, m = method.prepare(features).gram.whole, features.num_support, features.num_query
    labels = torch.cat([features.targets.mT, torch.zeros(len(gram), 5, m, dtype=gram.dtype)], -1)
    spread = propagate(neighbour_graph(gram, 20, 3), labels, 0.8)[..., n:]
    np.testing.assert_allclose(spread.mT, GOLDEN[f"{case}/ilpc/propagated_1"], atol=3e-6, rtol=0)
    plan = balance(spread**3, torch.full((len(gram), 5, 1), m / 5, dtype=gram.dtype))
    np.testing.assert_allclose(plan.mT, GOLDEN[f"{case}/ilpc/plan_1"], atol=1e-4, rtol=0)
    guess = one_hot(plan.argmax(-2), 5).mT
    losses = method.losses(gram, labels, torch.cat([labels[..., :n], guess], -1))[..., n:]
    np.testing.assert_allclose(losses, GOLDEN[f"{case}/ilpc/loss_1"], atol=2e-5, rtol=0)
    np.testing.assert_array_equal(cleanest(losses, guess > 0, 3).any(-2), GOLDEN[f"{case}/ilpc/selected_1"])


@pytest.mark.parametrize("case", CASES)
def test_published_predictions(case):
    np.testing.assert_array_equal(ILPC().logits(golden(case)).argmax(-1), GOLDEN[f"{case}/ilpc/prediction"])


def test_a_batch_is_its_episodes_one_at_a_time(monkeypatch):
    """Episodes end in different rounds, and are worked on in chunks."""
    monkeypatch.setattr("fslstm_plugin.methods.shared.batches._CACHE", 5 * 21 * 21 * 8)
    rounds = []
    method = ILPC(steps=20)
    losses = method.losses
    monkeypatch.setattr(method, "losses", lambda gram, *rest: rounds.append(len(gram)) or losses(gram, *rest))
    support, query, labels = episodes(0, 3, 4)
    together = method.logits(EpisodeFeatures(support, query, labels))
    assert max(rounds) == 5
    assert len(set(rounds)) > 1
    alone = [[method.logits(EpisodeFeatures(support[i, j], query[i, j], labels)) for j in range(4)] for i in range(3)]
    torch.testing.assert_close(torch.stack([torch.stack(row) for row in alone]), together)


def test_orders_of_queries_points_and_classes_do_not_matter():
    method = ILPC(steps=20)
    support, query, labels = episodes(1, 6, shots=(1, 4, 2))
    logits = method.logits(EpisodeFeatures(support, query, labels))
    queries, points, classes = torch.randperm(15), torch.randperm(7), torch.tensor([2, 0, 1])
    mixed = EpisodeFeatures(support[:, points], query[:, queries], classes[labels[points]])
    torch.testing.assert_close(method.logits(mixed)[..., classes], logits[:, queries])


def test_queries_that_no_class_with_quota_reaches_are_not_given_to_the_first_class():
    generator = torch.Generator().manual_seed(0)
    centers = 8 * torch.randn(5, 64, generator=generator)
    labels, right = (
        torch.arange(5).repeat_interleave(5),
        torch.arange(5).repeat_interleave(torch.tensor([25, 5, 20, 15, 10])),
    )
    support, query = (centers[each] + torch.randn(len(each), 64, generator=generator) for each in (labels, right))
    backwards = torch.arange(4, -1, -1)
    method = ILPC(steps=50)
    one = method.logits(EpisodeFeatures(support, query, labels))
    other = method.logits(EpisodeFeatures(support, query, backwards[labels]))
    torch.testing.assert_close(other[:, backwards], one)
    assert (one.argmax(-1) == right).double().mean() > 0.9


@pytest.mark.parametrize("name", ["ilpc(steps=5)", "ilpc(power=false,steps=5,least=1)", "ilpc(steps=5,per_class=50)"])
@pytest.mark.parametrize("queries", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("shots", [(1, 1, 1), (1, 6, 2), (5, 5)])
def test_any_number_of_points(name, shots, queries):
    """Quotas are no whole numbers, so that some fall below 0; there are fewer points than neighbours."""
    support, query, labels = episodes(2, 3, shots=shots, queries=queries)
    same = query[..., :1, :].expand_as(query) if queries else query
    for features in (
        EpisodeFeatures(support, query, labels),
        EpisodeFeatures(support, same, labels),
        EpisodeFeatures(support * 0, query * 0, labels),
    ):
        logits = parse_method(name).logits(features)
        assert logits.shape == (3, queries, len(shots))
        assert (logits.sum(-1) == 1).all()
        assert ((logits == 0) | (logits == 1)).all()


def test_clear_queries_are_all_found():
    support, query, labels = episodes(3, 8, shots=(1, 1, 1, 1, 1), queries=25, dim=200)
    assert (ILPC(steps=50).logits(EpisodeFeatures(support, query, labels)).argmax(-1) == torch.arange(25) % 5).all()


def test_least_ends_an_episode():
    """With a least number that no round reaches, the first round's plan is the result."""
    features = golden("5way1shot")
    once = ILPC(least=100).logits(features).argmax(-1)
    np.testing.assert_array_equal(once, GOLDEN["5way1shot/ilpc/plan_1"].argmax(-1))


def test_graph_is_symmetric_and_takes_the_nearest():
    points = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), dim=-1)
    graph = neighbour_graph((points @ points.T)[None], 1, 3)[0]
    torch.testing.assert_close(graph, torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0.0]]))
    every = neighbour_graph((points @ points.T)[None], 99, 3)[0]
    torch.testing.assert_close(every, every.T)
    assert (every.triu(1) > 0).sum() == 5  # Of the first and the third the cosine is 0.


def test_a_graph_with_points_on_the_other_side_stays_finite():
    points = torch.tensor([[1.0], [1.0], [-1.0]])
    graph = neighbour_graph((points @ points.T)[None], 2, 3)
    torch.testing.assert_close(graph[0], torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    spread = propagate(graph, torch.tensor([[[1.0, 0, 0], [0, 0, 0]]]), 0.8)
    torch.testing.assert_close(spread[0], torch.tensor([[1, 1, 0.5], [0, 0, 0.5]]))


def test_propagation_solves_the_system():
    generator = torch.Generator().manual_seed(0)
    points = torch.nn.functional.normalize(torch.rand(3, 12, 6, generator=generator, dtype=torch.float64), dim=-1)
    graph = neighbour_graph(points @ points.mT, 4, 3)
    labels = torch.eye(12, dtype=torch.float64)[:3].expand(3, -1, -1)
    exact = torch.linalg.solve(torch.eye(12) - 0.8 * graph, labels.mT).mT.clamp(min=0)
    torch.testing.assert_close(propagate(graph, labels, 0.8), exact / exact.sum(-2, keepdim=True), atol=1e-5, rtol=0)


def test_balance_reaches_the_quotas_whatever_the_batch():
    generator = torch.Generator().manual_seed(0)
    plan = torch.rand(4, 3, 9, generator=generator, dtype=torch.float64) ** torch.tensor([1, 2, 4, 9]).view(-1, 1, 1)
    plan[..., 7:] = 0  # Two queries that take no part.
    quota = torch.tensor([1.0, 2.5, 3.5], dtype=torch.float64).view(-1, 1).expand(4, -1, -1)
    balanced = balance(plan, quota)
    torch.testing.assert_close(balanced.sum(-1, keepdim=True), quota)
    torch.testing.assert_close(balanced[..., :7].sum(-2), torch.ones(4, 7, dtype=torch.float64), atol=1e-4, rtol=0)
    assert (balanced[..., 7:] == 0).all()
    assert all(torch.equal(balance(plan[i : i + 1], quota[i : i + 1])[0], balanced[i]) for i in range(4))


def test_a_class_without_quota_gets_nothing():
    plan = balance(torch.rand(1, 3, 6) + 0.1, torch.tensor([[[0.0], [2.0], [4.0]]]))
    torch.testing.assert_close(plan.sum(-1)[0], torch.tensor([0.0, 2.0, 4.0]))


def test_cleanest_takes_the_smallest_losses_of_each_class():
    losses = torch.tensor([[3.0, 1.0, 2.0, 2.0, 9.0]])
    candidates = one_hot(torch.tensor([[0, 0, 0, 0, 1]]), 3).mT > 0
    assert cleanest(losses, candidates, 2)[0].nonzero().tolist() == [[0, 1], [0, 2], [1, 4]]


def test_losses_are_those_of_the_linear_classifier():
    """By PyTorch's own SGD on the features."""
    support, query, labels = episodes(4, shots=(2, 3), queries=5)
    method = ILPC(power=False, steps=40)
    features = method.prepare(EpisodeFeatures(support.double(), query.double(), labels))
    every = torch.cat([labels, torch.tensor([0, 1, 0, 1, 1])])
    known = torch.cat([features.targets.mT, torch.zeros(2, 5, dtype=torch.float64)], -1)[None]
    found = method.losses(features.gram.whole[None], known, one_hot(every, 2).mT[None])[0]
    linear = torch.nn.Linear(24, 2, dtype=torch.float64)
    means = torch.stack([features.support[labels == c].mean(0) for c in range(2)])
    with torch.no_grad():
        linear.weight.copy_(torch.nn.functional.normalize(means, dim=-1))
        linear.bias.zero_()
    sgd = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    total = torch.zeros(10, dtype=torch.float64)
    for _ in range(40):
        each = torch.nn.functional.cross_entropy(linear(features.points), every, reduction="none")
        total += each.detach()
        sgd.zero_grad()
        each.mean().backward()
        sgd.step()
    torch.testing.assert_close(found, total / 40, atol=1e-6, rtol=0)


def test_names():
    for name in ("ilpc", "ilpc(power=false,neighbours=15)", "ilpc(alpha=0.5)"):
        assert str(parse_method(name)) == name
    assert len(ILPC(power=False).adapters) == 1
    assert parse_method("ilpc").is_transductive


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ilpc(alpha=1)", "alpha must be a finite number above 0 and below 1"),
        ("ilpc(alpha=0)", "alpha must be a finite number above 0 and below 1"),
        ("ilpc(momentum=1)", "momentum must be a finite number of at least 0 and below 1"),
        ("ilpc(neighbours=0)", "neighbours must be a whole number of at least 1"),
        ("ilpc(exponent=2.5)", "exponent must be a whole number"),
        ("ilpc(per_class=0)", "per_class must be a whole number"),
        ("ilpc(least=0)", "least must be a whole number"),
        ("ilpc(steps=0)", "steps must be a whole number"),
        ("ilpc(learning_rate=0)", "learning_rate must be a finite number above 0 and at most 100"),
        ("ilpc(learning_rate=1e300)", "above 0 and at most 100, but got 1e\\+300"),
        ("ilpc(weight_decay=1e300)", "weight_decay can be at most 1 / learning_rate in ilpc, 10, but got 1e\\+300"),
        ("ilpc(weight_decay=-1)", "weight_decay must be a finite number of at least 0"),
        ("ilpc(neighbors=3)", "Did you mean 'neighbours'"),
    ],
)
def test_bad_arguments(name, says):
    with pytest.raises(UsageError, match=says):
        parse_method(name)
