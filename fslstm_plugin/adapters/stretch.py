"""Features stretched along the directions in which the base classes differ."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..gram import EpisodeGram, small_matrix_dtype
from ..heads.linalg import eigh
from .base import FeatureAdapter
from .center import Center


class Stretch(FeatureAdapter):
    r"""Centre features by the mean of the base classes' means, and stretch them along the differences of those means.

    With B ``(classes, d)``, the base classes' means less their mean, features are multiplied by
    ``(1 + l / (floor l_max))^exponent`` along the eigenvector of ``B'B`` with the eigenvalue l, of which l_max is the
    greatest, and stay as they are at right angles to all of these.

    Use this before `normalize` where a query is classified by itself and the support is small, as in
    ``nn(stretch,normalize)``: new classes differ along these directions too. Not before methods that use the queries
    together, which show such directions themselves.

    Args:
        exponent: Above 0; default 0.15, with which nothing is stretched to more than twice its length.
        floor: Share of the greatest eigenvalue that counts as none, above 0; default 0.01.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> means = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
        >>> features = EpisodeFeatures(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), base_mean=means)
        >>> Stretch(exponent=0.5, floor=1 / 3).adapt(features).query
        tensor([[2., 0.],
                [0., 1.]])
    """

    needs_base_mean = True
    needs_base_classes = True
    search_space: ClassVar = {"exponent": (0.05, 0.1, 0.15, 0.2)}

    def __init__(self, exponent: float = 0.15, floor: float = 0.01) -> None:
        super().__init__()
        self.exponent = require("exponent", exponent, above=0)
        self.floor = require("floor", floor, above=0)

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`.

        Raises:
            UsageError: If the base classes' means are needed and unknown.
        """
        means = features.base_mean
        if means is None or means.ndim == 1:
            raise UsageError(
                "stretch needs the mean feature of each base class, which these features come without: pass a "
                "base_mean of shape (classes, d)."
            )
        centred = features.adapted(Center())
        exact = means.to(small_matrix_dtype(means.device))
        directions = exact - exact.mean(0)
        squares, vectors = eigh(directions @ directions.mT)
        along = vectors.mT @ directions  # the eigenvectors of B'B, each as long as the root of its eigenvalue
        once, twice = (_growth(squares, self.floor, exponent) for exponent in (self.exponent, 2 * self.exponent))

        def stretched(points: Tensor) -> Tensor:
            return points + (points @ along.mT.to(points) * once.to(points)) @ along.to(points)

        def gram(of_centred: EpisodeGram) -> EpisodeGram:
            # Stretched by g along v, inner products grow by g^2 - 1 times those of the parts along v.
            parts = centred.points @ (along.mT * twice.sqrt()).to(centred.points)
            return of_centred.plus(EpisodeGram.from_points(parts, features.num_support, of_centred.query is not None))

        return centred.derived(stretched, gram)


def _growth(squares: Tensor, floor: float, exponent: float) -> Tensor:
    """``((1 + l / (floor l_max))^exponent - 1) / l`` of eigenvalues l, ascending; nothing where all are 0."""
    least = floor * squares[-1]
    parts = (squares / least).clamp(min=0)
    each = torch.where(parts > 0, torch.expm1(exponent * parts.log1p()) / parts, exponent)
    return torch.where(least > 0, each / least, 0)
