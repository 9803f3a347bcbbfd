"""What every head must do, as checks for the tests of whoever writes one.

Each check raises an `AssertionError` whose sentence says what does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from .gram import EpisodeGram
from .heads import Head, one_hot

_SHOTS = 3 * ((3, 1, 2), (1, 1, 1), (2, 5, 1))  # Of each class, in one episode after the other.
_DIM, _QUERIES, _WAYS = 12, 7, 3

Answer = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""From support ``(..., n, d)``, labels, queries ``(..., m, d)`` and ways to logits ``(..., m, ways)``."""


class SmallEpisodes(NamedTuple):
    """A batch of episodes in double precision, the classes in no order."""

    support: Tensor
    labels: Tensor
    query: Tensor


def small_episodes(seed: int, shots: tuple[int, ...] = _SHOTS[0], batch: tuple[int, ...] = ()) -> SmallEpisodes:
    """Classes that overlap a little, in more dimensions than points.

    Args:
        seed: Seed of the draw.
        shots: Support points of each class.
        batch: Leading dimensions; every episode has an order of labels of its own.

    Example:
        >>> [tuple(each.shape) for each in small_episodes(0, (1, 2), (4,))]
        [(4, 3, 12), (4, 3), (4, 7, 12)]
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    labels = torch.repeat_interleave(torch.arange(len(shots)), torch.tensor(shots)).expand(*batch, -1)
    labels = labels.gather(-1, normal(labels.shape[-1]).argsort(-1))
    centres = normal(len(shots), _DIM).gather(-2, labels.unsqueeze(-1).expand(*labels.shape, _DIM))
    return SmallEpisodes(centres + normal(*centres.shape[-2:]), labels, 2 * normal(_QUERIES, _DIM))


def check_head(make: Callable[[], Head]) -> None:
    """Check that a head keeps the contract of `Head`, on which modules, training and evaluation rely.

    A batch is its episodes; the order of support points, queries and classes is nothing; a point of weight w stands for
    w equal ones, and one of weight 0 for none; classes may have different numbers of points; queries of single and
    half precision get nearly the logits of double; the gradient is that of the logits; and what ``state_dict`` saves
    predicts alike when loaded.

    Args:
        make: Makes a new head that is not fitted, in the setting to check. A head that iterates must be as accurate as
            a difference quotient demands.

    Raises:
        AssertionError: Naming the first of these that does not hold.

    Example:
        >>> from fslstm_plugin.heads import Dual, RidgeClassifier
        >>> check_head(RidgeClassifier)
        >>> class Counting(Head):
        ...     def solve(self, kernel, targets):
        ...         present = (targets > 0).to(targets)
        ...         return Dual(present, -present.sum(-2))
        >>> check_head(Counting)
        Traceback (most recent call last):
        ...
        AssertionError: Counting: a support point of weight w must stand for w equal ones, ...
    """
    head = make()
    assert isinstance(head, Head), f"What is checked must be a Head, but got a {type(head).__name__}."
    head.eval()
    name = type(head).__name__

    def answer(support: Tensor, labels: Tensor, query: Tensor, ways: int) -> Tensor:
        return head.fit_(support, labels, ways)(query)

    for seed, shots in enumerate(_SHOTS):
        _check_shape_and_order(name, answer, seed, shots)
        _check_weights(name, head, seed, shots)
    _check_batches(name, answer)
    _check_precisions(name, answer)
    _check_state(name, head, make)
    head.double()
    _check_gradients(name, answer)


def _check_shape_and_order(name: str, answer: Answer, seed: int, shots: tuple[int, ...]) -> None:
    support, labels, query = small_episodes(seed, shots)
    logits = answer(support, labels, query, _WAYS)
    expected = (_QUERIES, _WAYS)
    assert logits.shape == expected, f"{name}: logits must have the shape {expected}, but got {tuple(logits.shape)}."
    _same(name, "the same episode must get the same logits again", answer(support, labels, query, _WAYS), logits, 0)
    generator = torch.Generator().manual_seed(seed)
    points, queries, classes = (torch.randperm(size, generator=generator) for size in (len(labels), _QUERIES, _WAYS))
    moved = answer(support[points], labels[points], query, _WAYS)
    _same(name, "the order of the support points must not matter", moved, logits)
    moved = answer(support, labels, query[queries], _WAYS)
    _same(name, "queries in another order must get the same logits in that order", moved, logits[queries])
    moved = answer(support, classes[labels], query, _WAYS)
    _same(name, "classes numbered otherwise must get the same logits", moved[:, classes], logits)


def _check_batches(name: str, answer: Answer) -> None:
    support, labels, query = small_episodes(4, batch=(2, 3))
    logits = answer(support, labels, query, _WAYS)
    for place in ((0, 0), (1, 2)):
        alone = answer(support[place], labels[place], query[place], _WAYS)
        _same(name, "an episode of a batch must get the logits that it gets alone", logits[place], alone)
    for_all = answer(support, labels[0, 0], query, _WAYS)
    each = answer(support, labels[0, 0].expand_as(labels), query, _WAYS)
    _same(name, "labels (n,) must be those of every episode", for_all, each)


def _check_precisions(name: str, answer: Answer) -> None:
    episodes = small_episodes(5)
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 3e-2)):
        support, query = episodes.support.to(dtype), episodes.query.to(dtype)
        logits = answer(support, episodes.labels, query, _WAYS)
        assert logits.dtype == dtype, f"{name}: logits of {dtype} queries must be {dtype}, but got {logits.dtype}."
        exact = answer(support.double(), episodes.labels, query.double(), _WAYS)
        what = f"{dtype} features must get nearly the logits of the same numbers in double precision"
        _same(name, what, logits, exact, tolerance)


def _check_gradients(name: str, answer: Answer) -> None:
    support, labels, query = small_episodes(6, batch=(2,))

    def logits(support: Tensor, query: Tensor) -> Tensor:
        return answer(support, labels, query, _WAYS)

    leaves = support.requires_grad_(), query.requires_grad_()
    if not logits(*leaves).requires_grad:  # A head without gradients, for evaluation only.
        return
    try:
        torch.autograd.gradcheck(logits, leaves, atol=1e-5, fast_mode=True)
    except GradcheckError as error:
        raise AssertionError(f"{name}: the gradient must be that of the logits. {error}") from error


def _check_weights(name: str, head: Head, seed: int, shots: tuple[int, ...]) -> None:
    support, labels, query = small_episodes(seed, shots)
    times = torch.randint(0, 4, labels.shape, generator=torch.Generator().manual_seed(seed))
    times[[int((labels == label).nonzero()[0]) for label in range(_WAYS)]] += 1  # Every class needs a point.
    copies = torch.arange(len(labels)).repeat_interleave(times)
    expected = head.fit_(support[copies], labels[copies], _WAYS)(query)
    # Rows and columns of absent points are zero in the linear kernel.
    gram = EpisodeGram.from_features(support * (times > 0).unsqueeze(-1), query)
    weighted = head.predict(gram, one_hot(labels, _WAYS) * times.unsqueeze(-1))
    _same(name, "a support point of weight w must stand for w equal ones, and of weight 0 for none", weighted, expected)


def _check_state(name: str, head: Head, make: Callable[[], Head]) -> None:
    support, labels, query = small_episodes(7)
    logits = head.fit_(support, labels, _WAYS)(query)
    loaded = make().eval()
    loaded.load_state_dict(head.state_dict())
    _same(name, "a head that loads another's state must give its logits", loaded(query), logits, 0)
    gram = EpisodeGram.from_features(support, query)
    before = {key: value.clone() for key, value in head.state_dict().items()}
    head.predict(gram.normalized(), one_hot(labels.flip(0), _WAYS))
    unchanged = all(torch.equal(value, before[key]) for key, value in head.state_dict().items())
    assert unchanged, f"{name}: predict must not change the head's state."


def _same(name: str, what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Equal to a share of the logits' scale."""
    largest = expected.abs().max().item()
    difference = (actual.to(expected) - expected).abs().max().item()
    if not difference <= tolerance * largest:
        raise AssertionError(f"{name}: {what}, but logits of up to {largest:.3g} differ by up to {difference:.3g}.")
