"""PT-MAP: optimal transport of queries to moving prototypes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from ..kernels import inverse_lengths
from .shared.prototypes import class_means, squared_distances
from .shared.sinkhorn import TransportMethod, log_plan

_NOTHING = 1e-12  # Squared length of a centred unit vector below which only rounding is left.


class PTMAP(TransportMethod):
    r"""Assign the same number of queries to each class by optimal transport, move the prototypes there, again.

    On square roots of unit length, support and queries each less their own mean and of unit length again: the plan P is
    ``exp(-scale ||q_j - p_c||^2)`` with rows and columns scaled to sums 1 and m / ways (`sinkhorn`); prototypes
    take a step towards the means of the support and of the queries weighted by P. The logits are ln P; their
    softmax is P with each query's sum, which the tolerance leaves near 1, brought to 1.

    Its prior is exactly m / ways queries of each class, whatever the truth; absent classes are filled by force. Each
    episode stops scaling by its own sums; in the published code, when the last of its batch does. A single query is not
    centred, where the published code divides 0 by 0.

    Use this when the queries are known to be balanced; not otherwise, where `SimpleShot` can be better, nor for a
    single query, which gets the same share of each class.

    Source: Hu et al., "Leveraging the feature distribution in transfer-based few-shot learning", ICANN 2021.

    Args:
        scale: Inverse squared length of the plan, above 0; default 10.
        iterations: Moves of the prototypes; default 20.
        step: Share of the way to the means that a prototype moves, in (0, 1]; default 0.2.
        tolerance: See `sinkhorn`; default 1e-6.
        exponent: See `Power`; default 0.5.
        negative: ``"refuse"`` (default) or ``"signed"``, see `Power`; features after a LeakyReLU need the latter.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 4.0], [4.0, 4.0]]), torch.tensor([0, 1]))
        >>> PTMAP().logits(features).argmax(-1)
        tensor([1, 0])
    """

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        gram, num_support = centered_apart(self.prepare(features).gram), features.num_support
        labelled = features.targets.mT
        mix = class_means(features.targets, gram.shape[-1] - num_support)
        plan = self.plan(squared_distances(gram, mix)[..., num_support:])
        for _ in range(self.iterations):
            members = torch.cat([labelled, plan], -1)
            mix = torch.lerp(mix, members / members.sum(-1, keepdim=True), self.step)
            plan = self.plan(squared_distances(gram, mix)[..., num_support:])
        return log_plan(plan)


def centered_apart(gram: EpisodeGram) -> Tensor:
    """Inner products ``(..., n + m, n + m)`` of unit vectors less the mean of their set, brought to unit length again.

    A single query keeps its place.
    """
    support, query, cross = _centered(_centered(gram.support).mT), gram.query_block, _centered(gram.cross)
    if query.shape[-1] > 1:
        query, cross = _centered(_centered(query).mT), _centered(cross.mT).mT
    products = replace(gram, support=support, cross=cross, query=query).whole
    norms = torch.linalg.diagonal(products)
    factors = inverse_lengths(norms, _NOTHING)
    return products * factors.unsqueeze(-1) * factors.unsqueeze(-2)


def _centered(products: Tensor) -> Tensor:
    """Products with the points of the last dimension less their mean."""
    return products - products.mean(-1, keepdim=True)
