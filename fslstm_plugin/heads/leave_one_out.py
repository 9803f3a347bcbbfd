"""The ridge with the least leave-one-out error, by one eigendecomposition for all; which points leave together."""

from __future__ import annotations

import torch
from torch import Tensor

from .linalg import eigh

# Multiples of the kernel's mean diagonal, so that the candidates follow the scale of the features.
_FACTORS = tuple(10.0 ** (step / 2) for step in range(-8, 7))
CANDIDATE_RIDGES = len(_FACTORS)


def leave_one_out_errors(matrix: Tensor, right: Tensor, ridges: Tensor, weights: Tensor) -> Tensor:
    """Squared error of each point's prediction by the system without it, summed over points and right-hand sides.

    With ``G = (matrix + ridge I)^-1`` and ``B = G right``, the residual of point i when row and column i are left out
    is ``B_i / G_ii``; ``matrix = U diag(e) U^T`` gives B and the diagonal of G for every ridge. Of w equal points,
    whose row and column are weighted by the square root of w, one is left out: ``sqrt(w) B_i / ((w - 1) / ridge +
    G_ii)``, w times.

    Source: Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector
    machines", 2004; for the LSSVM with a regularised bias, ``matrix`` is ``K + c 11^T``.

    Args:
        matrix: Symmetric positive semidefinite ``(..., n, n)``.
        right: Targets ``(..., n, L)``.
        ridges: Positive ``(..., r)``, of which each has an error.
        weights: How many equal points each stands for ``(..., n)``; 0 for an absent one, whose row, column and
            right-hand side are zero.

    Example:
        >>> leave_one_out_errors(torch.eye(2), torch.ones(2, 1), torch.tensor([1.0, 2.0]), torch.ones(2))
        tensor([2., 2.])
    """
    values, vectors = eigh(matrix)
    inverse = 1 / (values.clamp(min=0).unsqueeze(-2) + ridges.unsqueeze(-1))
    solution = vectors.unsqueeze(-3) @ (inverse.unsqueeze(-1) * (vectors.mT @ right).unsqueeze(-3))
    weights = weights.unsqueeze(-2)
    diagonal = inverse @ vectors.square().mT + (weights - 1).clamp(min=0) / ridges.unsqueeze(-1)
    return ((solution / diagonal.unsqueeze(-1)).square().sum(-1) * weights.square()).sum(-1)


def choose_ridge(kernel: Tensor, matrix: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """The ridge ``(...)`` with the least leave-one-out error, of 15 from 1e-4 to 1e3 times the kernel's mean diagonal.

    Features multiplied by s have candidates multiplied by ``s^2``. What does not follow the scale is the bias constant
    in the matrix: a free bias beside small features, and none beside large ones. With ``bias_weight`` multiplied by
    ``1 / s^2``, the choice and every prediction are the same at any scale.

    The kernel matrix ``(..., n, n)``, whose diagonal is the scale, is weighted as the matrix is, for which as for the
    rest see `leave_one_out_errors`. The gradient is that of the mean diagonal, the multiple being held fixed.
    """
    ridges = candidate_ridges(kernel, matrix, weights)
    with torch.no_grad():
        best = leave_one_out_errors(matrix, right, ridges, weights).argmin(-1, keepdim=True)
    return ridges.gather(-1, best.expand(*ridges.shape[:-1], 1)).squeeze(-1)


def candidate_ridges(kernel: Tensor, matrix: Tensor, weights: Tensor) -> Tensor:
    """What `choose_ridge` chooses from ``(..., r)``, in ascending order."""
    own, whole = (torch.linalg.diagonal(each).sum(-1, keepdim=True) for each in (kernel, matrix))
    # Features of zeros alone have no scale, and a ridge below the rounding of the bias constant does not help.
    least = torch.finfo(matrix.dtype).eps / _FACTORS[0] * whole
    scale = torch.maximum(own, least.detach()) / weights.sum(-1, keepdim=True)
    return scale * torch.tensor(_FACTORS, dtype=matrix.dtype, device=matrix.device)


def one_of_each_class(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of points that leave together, one of each class, so that the classes stay as balanced as they were.

    With a point alone its class has a point less than the others, which by itself makes it less likely.

    Returns:
        For each point and class, the one that leaves with it, int64 ``(..., n, ways)``: itself, or of another class
        the one that is as far from its beginning, counted round. And whether one does, bool ``(..., n, ways)``: the
        only point of another class stays.

    Example:
        >>> points, leave = one_of_each_class(torch.eye(2).repeat_interleave(torch.tensor([3, 2]), dim=0))
        >>> points.mT
        tensor([[0, 1, 2, 0, 1],
                [3, 4, 3, 3, 4]])
    """
    counts = targets.sum(-2, keepdim=True)
    place = ((targets.cumsum(-2) - 1) * targets).sum(-1, keepdim=True) % counts.clamp(min=1)
    members = targets.argsort(dim=-2, descending=True, stable=True)
    return members.gather(-2, place.long()), (targets > 0) | (counts > 1)
