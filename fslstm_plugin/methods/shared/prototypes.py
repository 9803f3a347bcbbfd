"""Prototypes as combinations of an episode's points, and their distances from the Gram matrix alone.

Here and in the methods matrices have a row per class and a column per point, ``(..., ways, points)``, the support's
columns first: sums over the few classes are then sums of long rows, which is what a processor does fast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...adapters import Center, FeatureAdapter, Normalize


def cl2n(center: str | None) -> list[FeatureAdapter]:
    """Features less a mean, see `Center`, or None, then of unit length (SimpleShot's CL2N)."""
    return [Normalize()] if center is None else [Center(center), Normalize()]


def class_means(targets: Tensor, num_query: int = 0) -> Tensor:
    """The combinations ``(..., ways, n + num_query)`` that are the class means of the support, queries having no part.

    The targets are one-hot labels ``(..., n, ways)``.

    Example:
        >>> class_means(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), num_query=1)
        tensor([[1.0000, 0.0000, 0.0000, 0.0000],
                [0.0000, 0.5000, 0.5000, 0.0000]])
    """
    return F.pad((targets / targets.sum(-2, keepdim=True)).mT, (0, num_query))


def squared_distances(gram: Tensor, mix: Tensor) -> Tensor:
    """Squared distances ``(..., ways, N)`` of all points to combinations; what rounding takes below 0 is 0.

    The points have the inner products ``(..., N, N)``; row c of the weights ``(..., ways, N)`` makes the prototype
    ``sum_i mix_ci x_i``.

    Example:
        >>> squared_distances(torch.eye(2), torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
        tensor([[0.5000, 0.5000],
                [2.0000, 0.0000]])
    """
    inner = mix @ gram
    return complete_squares(inner, (inner * mix).sum(-1), torch.linalg.diagonal(gram))


def complete_squares(inner: Tensor, prototype_norms: Tensor, point_norms: Tensor) -> Tensor:
    """Squared distances ``(..., ways, points)`` from inner products, and squared norms of either side."""
    return (point_norms.unsqueeze(-2) - 2 * inner + prototype_norms.unsqueeze(-1)).clamp(min=0)


def root(squared: Tensor) -> Tensor:
    """Distances of their squares; the derivative at 0 is 0 and not infinite."""
    return squared.clamp(min=1e-24).sqrt()  # below which points are one
