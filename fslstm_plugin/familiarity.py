"""How near a query is to any class at all, to notice the queries that are of none."""

from __future__ import annotations

import torch
from torch import Tensor

from .features import EpisodeFeatures
from .heads import PrototypeClassifier

_MEANS = PrototypeClassifier(kernel="cosine")


def familiarity(features: EpisodeFeatures) -> Tensor:
    """Minus the squared distance to the nearest class mean, among features of unit length, per feature.

    The mean of k points is off by itself: a point of the class is ``1 + 1 / k`` times as far from it as from the mean
    of all. The distances are divided by that, so that classes of few points and of many can be compared.

    Of the scores that ``fslstm eval --open-ways`` compares, the one that tells unknown classes apart best: the length
    of a feature says more of the picture than of its class, and probabilities compare classes with each other only.
    What is usual is what the labelled points have, see `familiarity_rank`.

    Args:
        features: A batch of episodes; as the adapters left them, where there are some.

    Returns:
        ``(..., m)``, at most 0; the smaller, the less it is like any class.

    Example:
        >>> support, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> familiarity(EpisodeFeatures(support, torch.tensor([[1.0, 1.0], [-1.0, 0.0]]), labels))
        tensor([-0.1464, -0.5000], dtype=torch.float64)
    """
    logits = _MEANS.predict(features.support_gram, features.targets)
    return _nearest(logits, features.targets.sum(-2, keepdim=True))


def usual_familiarity(features: EpisodeFeatures) -> Tensor:
    """The familiarity of each labelled point with the means of the others.

    Args:
        features: See `familiarity`.

    Returns:
        ``(..., n)``. That of the only point of a class says nothing of what is usual.

    Example:
        >>> support = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.6, 0.8]])
        >>> usual_familiarity(EpisodeFeatures(support, support[:0], torch.tensor([0, 0, 1, 1])))
        tensor([-0.2000, -0.0333, -0.1000, -0.0667], dtype=torch.float64)
    """
    targets = features.targets
    logits = _MEANS.leave_one_out(features.support_gram, targets)
    return _nearest(logits, targets.sum(-2, keepdim=True) - targets)


def familiarity_rank(features: EpisodeFeatures) -> Tensor:
    """Where each query's familiarity is among that of the labelled points.

    Were a query drawn as the labelled points are, its rank would be any with nearly equal chances, so that a share e
    of such queries has at most the rank e. Points that are the only one of their class are not counted.

    Args:
        features: See `familiarity`.

    Returns:
        ``(..., m)``, float64: 1 more than the number of labelled points that are no more familiar, divided by 1 more
        than their number. 1 where each class has one point only, and nothing can be said.

    Example:
        >>> support, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0, 0, 1, 1])
        >>> familiarity_rank(EpisodeFeatures(support, torch.tensor([[0.5, 0.5], [-1.0, 0.0]]), labels))
        tensor([0.8000, 0.2000], dtype=torch.float64)
    """
    targets = features.targets
    counted = (targets * targets.sum(-2, keepdim=True)).sum(-1) > 1
    lower = usual_familiarity(features).unsqueeze(-2) <= familiarity(features).unsqueeze(-1)
    return ((lower & counted.unsqueeze(-2)).sum(-1) + 1) / (counted.sum(-1, keepdim=True) + 1).double()


def _nearest(logits: Tensor, counts: Tensor) -> Tensor:
    """The greatest logit, each corrected for the number of points in the mean."""
    return torch.where(counts > 0, logits * counts / (counts + 1), -torch.inf).amax(-1)
