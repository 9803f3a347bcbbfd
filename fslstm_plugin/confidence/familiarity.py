"""How near a query is to any class at all, to notice the queries that are of none."""

from __future__ import annotations

import torch
from torch import Tensor

from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from ..heads import PrototypeClassifier

_MEANS = PrototypeClassifier(kernel="cosine")
_EQUAL = 1e-9  # Numbers of the same worth come from different formulas, and differ by rounding.


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
    return _corrected(logits, features.targets.sum(-2, keepdim=True)).amax(-1)


def familiarity_rank(features: EpisodeFeatures) -> Tensor:
    """Where each query's familiarity is among that of the labelled points, were the query one of its nearest class.

    That class gets the query as one more point, and every point is compared with the means of the others, so that
    labelled points and query are treated alike. For a query that is drawn as the labelled points of its class are, each
    rank has nearly the same chance; `refused_share` says how nearly. The only point of a class is not counted, since
    nothing is left of its class without it, unless it is the query's nearest.

    Source: full conformal prediction, Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005.

    Args:
        features: See `familiarity`.

    Returns:
        ``(..., m)``, float64: 1 more than the number of labelled points that are no more familiar, divided by 1 more
        than their number.

    Example:
        >>> support, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0, 0, 1, 1])
        >>> familiarity_rank(EpisodeFeatures(support, torch.tensor([[0.5, 0.5], [-1.0, 0.0]]), labels))
        tensor([0.8000, 0.2000], dtype=torch.float64)
    """
    gram, targets = features.support_gram, features.targets
    counts = targets.sum(-2, keepdim=True)
    own, nearest = _corrected(_MEANS.predict(gram, targets), counts).max(-1)
    best = _corrected(_MEANS.leave_one_out(gram, targets), counts - targets).topk(2, -1)
    places = torch.arange(targets.shape[-1], device=targets.device)
    elsewhere = torch.where(best.indices[..., :1] == places, best.values[..., 1:], best.values[..., :1])
    usual = torch.maximum(_of(elsewhere, nearest), _with_query(gram, targets, nearest))
    counted = (_of(targets, nearest) > 0) | (((targets * counts).sum(-1) > 1).unsqueeze(-2))
    lower = (usual <= own.unsqueeze(-1) + _EQUAL / gram.dim) & counted
    return (lower.sum(-1) + 1) / (counted.sum(-1) + 1).double()


def _with_query(gram: EpisodeGram, targets: Tensor, label: Tensor) -> Tensor:
    """Each point's corrected logit of each query's class, were the query one of its points ``(..., m, n)``."""
    kernel, cross = gram.support_kernel(_MEANS.kernel, targets), gram.cross_kernel(_MEANS.kernel, targets)
    norms = kernel.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    inner = kernel @ targets
    squares = (targets * inner).sum(-2, keepdim=True)
    member, with_sum = _of(targets, label), _of(inner, label)
    crossing = (cross @ targets).gather(-1, label.unsqueeze(-1))
    counts = _of(targets.sum(-2, keepdim=True), label) + 1 - member
    query = gram.query_self_kernel(_MEANS.kernel).unsqueeze(-1)
    sums = _of(squares, label) + query + 2 * crossing + member * (norms - 2 * (with_sum + cross))
    distances = norms - 2 * (with_sum + cross - member * norms) / counts + sums / counts.square()
    return _corrected(-distances / gram.dim, counts)


def _of(values: Tensor, label: Tensor) -> Tensor:
    """Of values for each point and class ``(..., n, ways)`` those of each query's class ``(..., m, n)``."""
    return values.mT.gather(-2, label.unsqueeze(-1).expand(*label.shape, values.shape[-2]))


def _corrected(logits: Tensor, counts: Tensor) -> Tensor:
    """Logits corrected for the number of points in the means; minus infinity of a class without any."""
    return torch.where(counts > 0, logits * counts / (counts + 1), -torch.inf)
