"""The linear system of LSSVM and ridge regression, updated where points come and go instead of solved anew."""

from __future__ import annotations

import torch
from torch import Tensor

from .heads import Head, LSSVMClassifier, RidgeClassifier
from .heads.base import Dual
from .heads.linalg import cholesky

_DRIFT = 1e-6  # Of the residual; refinement squares it.


class UpdatableSystem:
    """``C = K + c 11^T + ridge I`` over points that come and go, with its inverse.

    C does not depend on labels, so that classes come and go with their points. With k points added to n or taken out
    of them, the inverse costs O(n^2 k) instead of O(n^3): bordering by the Schur complement of the new points, and
    the Schur complement of those that go. Everything is in double precision, and what rounding has added up in the
    inverse is removed from a solution by one step of refinement with C itself.

    Source: for least-squares SVMs, Cauwenberghs and Poggio, "Incremental and decremental support vector machine
    learning", 2000; the formulas are those of the inverse of a matrix in blocks.

    Args:
        head: LSSVM or ridge regression, one that `is_updatable`.

    Attributes:
        points: Features ``(n, d)``, float64.
        matrix: C ``(n, n)``.
        inverse: Its inverse ``(n, n)``.

    Example:
        >>> system = UpdatableSystem(RidgeClassifier(ridge=1.0))
        >>> system.add(torch.eye(3, dtype=torch.float64))
        >>> system.remove(torch.tensor([1]))
        >>> system.inverse
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, head: LSSVMClassifier | RidgeClassifier) -> None:
        self.head = head
        self._constant = 1 / head.bias_weight if isinstance(head, LSSVMClassifier) else 0.0
        self.points = self.matrix = self.inverse = torch.zeros(0, 0, dtype=torch.float64)

    def add(self, points: Tensor) -> None:
        """Append points.

        Args:
            points: Features ``(k, d)``, float64.
        """
        old = self.points if len(self.points) else points[:0]
        crossing = self._kernel(old, points)
        own = self._kernel(points, points) + float(self.head.ridge) * torch.eye(len(points), dtype=points.dtype)
        self.matrix = _blocks(self.matrix, crossing, own)
        influence = self.inverse @ crossing
        corner = _inverse(own - crossing.mT @ influence)
        weighted = influence @ corner
        self.inverse = _blocks(self.inverse + weighted @ influence.mT, -weighted, corner)
        self.points = torch.cat([old, points])

    def remove(self, places: Tensor) -> None:
        """Take points out; the others keep their order.

        Args:
            places: Indices ``(k,)`` of different points, int64.
        """
        kept = torch.ones(len(self.points), dtype=torch.bool)
        kept[places] = False
        crossing = self.inverse[kept][:, places]
        update = crossing @ _inverse(self.inverse[places][:, places]) @ crossing.mT
        self.inverse = self.inverse[kept][:, kept] - update
        self.matrix = self.matrix[kept][:, kept]
        self.points = self.points[kept]

    def dual(self, targets: Tensor) -> Dual:
        """What the head's `solve` gives for these points.

        Args:
            targets: One-hot labels ``(n, ways)``, float64.

        Raises:
            SingularError: If the system has no solution, see `solve_spd`.
        """
        if isinstance(self.head, RidgeClassifier):
            return Dual(2 * self._solve(targets), targets.new_zeros(targets.shape[-1]))
        code = self.head.code(targets.shape[-1])
        beta = self._solve(targets @ code)
        bias = self._constant * beta.sum(0)
        return Dual(beta, bias) if self.head.decoding == "hamming" else Dual(beta @ code.mT, bias @ code.mT)

    def _solve(self, right: Tensor) -> Tensor:
        """``C^-1 right``; where the updates of an almost singular inverse went astray, it is computed anew."""
        residual = right - self.matrix @ (self.inverse @ right)
        if not residual.norm() <= _DRIFT * right.norm():  # also of a residual that is not a number
            self.inverse = torch.cholesky_inverse(cholesky(self.matrix, torch.float32))
            residual = right - self.matrix @ (self.inverse @ right)
        return self.inverse @ (right + residual)

    def _kernel(self, left: Tensor, right: Tensor) -> Tensor:
        norms = left.square().sum(-1), right.square().sum(-1)
        return self.head.kernel(left @ right.mT, *norms, left.shape[-1]) + self._constant


def is_updatable(head: Head) -> bool:
    """Whether a head's system depends on the points alone: not with a ridge, or a code, that looks at the labels.

    Example:
        >>> is_updatable(LSSVMClassifier(ridge=1.0)), is_updatable(LSSVMClassifier(ridge="loo"))
        (True, False)
    """
    if type(head) is LSSVMClassifier:
        return not isinstance(head.ridge, str) and not head.leaves_out
    return type(head) is RidgeClassifier


def _inverse(matrix: Tensor) -> Tensor:
    return torch.linalg.inv_ex(matrix).inverse  # a wrong one is noticed when it is used


def _blocks(first: Tensor, crossing: Tensor, last: Tensor) -> Tensor:
    """The symmetric matrix of these blocks."""
    return torch.cat([torch.cat([first, crossing], 1), torch.cat([crossing.mT, last], 1)])
