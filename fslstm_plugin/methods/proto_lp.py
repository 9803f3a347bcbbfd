"""protoLP: label propagation through prototypes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import require
from ..features import EpisodeFeatures
from ..heads.linalg import eigh
from ..kernels import inverse_lengths
from .shared.prototypes import class_means, complete_squares
from .shared.sinkhorn import TransportMethod, log_plan

_NOTHING = 1e-12  # Square below which a length among unit vectors is rounding.


class ProtoLP(TransportMethod):
    r"""Prototypes as nodes of a graph over which the labels spread to the queries, that move to what they receive.

    On square roots of unit length, projected on their first principal directions (uncentred), centred together, and of
    unit length again. A plan P like `PTMAP`'s and the labels make ``Z = [Y; P]``; labels spread by
    ``F = Z (Y'Y + L)^-1 Y'Y`` with the Laplacian ``L = I - Z'Z / colsum(Z)``; F is balanced to equal classes with the
    support held at its labels; prototypes take a step to the means by ``clip(mixing F + (1 - mixing) Z, 0, 1)``. The
    logits are ln P of the last prototypes; their softmax is P with each query's sum, which the tolerance leaves near 1,
    brought to 1.

    Its prior is uniform twice, in P and in F, whatever the truth. Its loose tolerances stop P early: where rounding
    changes the number of sweeps, single entries change by 1e-3 to 3e-2. Each episode stops by its own sums; in the
    published code, with its batch. Gradients exist where principal directions differ in extent.

    Use this when the queries are known to be balanced; not otherwise, nor for a single query, which gets the same share
    of each class. The authors tune the constants for each data set.

    Source: Zhu and Koniusz, "Transductive few-shot learning with prototype-based label propagation by iterative graph
    refinement", CVPR 2023; the constants are those of its script for WideResNet features.

    Args:
        directions: Principal directions kept, default 40; all where there are fewer points or features.
        scale: Inverse squared length of the plan, above 0; default 10.
        iterations: Moves of the prototypes; default 100.
        step: Share of the way that a prototype moves, in (0, 1]; default 0.2.
        mixing: Share of the spread labels against the plan, in (0, 1]; default 0.6.
        tolerance: Of the plan, see `sinkhorn`; default 1e-3.
        balance_tolerance: Of the balanced labels; default 0.01.
        exponent: See `Power`; default 0.5.
        negative: ``"refuse"`` (default) or ``"signed"``, see `Power`; features after a LeakyReLU need the latter.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 4.0], [4.0, 4.0]]), torch.tensor([0, 1]))
        >>> ProtoLP().logits(features).argmax(-1)
        tensor([1, 0])
    """

    def __init__(
        self,
        directions: int = 40,
        scale: float = 10.0,
        iterations: int = 100,
        step: float = 0.2,
        mixing: float = 0.6,
        tolerance: float = 1e-3,
        balance_tolerance: float = 1e-2,
        exponent: float = 0.5,
        negative: str = "refuse",
    ) -> None:
        super().__init__(scale, iterations, step, tolerance, exponent, negative)
        self.balance_tolerance = require("balance_tolerance", balance_tolerance, above=0)
        self.mixing = require("mixing", mixing, above=0, most=1)
        self.directions = require("directions", directions, least=1, whole=True)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        points = principal_coordinates(self.prepare(features).gram.whole, self.directions)
        points = _unit(points - points.mean(-2, keepdim=True))
        support, query = points.tensor_split([features.num_support], dim=-2)
        labelled = features.targets.mT
        prototypes = _unit(class_means(features.targets) @ support)
        plan = self._plan(prototypes, query)
        for _ in range(self.iterations):
            known = torch.cat([labelled, plan], -1)
            spread = balanced(propagated(known, labelled), labelled, self.balance_tolerance)
            members = torch.lerp(known, spread, self.mixing).clamp(0, 1)
            prototypes = torch.lerp(prototypes, members @ points / members.sum(-1, keepdim=True), self.step)
            plan = self._plan(prototypes, query)
        return log_plan(plan)

    def _plan(self, prototypes: Tensor, query: Tensor) -> Tensor:
        squared = complete_squares(prototypes @ query.mT, prototypes.square().sum(-1), query.square().sum(-1))
        return self.plan(squared)


def principal_coordinates(gram: Tensor, directions: int) -> Tensor:
    """Coordinates ``(..., N, directions)`` of points along their first principal directions, uncentred.

    The inner products ``(..., N, N)`` are those of vectors of about unit length. There are as many directions as points
    at most; one without extent, as where there are fewer features, is 0.

    Example:
        >>> points = torch.tensor([[3.0, 0.0], [-4.0, 0.0]])
        >>> principal_coordinates(points @ points.mT, 1).abs()
        tensor([[3.],
                [4.]])
    """
    squares, vectors = eigh(gram)
    squares = squares[..., -directions:].unsqueeze(-2)
    return vectors[..., -directions:] * torch.where(squares > _NOTHING, squares.clamp(min=_NOTHING).sqrt(), 0)


def propagated(known: Tensor, labelled: Tensor) -> Tensor:
    """F ``(..., ways, n + m)``: what Z, the labels Y ``(..., ways, n)`` and the plan, becomes by spreading."""
    sizes = torch.diag_embed(labelled.sum(-1))
    laplacian = sizes.new_ones(sizes.shape[-1]).diag() - known @ (known / known.sum(-1, keepdim=True)).mT
    return torch.linalg.solve(sizes + laplacian, sizes).mT @ known


def balanced(spread: Tensor, labelled: Tensor, tolerance: float) -> Tensor:
    """Scale points to sum 1 and classes to equal sums as `sinkhorn` does, the support reset to its labels each sweep.

    What is spread, ``(..., ways, n + m)``, may be negative; the labels are ``(..., ways, n)``.
    """
    ways, num_support = labelled.shape[-2:]
    before = torch.zeros_like(spread[..., :1, :])
    for _ in range(1000):
        sums = spread.sum(-2, keepdim=True)
        running = ((sums - before).abs() > tolerance).any(-1, keepdim=True)
        if not running.any():
            break
        scaled = spread / sums
        queries = scaled[..., num_support:] * (spread.shape[-1] / ways / scaled.sum(-1, keepdim=True))
        spread = torch.where(running, torch.cat([labelled, queries], -1), spread)
        before = sums
    return spread


def _unit(points: Tensor) -> Tensor:
    """Vectors of unit length; one that rounding alone keeps from 0 is 0."""
    return points * inverse_lengths(points.square().sum(-1, keepdim=True), _NOTHING)
