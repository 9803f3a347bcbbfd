"""Balanced pairwise affinities (BPA): each point described by its affinities with all points of the episode."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require, require_bool
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..kernels import of_unit_length
from .base import FeatureAdapter
from .power import Power


class BalancedAffinities(FeatureAdapter):
    r"""Replace every point of an episode by its row of the balanced matrix of affinities between all its points.

    ``P = diag(u) exp(-(1 - cos(x_i, x_j)) / reg) diag(v)`` with a zero diagonal, rows and columns scaled in turn
    towards sums of 1 (Sinkhorn); divided by its largest entry; the diagonal set to 1. Two points of one class are alike
    in what they are near to, even where they are not near to each other.

    Everything follows from the Gram matrix; the new features are as many as there are points. No label enters and all
    points are treated alike, at whatever balance of the classes.

    A ``share`` below 1 keeps the features, or signed powers of them, beside the affinities, both at unit length: the
    new Gram matrix is ``(1 - share)`` times the cosines of the features plus ``share`` times those of the affinities.

    Use this before any head, and any method that needs no mean of the base classes, where the queries come together:
    ``lssvm(ridge=1,bpa,normalize)``, ``pt-map(exponent=1,bpa=0.1)``. That mean and feature maps mean nothing behind it.
    Not before PADDLE, which falls to chance; before SVM with ``C=1``.

    Source: Shalam and Korman, "The balanced-pairwise-affinities feature transform", ICML 2024. Their code divides a
    batch by the sums of all its episodes; here each episode stands alone.

    Args:
        reg: Temperature of the affinities, above 0; default 0.2. Smaller is sharper.
        iterations: Scalings of rows and columns, at least 1; default 10.
        scale: Whether to divide by the largest entry, default True; otherwise the diagonal outweighs the rest.
        share: Weight of the affinities beside the features, in (0, 1]; default 1, as published: the affinities alone,
            not at unit length.
        exponent: Of the features that a share below 1 keeps, see `Power`; default 1, as they are.

    Raises:
        UsageError: If an argument is outside its range, or an exponent is given without a share below 1.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 2.0]])
        >>> features = EpisodeFeatures(points[:2], points[2:], torch.tensor([0, 1]))
        >>> BalancedAffinities().adapt(features).query.round(decimals=2)
        tensor([[1.0000, 0.0100, 1.0000, 0.0100],
                [0.0100, 1.0000, 0.0100, 1.0000]], dtype=torch.float64)
    """

    is_transductive = True
    needs_gram = True
    search_space: ClassVar = {"reg": (0.05, 0.1, 0.2, 0.3, 0.5)}

    def __init__(
        self, reg: float = 0.2, iterations: int = 10, scale: bool = True, share: float = 1.0, exponent: float = 1.0
    ) -> None:
        super().__init__()
        self.reg = require("reg", reg, above=0)
        self.iterations = require("iterations", iterations, least=1, whole=True)
        self.scale = require_bool("scale", scale)
        self.share = require("share", share, above=0, most=1)
        self.exponent = require("exponent", exponent, above=0)
        if share == 1 and exponent != 1:
            raise UsageError(
                "exponent is of the features that a share below 1 keeps: give a share, as in "
                "bpa(share=0.5,exponent=0.5), or leave it out."
            )

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`; the new features are in the Gram matrix's precision."""
        cosines = features.gram.normalized().whole
        itself = torch.eye(cosines.shape[-1], dtype=torch.bool, device=cosines.device)
        costs = (1 - cosines).masked_fill(itself, 1e5)  # no affinity with itself
        plan = _balanced(-costs / self.reg, self.iterations)
        if self.scale:
            plan = plan / plan.amax((-2, -1), keepdim=True)
        affinities = EpisodeFeatures.from_points(plan.masked_fill(itself, 1), features.targets)
        if self.share == 1:
            return affinities
        return _beside(Power(self.exponent, "signed").adapt(features), affinities, self.share)


def _beside(features: EpisodeFeatures, others: EpisodeFeatures, share: float) -> EpisodeFeatures:
    """Features of the same episodes side by side at unit length, the others with this share of the inner products."""
    gram = features.gram.normalized().beside(others.gram.normalized(), share)

    def points() -> Tensor:
        own = (1 - share) ** 0.5 * of_unit_length(features.points)
        features.release()  # no adapter of the episodes knows them
        return torch.cat([own, share**0.5 * of_unit_length(others.points)], -1)

    features.release()
    return EpisodeFeatures.looked_up(points, features.num_query, features.targets, gram=lambda _: gram)


def _balanced(logits: Tensor, iterations: int) -> Tensor:
    """``exp(logits)`` ``(..., n, n)``, rows and then columns scaled to sums of 1, again and again.

    The first scaling is of logarithms. No sum of a row is below ``1 / n^2`` from then on, so that the others can take
    plain products, which are much faster.
    """
    plan = logits.log_softmax(-1).log_softmax(-2).exp()
    right = torch.ones_like(plan[..., :1, :])
    left = right.mT
    for _ in range(iterations - 1):
        left = (plan @ right.mT).reciprocal()
        right = (left.mT @ plan).reciprocal()
    return left * plan * right
