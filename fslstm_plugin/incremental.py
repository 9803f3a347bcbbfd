"""The linear system of LSSVM and ridge regression, updated where points come and go instead of solved anew."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from .heads import Head
from .heads.linalg import inverse_spd
from .heads.smoother import SmootherHead, errors_together

_DRIFT = 1e-7  # Of the residual, and so of the inverse; refinement squares it for solutions.


class UpdatableSystem:
    """``C = K + c 11^T + ridge I`` over points that come and go, with its inverse.

    C does not depend on labels, so that classes come and go with their points. With k points added to n or taken out
    of them, the inverse costs O(n^2 k) instead of O(n^3): bordering by the Schur complement of the new points, and
    the Schur complement of those that go. Everything is in double precision, and the rounding errors that accumulate in
    the inverse are removed from a solution by one step of refinement with C itself.

    Source: for least-squares SVMs, Cauwenberghs and Poggio, "Incremental and decremental support vector machine
    learning", 2000; the formulas are those of the inverse of a matrix in blocks.

    Args:
        head: LSSVM, ridge regression or another that `is_updatable`.

    Attributes:
        points: Features ``(n, d)``, float64.
        matrix: C ``(n, n)``.
        inverse: Its inverse ``(n, n)``.

    Example:
        >>> from fslstm_plugin.heads import RidgeClassifier
        >>> system = UpdatableSystem(RidgeClassifier(ridge=1.0))
        >>> system.add(torch.eye(3, dtype=torch.float64))
        >>> system.remove(torch.tensor([1]))
        >>> system.inverse
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, head: SmootherHead) -> None:
        self.head = head
        self.points = self.matrix = self.inverse = torch.zeros(0, 0, dtype=torch.float64)

    def add(self, points: Tensor) -> None:
        """Append points.

        Args:
            points: Features ``(k, d)``, float64.
        """
        old = self.points if len(self.points) else points[:0]
        crossing = self._kernel(old, points)
        own = self._kernel(points, points) + float(self.head.ridge) * torch.eye(len(points), dtype=points.dtype)
        influence = self.inverse @ crossing
        influence = influence + self.inverse @ (crossing - self.matrix @ influence)
        # Much cancels here; computed with the residual, an error of the influence enters only squared.
        residual = crossing - self.matrix @ influence
        corner = _inverse(own - influence.mT @ (crossing + residual))
        weighted = influence @ corner
        self.inverse = _blocks(self.inverse + weighted @ influence.mT, -weighted, corner)
        self.matrix = _blocks(self.matrix, crossing, own)
        self.points = torch.cat([old, points])

    def remove(self, places: Tensor) -> None:
        """Take points out; the others keep their order.

        Args:
            places: Indices ``(k,)`` of different points, int64.
        """
        if not len(places):  # nor copy the inverse
            return
        kept = torch.ones(len(self.points), dtype=torch.bool)
        kept[places] = False
        crossing = self.inverse[kept][:, places]
        update = crossing @ _inverse(self.inverse[places][:, places]) @ crossing.mT
        self.inverse = self.inverse[kept][:, kept] - update
        self.matrix = self.matrix[kept][:, kept]
        self.points = self.points[kept]

    def coefficients(self, targets: Tensor) -> Tensor:
        """What the head's `solve` gives for these points; its bias is the offset c times the sum over them.

        Args:
            targets: One-hot labels ``(n, ways)``, float64.

        Returns:
            ``(n, ways)``.

        Raises:
            SingularError: If the system has no solution, see `solve_spd`.
        """
        encode, decode = (code.to(targets) for code in self.head.codes(targets.shape[-1]))
        return self._solve(targets @ encode) @ decode

    def logits(self, query: Tensor, coefficients: Tensor) -> Tensor:
        """Logits ``(m, ways)`` of queries ``(m, d)``, float64."""
        return self._kernel(query, self.points) @ coefficients

    def leave_one_out(self, targets: Tensor) -> Tensor:
        """What the head's `leave_one_out` gives for these points, with one of each class left out together.

        Args:
            targets: One-hot labels ``(n, ways)``, float64.

        Returns:
            Logits ``(n, ways)``.

        Raises:
            SingularError: See `coefficients`.
        """
        encode, decode = (code.to(targets) for code in self.head.codes(targets.shape[-1]))
        right = targets @ encode
        return (right - errors_together(self.inverse, self._solve(right), targets)) @ decode

    def _solve(self, right: Tensor) -> Tensor:
        """``C^-1 right``; an inverse that has become inaccurate, as of an almost singular C, is computed again."""
        residual = right - self.matrix @ (self.inverse @ right)
        if not residual.norm() <= _DRIFT * right.norm():  # also of a residual that is not a number
            self.inverse = inverse_spd(self.matrix)
            residual = right - self.matrix @ (self.inverse @ right)
        return self.inverse @ (right + residual)

    def _kernel(self, left: Tensor, right: Tensor) -> Tensor:
        """With the offset c, which in the logits makes the bias."""
        norms = left.square().sum(-1), right.square().sum(-1)
        return self.head.kernel(left @ right.mT, *norms, left.shape[-1]) + self.head.offset


def is_updatable(head: Head) -> TypeGuard[SmootherHead]:
    """Whether a head solves one system that depends on the points alone: not with a ridge that looks at the labels.

    Example:
        >>> from fslstm_plugin.heads import LSSVMClassifier
        >>> is_updatable(LSSVMClassifier(ridge=1.0)), is_updatable(LSSVMClassifier(ridge="loo"))
        (True, False)
    """
    return isinstance(head, SmootherHead) and head.lacks_leave_one_out is None and not isinstance(head.ridge, str)


def _inverse(matrix: Tensor) -> Tensor:
    return torch.linalg.inv_ex(matrix).inverse  # a wrong one is noticed when it is used


def _blocks(first: Tensor, crossing: Tensor, last: Tensor) -> Tensor:
    """The symmetric matrix of these blocks."""
    return torch.cat([torch.cat([first, crossing], 1), torch.cat([crossing.mT, last], 1)])
