"""What heads predict for points left out, also of a support that a query joins, against refits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fslstm_plugin.errors import UsageError
from fslstm_plugin.gram import EpisodeGram
from fslstm_plugin.heads import Head, LSSVMClassifier, PrototypeClassifier, RidgeClassifier, SVMClassifier, one_hot
from fslstm_plugin.heads.leave_one_out import choose_ridge
from fslstm_plugin.heads.margins import margins
from fslstm_plugin.testing import small_episodes

WAYS = 3
HEADS = {
    "nn": PrototypeClassifier(),
    "nn rbf": PrototypeClassifier(kernel="rbf(scale=0.1)"),
    "rr": RidgeClassifier(ridge=3.0),
    "rr polynomial": RidgeClassifier(ridge=0.5, kernel="polynomial(degree=2)"),
    "lssvm": LSSVMClassifier(),
    "lssvm cosine": LSSVMClassifier(kernel="cosine", bias_weight=0.7),
    "lssvm ecoc": LSSVMClassifier(ridge=2.0, coding="ecoc"),
    "lssvm matrix": LSSVMClassifier(coding=torch.tensor([[1, 1], [-1, 1], [-1, -1]])),
    "lssvm loo": LSSVMClassifier(ridge="loo"),
    "lssvm loo rbf": LSSVMClassifier(ridge="loo", kernel="rbf(scale=0.1)"),
}


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> Head:
    return HEADS[request.param]


def refitted(head: Head, points: Tensor, labels: Tensor, with_it: list[set[int]] | None = None) -> Tensor:
    """Each point's logits by the head fitted to the others; a ridge that all of them choose held fixed."""
    if isinstance(head, LSSVMClassifier) and head.ridge == "loo":
        kernel = EpisodeGram.from_features(points, points[:1]).support_kernel(head.kernel, one_hot(labels, WAYS))
        right = head.code(WAYS)[labels].double()
        ones = torch.ones(len(points), dtype=torch.float64)
        chosen = choose_ridge(kernel, kernel + 1 / head.bias_weight, right, ones).item()
        head = LSSVMClassifier(ridge=chosen, bias_weight=head.bias_weight, kernel=head.kernel)
    logits = []
    for left_out in range(len(points)):
        gone = {left_out} if with_it is None else with_it[left_out]
        others = torch.tensor([each not in gone for each in range(len(points))])
        gram = EpisodeGram.from_features(points[others], points[left_out : left_out + 1])
        logits.append(head.predict(gram, one_hot(labels[others], WAYS)))
    return torch.cat(logits)


@pytest.mark.parametrize("shots", [(2, 2, 2), (3, 4, 2), (1, 5, 2)])
def test_the_logits_of_points_left_out_are_those_of_refits(head: Head, shots: tuple[int, ...]) -> None:
    support, labels, query = small_episodes(0, shots, batch=(2, 2))
    found = head.leave_one_out(EpisodeGram.from_features(support, query), one_hot(labels, WAYS))
    for place in ((0, 0), (0, 1), (1, 1)):
        expected = refitted(head, support[place], labels[place])
        if isinstance(head, PrototypeClassifier):
            expected = expected.nan_to_num(-torch.inf)  # the distance to a mean of nothing
        torch.testing.assert_close(found[place], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shots", [(1, 1, 1), (2, 2, 2), (3, 4, 2), (1, 5, 2)])
def test_one_of_each_class_can_be_left_out_together(head: Head, shots: tuple[int, ...]) -> None:
    support, labels, query = small_episodes(4, shots, batch=(2,))
    gram = EpisodeGram.from_features(support, query)
    found = head.leave_one_out(gram, one_hot(labels, WAYS), of_each_class=True)
    for episode in range(2):
        members = [(labels[episode] == label).nonzero().flatten().tolist() for label in range(WAYS)]
        gone = []
        for point, own in enumerate(labels[episode].tolist()):
            place = members[own].index(point)
            others = {mine[place % len(mine)] for label, mine in enumerate(members) if label != own and len(mine) > 1}
            gone.append({point} | others)
        expected = refitted(head, support[episode], labels[episode], gone)
        if isinstance(head, PrototypeClassifier):
            expected = expected.nan_to_num(-torch.inf)
        torch.testing.assert_close(found[episode], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("shots", [(1, 1, 1), (3, 4, 2)])
def test_a_query_joins_the_support_as_a_point_of_each_class(
    head: Head, shots: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fslstm_plugin.heads.margins._NUMBERS", 20)  # a few queries at a time
    support, labels, query = small_episodes(1, shots, batch=(2,))
    gram, targets = EpisodeGram.from_features(support, query), one_hot(labels, WAYS)
    every, own = (list(head.leave_one_out_with_queries(gram, targets, of_own_class=each)) for each in (False, True))
    assert min(len(every), len(own)) > 1, "several parts"
    every_points, every_query, points, query_margins = (
        torch.cat([(each.points if of_points else each.query).difference for each in parts], dim)
        for parts, of_points, dim in ((every, True, 1), (every, False, 1), (own, True, 1), (own, False, 1))
    )
    torch.testing.assert_close(every_query, query_margins)
    for episode in range(2):
        for row in (0, 3, 6):
            joined = torch.cat([support[episode], query[episode, row : row + 1]])
            for label in range(WAYS):
                mine = torch.cat([labels[episode], torch.tensor([label])])
                logits = refitted(head, joined, mine)
                if isinstance(head, PrototypeClassifier):
                    logits = logits.nan_to_num(-torch.inf)
                expected = margins(logits, mine).difference
                same = labels[episode] == label
                for found, wanted in (
                    (every_points[episode, row, :, label], expected[:-1]),
                    (points[episode, row][same], expected[:-1][same]),
                    (every_query[episode, row, label], expected[-1]),
                ):
                    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


def test_a_class_without_points_is_infinitely_far() -> None:
    support, labels, query = small_episodes(2, (1, 1, 1))
    gram = EpisodeGram.from_features(support, query)
    logits = PrototypeClassifier().leave_one_out(gram, one_hot(labels, WAYS))
    own = one_hot(labels, WAYS).bool()
    assert (logits[own] == -torch.inf).all()
    assert logits[~own].isfinite().all()


def test_a_copy_of_a_support_point_is_no_trouble(head: Head) -> None:
    """Rounding of large single-precision features must not outweigh the ridge."""
    support, labels, _ = small_episodes(3, (3, 3, 3))
    points = (300 * support).float()
    gram = EpisodeGram.from_features(points, points.clone())
    for found in head.leave_one_out_with_queries(gram, one_hot(labels, WAYS)):
        assert not found.points.difference.isnan().any()
        assert not found.query.difference.isnan().any()


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (SVMClassifier(), "SVMClassifier has no closed-form leave-one-out: its solution"),
        (LSSVMClassifier(coding="one-vs-one"), "LSSVMClassifier .* a coding that has 0"),
        (LSSVMClassifier(coding=torch.tensor([[1, 0], [-1, 1], [0, -1]])), "a coding that has 0"),
        (LSSVMClassifier(decoding="hamming"), "the signs that Hamming decoding takes are not linear"),
    ],
)
def test_heads_without_a_closed_form_say_so(head: Head, reason: str) -> None:
    support, labels, query = small_episodes(0)
    episode = EpisodeGram.from_features(support, query), one_hot(labels, WAYS)
    for method in (head.leave_one_out, head.leave_one_out_with_queries):
        with pytest.raises(UsageError, match=reason):
            method(*episode)
