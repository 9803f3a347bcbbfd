"""Margins of points that are left out of a support with a query in it: what prediction sets rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

_NUMBERS = 10**6  # In the largest tensor of a part: more fall out of a CPU's cache.


class Margins(NamedTuple):
    """How much better another class fits a point than its own does."""

    own: Tensor  # Logit of the point's own class; minus infinity where that has no other point.
    other: Tensor  # Greatest logit of the other classes.

    @property
    def difference(self) -> Tensor:
        """``other - own``: the greater, the worse the point fits its class."""
        return self.other - self.own

    @property
    def size(self) -> Tensor:
        """The greatest finite logit without its sign, to which rounding errors are relative."""
        return torch.maximum(*(each.abs().nan_to_num_(posinf=0.0) for each in self))


class WithQueries(NamedTuple):
    """Margins of the points of a support that a query has joined, for some of the queries."""

    # Of the support points: ``(..., m, n)`` with the query in the point's own class, or ``(..., m, n, ways)`` with the
    # query in each class in turn.
    points: Margins
    query: Margins  # Of the query as a point of each class ``(..., m, ways)``.


def margins(logits: Tensor, labels: Tensor) -> Margins:
    """Margins ``(..., n)`` from logits ``(..., n, ways)`` of points with these labels ``(..., n)``.

    Example:
        >>> margins(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0])).difference
        tensor([-1.])
    """
    places = labels.unsqueeze(-1).expand(*logits.shape[:-1], 1)
    return Margins(logits.gather(-1, places).squeeze(-1), logits.clone().scatter_(-1, places, -torch.inf).amax(-1))


def margins_of_each_class(logits: Tensor) -> Margins:
    """Margins of points whose logits ``(..., ways)`` are the same whatever their class is.

    Example:
        >>> margins_of_each_class(torch.tensor([3.0, 1.0, 2.0])).difference
        tensor([-1.,  2.,  1.])
    """
    return Margins(logits, _greatest_of_others(logits))


def margins_beside_queries(absent: Tensor, present: Tensor, labels: Tensor) -> Margins:
    """Margins ``(..., m, n, ways)``, for each class that a query may be of, whose logit alone it changes.

    Args:
        absent: Logit of each class for each point, the query being of another class ``(..., m or 1, n, ways)``.
        present: The same, the query being of that class ``(..., m, n, ways)``.
        labels: Classes of the points ``(..., n)``.
    """
    places = labels[..., None, :, None].expand(*present.shape[:-1], 1)
    absent = absent.expand_as(present).clone()
    own = absent.gather(-1, places).expand_as(present).clone().scatter_(-1, places, present.gather(-1, places))
    others = _greatest_of_others(absent.scatter_(-1, places, -torch.inf))
    return Margins(own, torch.maximum(others, present.clone().scatter_(-1, places, -torch.inf)))


def query_parts(queries: int, numbers: int) -> Iterator[slice]:
    """Queries in parts, each of which has that many numbers of its own.

    Example:
        >>> list(query_parts(3, numbers=500_000))
        [slice(0, 2, None), slice(2, 4, None)]
    """
    size = max(1, _NUMBERS // numbers)
    return (slice(begin, begin + size) for begin in range(0, queries, size))


def _greatest_of_others(logits: Tensor) -> Tensor:
    """For each class the greatest logit of the others ``(..., ways)``."""
    first, place = logits.max(-1, keepdim=True)
    second = logits.clone().scatter_(-1, place, -torch.inf).amax(-1, keepdim=True)
    return first.expand_as(logits).clone().scatter_(-1, place, second)
