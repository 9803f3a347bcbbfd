"""Leave-one-out of any method: labelled points become queries, and the whole method runs without their labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ...features import EpisodeFeatures
from ...heads.margins import Margins, WithQueries, margins
from .logits import require_logits

_FOLDS = 10  # At 20 shots twenty give the same temperature.
_NUMBERS = 2**24  # Features and Gram matrices of one part.


class Classifies(Protocol):
    """What is asked of a `Method`."""

    @property
    def is_transductive(self) -> bool:
        """Whether a query's prediction depends on the other queries."""

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """Logits of the queries."""

    def leave_one_out(self, features: EpisodeFeatures, *, of_each_class: bool = True) -> Tensor:
        """Logits of the support."""


def moved_logits(method: Classifies, features: EpisodeFeatures, folds: Tensor | None = None) -> Tensor:
    """Logits ``(..., n, ways)`` of each support point by the method that finds it among the queries.

    In each of at most ten folds one point of each class moves from the support to the queries, or every tenth where a
    class has more than ten. The only point of a class stays, and its logits are 0. Of a method that is not transductive
    the other queries are left out, which do not matter to it.

    Other folds can be given: which points move together, int64 ``(..., n)``, from 0; -1 where a point stays.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> points = torch.tensor([[0.0], [1.0], [4.0], [5.0], [0.2]])
        >>> features = EpisodeFeatures(points[:4], points[4:], torch.tensor([0, 0, 1, 1]))
        >>> moved_logits(parse_method("nn+psm"), features).argmax(-1)
        tensor([0, 0, 1, 1])
    """
    n = features.num_support
    points = features.points.reshape(-1, *features.points.shape[-2:])
    if not method.is_transductive:
        points = points[:, :n]
    targets = features.targets.reshape(-1, n, features.ways)
    total, dim = points.shape[1:]
    others = torch.arange(n, total, device=points.device)
    logits = torch.zeros_like(targets)
    fold_of = _fold_of(targets) if folds is None else folds.reshape(-1, n)
    for episodes, order, kept in _folds(fold_of, max(1, _NUMBERS // (total * (total + dim)))):
        each = episodes.unsqueeze(1)
        everything = torch.cat([order, others.expand(len(order), -1)], 1)
        moved = EpisodeFeatures.from_points(
            points[each, everything], targets[each, order[:, :kept]], features.base_mean, features.map_shape
        )
        logits[each, order[:, kept:]] = require_logits(method, method.logits(moved), moved)[:, : n - kept].to(logits)
        moved.forget()
    return logits.view_as(features.targets)


def with_queries(method: Classifies, features: EpisodeFeatures, of_own_class: bool) -> Iterator[WithQueries]:
    """See `Method.leave_one_out_with_queries`: a query joins the support as a point of each class in turn."""
    targets, ways = features.targets, features.ways
    classes = torch.eye(ways, dtype=targets.dtype, device=targets.device).unsqueeze(-2)
    batch = (*targets.shape[:-2], ways)
    joined = torch.cat([targets.unsqueeze(-3).expand(*batch, *targets.shape[-2:]), classes.expand(*batch, 1, ways)], -2)
    labels = joined.argmax(-1)
    for query in features.query.split(1, -2):
        points = torch.cat([features.support, query], -2).unsqueeze(-3)
        points = points.expand(*batch, *points.shape[-2:])
        episodes = EpisodeFeatures.from_points(points, joined, features.base_mean, features.map_shape)
        found = margins(method.leave_one_out(episodes, of_each_class=False), labels)
        mine, others = (Margins(*(each[..., part] for each in found)) for part in (-1, slice(-1)))
        if of_own_class:
            own = labels[..., :1, :-1]
            beside = Margins(*(each.gather(-2, own) for each in others))
        else:
            beside = Margins(*(each.mT.unsqueeze(-3) for each in others))
        yield WithQueries(beside, Margins(*(each.unsqueeze(-2) for each in mine)))


def points_moved(targets: Tensor) -> int:
    """How many points of one-hot labels ``(..., n, ways)`` move at most at a time; 0 where each is alone in its class.

    Example:
        >>> points_moved(torch.eye(3).repeat_interleave(torch.tensor([1, 2, 17]), dim=0))
        3
    """
    return int((_fold_of(targets) == 0).sum(-1).max())


def _fold_of(targets: Tensor) -> Tensor:
    """The fold of each point, int64 ``(..., n)``; -1 where it is the only one of its class."""
    place = ((targets.cumsum(-2) - 1) * targets).sum(-1).long()
    alone = (targets * targets.sum(-2, keepdim=True)).sum(-1) < 2
    return (place % _FOLDS).masked_fill(alone, -1)


def _folds(fold_of: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Folds of equal size in parts: their episodes ``(p)``, orders of the support ``(p, n)``, how many points stay.

    In an order the points that stay are first.
    """
    numbers = torch.arange(int(fold_of.max()) + 1, device=fold_of.device)
    moves = fold_of.unsqueeze(1) == numbers.unsqueeze(-1)
    counts = moves.sum(-1)
    for count in counts.unique().tolist():
        for part in (counts == count).nonzero().split(size) if count else ():
            episodes, folds = part.unbind(1)
            yield episodes, moves[episodes, folds].long().argsort(dim=-1, stable=True), fold_of.shape[1] - count
