"""The linear system of LSSVM and ridge regression, updated where points come and go instead of solved anew."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from ..gram import EpisodeGram
from ..heads import Head
from ..heads.base import Dual, SolvedSystem
from ..heads.linalg import inverse_smoother, keeps_digits, require_above_rounding
from ..heads.smoother import SmootherHead, errors_together

_DRIFT = 1e-7  # Of the residual, and so of the inverse; refinement squares it for solutions.


class UpdatableSystem:
    """``C = K + c 11^T + ridge I`` over points that come and go, with its inverse.

    C does not depend on labels, so that classes come and go with their points. With k points added to n or taken out
    of them, the inverse costs O(n^2 k) instead of O(n^3): bordering by the Schur complement of the new points, and
    the Schur complement of those that go. Everything is in double precision, and the rounding errors that accumulate in
    the inverse are removed from a solution by one step of refinement with C itself. Where rounding of the kernel
    reaches the ridge, which no update of an inverse survives, the head solves the system anew.

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
        self.points = self.matrix = self.inverse = torch.zeros(0, 0, dtype=torch.float64, device="cpu")
        self._is_updated = False

    def add(self, points: Tensor) -> None:
        """Append points, features ``(k, d)``, float64."""
        old = self.points if len(self.points) else points[:0]
        self._is_updated = bool(len(old))
        crossing = self._kernel(old, points) + self.head.offset
        ridge = self._ridge * torch.eye(len(points), dtype=points.dtype, device=points.device)
        own = self._kernel(points, points) + self.head.offset + ridge
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
        """Take the points at different places ``(k,)``, int64, out; the others keep their order."""
        if not len(places):  # nor copy the inverse
            return
        self._is_updated = True
        kept = torch.ones(len(self.points), dtype=torch.bool, device="cpu")
        kept[places] = False
        crossing = self.inverse[kept][:, places]
        update = crossing @ _inverse(self.inverse[places][:, places]) @ crossing.mT
        self.inverse = self.inverse[kept][:, kept] - update
        self.matrix = self.matrix[kept][:, kept]
        self.points = self.points[kept]

    def coefficients(self, targets: Tensor) -> Dual:
        """What the head's `solve` gives for these points and one-hot labels ``(n, ways)``, float64."""
        if not self._has_inverse():
            return self.head.solve(self._kernel(self.points, self.points), targets)
        encode, decode = self.head.codes(targets)
        alpha = self._solve(targets @ encode) @ decode
        return Dual(alpha, self.head.offset * alpha.sum(-2))

    def logits(self, query: Tensor, dual: Dual) -> Tensor:
        """Logits ``(m, ways)`` of queries ``(m, d)``, float64."""
        return self._kernel(query, self.points) @ dual.alpha + dual.bias

    def leave_one_out(self, targets: Tensor) -> Tensor:
        """What the head's `leave_one_out` gives, logits ``(n, ways)``, with one of each class left out together."""
        if not self._has_inverse():
            gram = EpisodeGram.from_features(self.points, self.points[:0])
            return self.head.leave_one_out(gram, targets, of_each_class=True)
        require_above_rounding(self._kernel(self.points, self.points), self._ridge)
        encode, decode = self.head.codes(targets)
        right = targets @ encode
        return (right - errors_together(self.inverse, self._solve(right), targets)) @ decode

    def solved(self, dual: Dual) -> SolvedSystem | None:
        """What the head's `solved_system` gives, from the `coefficients`; None where that has to be computed."""
        return SolvedSystem(self.inverse, dual.alpha) if not self._is_updated and self._serves() else None

    def _solve(self, right: Tensor) -> Tensor:
        """``C^-1 right``; an inverse that has drifted is computed again."""
        residual = right - self.matrix @ (self.inverse @ right)
        if not residual.norm() <= _DRIFT * right.norm():  # also of a residual that is not a number
            self._invert()
            residual = right - self.matrix @ (self.inverse @ right)
        return self.inverse @ (right + residual)

    def _has_inverse(self) -> bool:
        """Whether C has an inverse that solves it; one that only the updates have spoilt is computed again."""
        if not self._serves():
            self._invert()
        return self._serves()

    def _serves(self) -> bool:
        """Whether each point adds to those before it far more than rounding."""
        return bool(keeps_digits(self.matrix.trace(), 1 / self.inverse.diagonal().amax()))

    def _invert(self) -> None:
        self.inverse = inverse_smoother(self._kernel(self.points, self.points), self._ridge, self.head.offset)

    @property
    def _ridge(self) -> float:
        return float(self.head.ridge)

    def _kernel(self, left: Tensor, right: Tensor) -> Tensor:
        norms = left.square().sum(-1), right.square().sum(-1)
        return self.head.kernel(left @ right.mT, *norms, left.shape[-1])


def is_updatable(head: Head) -> TypeGuard[SmootherHead]:
    """Whether a head solves one system that depends on the points alone: not with a ridge that looks at the labels.

    Example:
        >>> from fslstm_plugin.heads import LSSVMClassifier
        >>> is_updatable(LSSVMClassifier(ridge=1.0)), is_updatable(LSSVMClassifier(ridge="loo"))
        (True, False)
    """
    return isinstance(head, SmootherHead) and head.why_no_leave_one_out is None and not isinstance(head.ridge, str)


def _inverse(matrix: Tensor) -> Tensor:
    return torch.linalg.inv_ex(matrix).inverse  # a wrong one is noticed when it is used


def _blocks(first: Tensor, crossing: Tensor, last: Tensor) -> Tensor:
    """The symmetric matrix of these blocks."""
    return torch.cat([torch.cat([first, crossing], 1), torch.cat([crossing.mT, last], 1)])
