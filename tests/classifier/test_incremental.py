"""Points and classes that come and go: the same as fitting anew, whatever the order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fslstm_plugin.classifier.incremental import UpdatableSystem, is_updatable
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import Head, LSSVMClassifier, PrototypeClassifier, RidgeClassifier, one_hot

HEADS = {
    "lssvm": LSSVMClassifier(),
    "lssvm(ridge=0.001)": LSSVMClassifier(ridge=0.001),
    "lssvm(coding=ecoc)": LSSVMClassifier(coding="ecoc"),
    "lssvm(kernel=rbf,bias_weight=0.5)": LSSVMClassifier(kernel="rbf", bias_weight=0.5),
    "rr": RidgeClassifier(),
    "rr(ridge=0.001,kernel=polynomial)": RidgeClassifier(ridge=0.001, kernel="polynomial"),
}
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(1, 6)), min_size=1, max_size=12)


def fitted_anew(head: Head, points: Tensor, targets: Tensor, query: Tensor) -> Tensor:
    return head.predict(EpisodeGram.from_features(points, query), targets)


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), changes=CHANGES, dim=st.sampled_from([3, 12]))
def test_any_sequence_of_updates_is_the_same_as_fitting_anew(name: str, seed: int, changes, dim: int) -> None:
    """Points given twice among them, and more points than features."""
    head, generator = HEADS[name], torch.Generator().manual_seed(seed)
    system, labels = UpdatableSystem(head), torch.arange(3)
    system.add(torch.randn(3, dim, generator=generator, dtype=torch.float64))
    for adds, count in changes:
        if adds:
            new = 3 * torch.randn(count, dim, generator=generator, dtype=torch.float64)
            new[0] = system.points[0]
            labels = torch.cat([labels, torch.randint(3, (count,), generator=generator)])
            system.add(new)
        else:  # of the first three, which keep every class, none goes
            places = 3 + torch.randperm(len(labels) - 3, generator=generator)[:count]
            labels = labels[~torch.isin(torch.arange(len(labels)), places)]
            system.remove(places)
    query = torch.randn(7, dim, generator=generator, dtype=torch.float64)
    targets = one_hot(labels, 3)
    gram = EpisodeGram.from_features(system.points, query)
    updated = system.logits(query, system.coefficients(targets))
    torch.testing.assert_close(updated, fitted_anew(head, system.points, targets, query), rtol=1e-8, atol=1e-8)
    left_out = system.leave_one_out(targets)  # from the inverse, as fitted anew, without refinement
    torch.testing.assert_close(left_out, head.leave_one_out(gram, targets, of_each_class=True), rtol=1e-6, atol=1e-6)


def test_a_class_goes_and_another_comes() -> None:
    head, system = LSSVMClassifier(), UpdatableSystem(LSSVMClassifier())
    points, query = torch.randn(12, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    labels = torch.arange(12) // 3
    system.add(points[:9])
    system.remove(torch.nonzero(labels[:9] == 1).flatten())
    system.add(points[9:])
    kept = labels != 1
    targets = one_hot(torch.tensor([0, -1, 1, 2])[labels[kept]], 3)
    torch.testing.assert_close(system.points, points[kept])
    updated = system.logits(query, system.coefficients(targets))
    torch.testing.assert_close(updated, fitted_anew(head, points[kept], targets, query), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("ridge", [1e-9, 1e-14])
def test_what_rounding_makes_of_an_almost_singular_system_is_noticed(ridge: float) -> None:
    """Equal points, whose Schur complement is rounding alone; fitted anew it has answers as good as the points."""
    head = LSSVMClassifier(ridge=ridge)
    system, labels = UpdatableSystem(head), torch.arange(12) % 3
    points = 10 * torch.randn(3, 5, dtype=torch.float64)
    for _ in range(6):
        system.add(points)
    system.remove(torch.arange(6))
    targets = one_hot(labels, 3)
    logits = system.logits(points, system.coefficients(targets))
    torch.testing.assert_close(logits, fitted_anew(head, system.points, targets, points), rtol=1e-2, atol=1e-2)


def test_heads_whose_system_looks_at_the_labels_are_not_updatable() -> None:
    others = LSSVMClassifier(ridge="loo"), LSSVMClassifier(coding="one-vs-one"), PrototypeClassifier()
    assert not any(map(is_updatable, others))
    assert all(map(is_updatable, HEADS.values()))
