"""Leave-one-out of any method: labelled points become queries, and the whole method runs without their labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from ...features import EpisodeFeatures

_FOLDS = 10  # At 20 shots twenty give the same temperature.
_NUMBERS = 2**24  # Features and Gram matrices of one part.


class Classifies(Protocol):
    """What is asked of a `Method`."""

    @property
    def is_transductive(self) -> bool:
        """Whether a query's prediction depends on the other queries."""

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """Logits of the queries."""


def moved_logits(method: Classifies, features: EpisodeFeatures) -> Tensor:
    """Logits of each support point by the method that finds it among the queries; see `Method.leave_one_out`.

    In each of at most ten folds one point of each class moves from the support to the queries, or every tenth where a
    class has more than ten. The only point of a class stays, and its logits are 0.

    Args:
        method: Any method; of one that is not transductive the other queries are left out, which do not matter to it.
        features: A batch of episodes.

    Returns:
        ``(..., n, ways)`` in the type of the targets.

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
    for episodes, order, kept in _folds(targets, max(1, _NUMBERS // (total * (total + dim)))):
        each = episodes.unsqueeze(1)
        everything = torch.cat([order, others.expand(len(order), -1)], 1)
        moved = EpisodeFeatures.from_points(
            points[each, everything], targets[each, order[:, :kept]], features.base_mean, features.map_shape
        )
        logits[each, order[:, kept:]] = method.logits(moved)[:, : n - kept].to(logits)
        moved.forget()
    return logits.view_as(features.targets)


def points_moved(targets: Tensor) -> int:
    """How many points move at most at a time; 0 where each is the only one of its class.

    Args:
        targets: One-hot labels ``(..., n, ways)``.

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


def _folds(targets: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Folds of equal size in parts: their episodes ``(p)``, orders of the support ``(p, n)``, how many points stay.

    In an order the points that stay are first.
    """
    moves = _fold_of(targets).unsqueeze(1) == torch.arange(_FOLDS, device=targets.device).unsqueeze(-1)
    counts = moves.sum(-1)
    for count in counts.unique().tolist():
        for part in (counts == count).nonzero().split(size) if count else ():
            episodes, folds = part.unbind(1)
            yield episodes, moves[episodes, folds].long().argsort(dim=-1, stable=True), targets.shape[1] - count
