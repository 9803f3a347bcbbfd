"""What the labelled points reveal about themselves: confused classes, odd labels, duplicate points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

_ODDS = 10.0
_FALSE = 0.5  # Of the odd labels.
_ROWS = 1024  # Of a similarity matrix at a time.


class Confused(msgspec.Struct, frozen=True):
    """Two classes that are confused with each other, and how many of their pictures are."""

    first: str
    second: str
    pictures: int


class Odd(msgspec.Struct, frozen=True):
    """A picture that may be mislabelled: another class is so many times as likely as its own."""

    picture: str
    label: str
    looks_like: str
    odds: float


def confused_classes(logits: Tensor, labels: Tensor, classes: Sequence[str]) -> list[Confused]:
    """Pairs of confused classes, the most often confused first.

    The logits ``(n, ways)`` are `FittedMethod.left_out`, the labels int64 ``(n,)``, the classes their names.

    Example:
        >>> logits = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
        >>> confused_classes(logits, torch.tensor([0, 1, 2, 2]), ["owl", "tit", "wren"])
        [Confused(first='owl', second='tit', pictures=2), Confused(first='owl', second='wren', pictures=1)]
    """
    ways = logits.shape[-1]
    counts = torch.bincount(labels * ways + logits.argmax(-1), minlength=ways**2).view(ways, ways)
    both = (counts + counts.mT).triu(diagonal=1)
    pairs = both.nonzero().tolist()
    found = [Confused(classes[first], classes[second], int(both[first, second])) for first, second in pairs]
    return sorted(found, key=lambda pair: -pair.pictures)


def odd_labels(probabilities: Tensor, labels: Tensor, classes: Sequence[str], names: Sequence[str]) -> list[Odd]:
    """Points that look mislabelled, the least likely label first: at most one of them, or half, should be right.

    Another class is at least ten times as likely as the point's own; and there are more labels as unlikely than right
    ones would be. Were the probabilities right and no label wrong, ``E(p) = sum of all probabilities of at most p``
    labels less likely than p would be expected: many of a classifier that is often wrong, hardly any of a sure one. Of
    the bounds p for which E is at most 1, or half the number of labels below, the greatest is taken.

    Source: Benjamini and Hochberg, "Controlling the false discovery rate", 1995; the rule is theirs, with E for the
    number of false discoveries.

    Args:
        probabilities: Of each point by a method that was fitted without it ``(n, ways)``.
        labels: int64 ``(n,)``. A point that is the only one of its class is never odd.
        classes: Their names.
        names: Of the points.

    Example:
        >>> likely = torch.tensor([[0.96, 0.04], [0.99, 0.01], [0.999, 0.001], [0.05, 0.95], [0.01, 0.99]])
        >>> odd_labels(likely, torch.tensor([0, 0, 1, 1, 1]), ["owl", "tit"], ["a", "b", "c", "d", "e"])
        [Odd(picture='c', label='tit', looks_like='owl', odds=998.9...)]
    """
    judged = (labels.bincount()[labels] > 1).nonzero().flatten()
    own = probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1).double()
    others = probabilities.scatter(-1, labels.unsqueeze(-1), 0.0).max(-1)
    places = judged[own[judged].argsort(stable=True)]
    below = probabilities[judged].flatten().double().sort().values
    expected = F.pad(below.cumsum(0), (1, 0))[torch.searchsorted(below, own[places], right=True)]
    number = torch.arange(1, len(places) + 1, device=labels.device)
    most = max((number * (expected <= (_FALSE * number).clamp(min=1))).tolist(), default=0)
    ratio = others.values / own.clamp(min=torch.finfo(own.dtype).tiny)
    odd = [place for place in places[:most].tolist() if ratio[place] >= _ODDS]
    return [
        Odd(names[place], classes[int(labels[place])], classes[int(others.indices[place])], float(ratio[place]))
        for place in odd
    ]


def near_duplicates(features: Tensor, distance: float) -> Iterator[tuple[int, list[int]]]:
    """Points with later ones whose features ``(n, d)`` are nearer than this distance over the length of their own.

    Of n equal points there are n (n - 1) / 2 pairs, so that the later ones of a single point are held at a time.

    Example:
        >>> list(near_duplicates(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.001]]), 0.01))
        [(0, [2])]
    """
    squares = features.square().sum(-1)
    for start, rows in enumerate(features.split(_ROWS)):
        own = squares[start * _ROWS :][: len(rows), None]
        near = torch.addmm(squares, rows, features.mT, alpha=-2) < (distance**2 - 1) * own
        for place, row in enumerate(near, start * _ROWS):
            if later := (row[place + 1 :].nonzero().flatten() + place + 1).tolist():
                yield place, later
