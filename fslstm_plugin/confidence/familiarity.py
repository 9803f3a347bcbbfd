"""How near a query is to any class at all, to notice the queries that are of none."""

from __future__ import annotations

from typing import NamedTuple

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
    cross, norms = gram.cross_kernel(_MEANS.kernel, targets), gram.query_self_kernel(_MEANS.kernel)
    return Ranking.among(gram, targets).ranks(cross, norms)


class Ranking(NamedTuple):
    """What ranks need of the labelled points alone, in cosines; its operations are those that ONNX has, too."""

    targets: Tensor  # One-hot labels ``(..., n, ways)``.
    norms: Tensor  # Of each point with itself ``(..., 1, n)``.
    inner: Tensor  # Of each point with the sum of each class ``(..., n, ways)``.
    squares: Tensor  # Of each sum with itself ``(..., 1, ways)``.
    elsewhere: Tensor  # Of each point, left out, the greatest corrected logit of another class ``(..., n, ways)``.

    @classmethod
    def among(cls, gram: EpisodeGram, targets: Tensor) -> Ranking:
        """From the support of a Gram matrix; the targets are in its precision."""
        kernel = gram.support_kernel(_MEANS.kernel, targets)
        inner = kernel @ targets
        without = gram.dim * _MEANS.leave_one_out(gram, targets)
        best = _corrected(without, targets.sum(-2, keepdim=True) - targets).topk(2, -1)
        places = torch.arange(targets.shape[-1], device=targets.device)
        elsewhere = torch.where(best.indices[..., :1] == places, best.values[..., 1:], best.values[..., :1])
        norms = kernel.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
        return cls(targets, norms, inner, (targets * inner).sum(-2, keepdim=True), elsewhere)

    def ranks(self, cross: Tensor, norms: Tensor, equal: float = _EQUAL) -> Tensor:
        """Ranks ``(..., m)`` of queries, from their products with the points ``(..., m, n)`` and with themselves.

        Logits that differ by less are equal.
        """
        counts, norms = self.targets.sum(-2, keepdim=True), norms.unsqueeze(-1)
        crossing = cross @ self.targets
        own, nearest = _corrected(2 * crossing / counts - self.squares / counts.square() - norms, counts).max(-1)
        # Each point's logit of the query's class, were the query one of its points.
        member, with_sum = _of(self.targets, nearest), _of(self.inner, nearest)
        grown = _of(counts, nearest) + 1 - member
        sums = _of(self.squares, nearest) + norms + 2 * crossing.gather(-1, nearest.unsqueeze(-1))
        sums = sums + member * (self.norms - 2 * (with_sum + cross))
        joined = 2 * (with_sum + cross - member * self.norms) / grown - sums / grown.square() - self.norms
        usual = torch.maximum(_of(self.elsewhere, nearest), _corrected(joined, grown))
        counted = (member > 0) | ((self.targets * counts).sum(-1) > 1).unsqueeze(-2)
        lower = (usual <= own.unsqueeze(-1) + equal) & counted
        return (lower.double().sum(-1) + 1) / (counted.double().sum(-1) + 1)


def _of(values: Tensor, label: Tensor) -> Tensor:
    """Of values for each point and class ``(..., n, ways)`` those of each query's class ``(..., m, n)``."""
    return values.transpose(-2, -1).gather(-2, label.unsqueeze(-1).expand(*label.shape, values.shape[-2]))


def _corrected(logits: Tensor, counts: Tensor) -> Tensor:
    """Logits corrected for the number of points in the means; minus infinity of a class without any."""
    return torch.where(counts > 0, logits * counts / (counts + 1), -torch.inf)
