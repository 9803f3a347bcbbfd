"""Optimal transport of queries to prototypes: matrices brought to given row and column sums."""

from __future__ import annotations

import torch
from torch import Tensor

from ...adapters import Normalize, Power
from ...checks import require
from ..base import Gram, Method


class TransportMethod(Method):
    """A method that moves prototypes by plans of transport, on powers of features brought to unit length.

    For the arguments see `PTMAP`, whose defaults these are.
    """

    is_transductive = True
    fills_classes_equally = True
    uses_gram: Gram = "all"

    def __init__(
        self,
        scale: float = 10.0,
        iterations: int = 20,
        step: float = 0.2,
        tolerance: float = 1e-6,
        exponent: float = 0.5,
        negative: str = "refuse",
    ) -> None:
        super().__init__([Power(exponent, negative), Normalize()])
        self.exponent, self.negative = exponent, negative
        self.scale = require("scale", scale, above=0)
        self.tolerance = require("tolerance", tolerance, above=0)
        self.step = require("step", step, above=0, most=1)
        self.iterations = require("iterations", iterations, least=0, whole=True)

    def plan(self, squared: Tensor) -> Tensor:
        """Queries assigned to classes, equally many to each, nearer ones rather: `sinkhorn` of ``exp(-scale squared)``.

        Of squared distances ``(..., ways, m)`` to the prototypes it makes shares ``(..., ways, m)``, whose columns sum
        to 1 to about ten times the tolerance, and rows to ``m / ways``.
        """
        ways, num_query = squared.shape[-2:]
        # A factor a query changes nothing but the smallest number met; the published code divides by the total too.
        likeness = (-self.scale * (squared - squared.amin(-2, keepdim=True))).exp()
        likeness = likeness / likeness.sum((-2, -1), keepdim=True)
        return sinkhorn(likeness.clamp(min=torch.finfo(squared.dtype).tiny), num_query / ways, self.tolerance)


def log_plan(plan: Tensor) -> Tensor:
    """Logits ``(..., m, ways)`` of a plan ``(..., ways, m)``; their softmax is the plan with each query's sum 1."""
    return plan.clamp(min=torch.finfo(plan.dtype).tiny).log().mT


def sinkhorn(matrix: Tensor, class_sums: Tensor | float, tolerance: float = 1e-6) -> Tensor:
    """Scale classes and points until each point has the sum 1 and each class the one wanted (Sinkhorn and Knopp).

    A sweep divides each point by its sum, then scales each class to the sum wanted, until no point's sum differs from
    that of the sweep before by more than the tolerance, 1000 times at most. So classes are exact on return, and points
    to about ten times the tolerance. Each episode stops at its own sweep, whatever the batch it is in; published code
    goes on until the last episode of a batch is done.

    Args:
        matrix: Above 0, ``(..., ways, points)``: a column per point. It is differentiable, and stays as it is.
        class_sums: Sum wanted for each class, one for all or ``(..., ways)``; in all the number of points.
        tolerance: Above 0, default 1e-6.

    Example:
        >>> sinkhorn(torch.tensor([[1.0, 1.0], [1.0, 3.0]]), 1.0).round(decimals=3)
        tensor([[0.6340, 0.3660],
                [0.3660, 0.6340]])
    """
    sums = class_sums.to(matrix) if isinstance(class_sums, Tensor) else matrix.new_full((), class_sums)
    ones, of_classes = torch.ones_like(matrix[..., :1, :]), torch.ones_like(matrix[..., :1])
    wanted = sums.unsqueeze(-1).expand_as(of_classes)
    of_points, of_classes = _factors(matrix, wanted, ones, of_classes, torch.zeros_like(ones), tolerance, 1000)
    return matrix * of_points * of_classes


def _factors(
    matrix: Tensor, wanted: Tensor, of_points: Tensor, of_classes: Tensor, before: Tensor, tolerance: float, sweeps: int
) -> tuple[Tensor, Tensor]:
    """The factors of points and classes; the matrix stays as it is. ``before`` are the sums of the sweep before."""
    for sweep in range(sweeps):
        unscaled = (matrix * of_classes).sum(-2, keepdim=True)
        sums = of_points * unscaled
        # An episode that stopped does not change, so neither do its sums: it never starts again.
        running = ((sums - before).abs() > tolerance).any(-1, keepdim=True)
        count = int(running.sum())
        if not count:
            break
        if 2 * count <= running.numel():  # The last episode takes several times as many sweeps as most.
            on = running[..., 0, 0]
            points, classes = of_points[on], of_classes[on]
            found = _factors(matrix[on], wanted[on], points, classes, before[on], tolerance, sweeps - sweep)
            return of_points.masked_scatter(running, found[0]), of_classes.masked_scatter(running, found[1])
        of_points = torch.where(running, 1 / unscaled, of_points)
        of_classes = torch.where(running, wanted / (matrix * of_points).sum(-1, keepdim=True), of_classes)
        before = sums
    return of_points, of_classes
