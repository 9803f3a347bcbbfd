"""PADDLE: few of many classes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..adapters import FeatureAdapter
from ..checks import require
from ..features import EpisodeFeatures
from .base import Gram, Method
from .shared.prototypes import class_means, squared_distances


class MinMax(FeatureAdapter):
    """Bring each feature of the queries to [0, 1], and the support's by the same scale; a constant one is only moved.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[1.0, 4.0], [3.0, 4.0]]), torch.tensor([0, 1]))
        >>> MinMax().adapt(features).query
        tensor([[0., 0.],
                [1., 0.]])
    """

    is_transductive = True

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`."""

        def scaled(points: Tensor) -> Tensor:
            if not features.num_query:
                return points
            queries = points[..., features.num_support :, :]
            low, high = queries.amin(-2, True), queries.amax(-2, True)  # torch 2.11 has no derivative of aminmax
            length = high - low
            return (points - low) / torch.where(length > 0, length, 1)

        return features.derived(scaled)


class PADDLE(Method):
    r"""Soft k-means of unit variance with a price for each class in use; the support's labels stay.

    Features are scaled to the range of the queries. Iterate ``u_j = softmax_c(-||q_j - w_c||^2 / 2 + weight v_c)``,
    ``v_c = ln(mean_j u_jc + 1e-6) + 1``, and w_c the mean of the class's support and of the queries with weights u. The
    logits are ln u, so their softmax is u.

    Its prior favours few classes: it empties those that receive little.

    Use this where the queries come from few of many classes, with 5 shots or more and many features. Not with few
    features, nor behind ``bpa``: distances are then small against the logarithms of the shares, and all queries end in
    one or two classes. That is the method, not an error; a weight of 0.5 avoids much of it. At 1 shot others gain more
    over NN.

    Source: Martin et al., "Towards practical few-shot query sets: transductive minimum description length inference"
    (PADDLE), NeurIPS 2022.

    Args:
        weight: Of the classes' shares, 0 or more, in units of the number of queries (lambda / m). Default 1, the
            paper's rule; the published code fixes lambda at 75, the number of queries of its episodes.
        iterations: At least 1, default 100.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> support = torch.eye(3).repeat_interleave(20, -1)  # 60 features
        >>> features = EpisodeFeatures(support, support[[1, 0, 0]], torch.tensor([0, 1, 2]))
        >>> PADDLE().logits(features).argmax(-1)
        tensor([1, 0, 0])
    """

    is_transductive = True
    uses_gram: Gram = "all"
    search_space: ClassVar = {"weight": (0.25, 0.5, 1.0)}

    def __init__(self, weight: float = 1.0, iterations: int = 100) -> None:
        super().__init__([MinMax()])
        self.weight = require("weight", weight, least=0)
        self.iterations = require("iterations", iterations, least=1, whole=True)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        gram, num_support = self.prepare(features).gram.whole, features.num_support
        mix = class_means(features.targets, gram.shape[-1] - num_support)
        scores = squared_distances(gram, mix)[..., num_support:] / -2
        for _ in range(self.iterations - 1):
            shares = scores.softmax(-2)
            price = (shares.mean(-1, keepdim=True) + 1e-6).log() + 1  # finite for an absent class
            members = torch.cat([features.targets.mT, shares], -1)
            mix = members / members.sum(-1, keepdim=True)
            scores = self.weight * price - squared_distances(gram, mix)[..., num_support:] / 2
        return scores.log_softmax(-2).mT
