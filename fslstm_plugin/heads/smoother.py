"""Heads whose predictions are linear in the labels, and so can leave out each of their points in closed form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..gram import EpisodeGram
from .base import Head
from .leave_one_out import candidate_ridges, one_of_each_class
from .linalg import inverse_spd, solve_spd

_BLOCKS = 10**7  # Numbers in the blocks that leave together, at a time and for each episode.


class SmootherHead(Head):
    """A head that solves ``C B = Y``, ``C = K + c 11^T + ridge I``, and predicts ``(K + c) B``.

    Without point i it predicts ``Y_i - B_i / (C^-1)_ii`` for it, and without the points S ``Y_S - (C^-1)_SS^-1 B_S``
    for them. A query x with a candidate label adds a row and a
    column to C, the same for every label, so that the inverse is a rank-one extension, and a row to Y, in which B is
    linear: with ``v = C^-1 k(x)``, ``s = k(x, x) + c + ridge - k(x).v`` and the prediction f for x,

        ``B_i + v_i (f - y) / s`` and ``(C^-1)_ii + v_i^2 / s`` take the places of ``B_i`` and ``(C^-1)_ii``.

    Source: Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector
    machines", 2004; the extension is the inverse of a bordered matrix.
    """

    ridge: float | str

    @property
    def lacks_leave_one_out(self) -> str | None:
        """See `Head.lacks_leave_one_out`."""
        return None

    @property
    def offset(self) -> float:
        """The number c; default 0."""
        return 0.0

    @abstractmethod
    def codes(self, ways: int) -> tuple[Tensor, Tensor]:
        """What the one-hot labels are multiplied with to be Y ``(ways, L)``, and B to be the logits ``(L, ways)``."""

    def ridge_of(self, kernel: Tensor, right: Tensor) -> Tensor | float:
        """The ridge for kernel matrices ``(..., n, n)`` and right-hand sides ``(..., n, L)``; a number or ``(...)``."""
        assert not isinstance(self.ridge, str), "A head that chooses its ridge says how."
        return self.ridge

    def leave_one_out(self, gram: EpisodeGram, targets: Tensor, *, of_each_class: bool = False) -> Tensor:
        """See `Head.leave_one_out`."""
        self.require_leave_one_out()
        return self._left_out(gram.support_kernel(self.kernel, targets), targets, of_each_class)

    def leave_one_out_with_queries(self, gram: EpisodeGram, targets: Tensor) -> Iterator[Tensor]:
        """See `Head.leave_one_out_with_queries`."""
        self.require_leave_one_out()
        kernel = gram.support_kernel(self.kernel, targets)
        cross = gram.cross_kernel(self.kernel, targets)
        own = gram.query_self_kernel(self.kernel).unsqueeze(-1)
        if isinstance(self.ridge, str):
            return self._extended(kernel, cross, own, targets)
        return self._bordered(kernel, cross, own, targets, self.ridge)

    def _left_out(self, kernel: Tensor, targets: Tensor, of_each_class: bool = False) -> Tensor:
        encode, decode = (code.to(targets) for code in self.codes(targets.shape[-1]))
        right = targets @ encode
        ridge = torch.as_tensor(self.ridge_of(kernel, right)).to(kernel)[..., None, None]
        inverse = inverse_spd(kernel + self.offset + ridge * _eye(kernel))
        solution = inverse @ right
        error = errors_together(inverse, solution, targets) if of_each_class else _errors(inverse, solution)
        return (right - error) @ decode

    def _bordered(self, kernel: Tensor, cross: Tensor, own: Tensor, targets: Tensor, ridge: float) -> Iterator[Tensor]:
        encode, decode = (code.to(targets) for code in self.codes(targets.shape[-1]))
        inverse = inverse_spd(kernel + self.offset + ridge * _eye(kernel))
        right = targets @ (encode @ decode)
        solution = inverse @ right
        column = cross + self.offset
        solved = column @ inverse
        # What the support leaves of a query is never less than the ridge, but rounding can take it away.
        left = (own + self.offset + ridge - (column * solved).sum(-1, keepdim=True)).clamp(min=ridge)
        diagonal = _diagonal(inverse).unsqueeze(-2) + solved.square() / left
        predicted = column @ solution
        for code in encode @ decode:
            step = solved.unsqueeze(-1) * ((predicted - code) / left).unsqueeze(-2)
            others = right.unsqueeze(-3) - (solution.unsqueeze(-3) + step) / diagonal.unsqueeze(-1)
            yield torch.cat([others, predicted.unsqueeze(-2)], -2)

    def _extended(self, kernel: Tensor, cross: Tensor, own: Tensor, targets: Tensor) -> Iterator[Tensor]:
        """The same where each query and label may choose another ridge: from one eigendecomposition per query.

        The solution of every ridge is ``base + last y^T`` in the codes y of the query's label, and so its leave-one-out
        error is a quadratic function of them.
        """
        encode, decode = (code.to(targets) for code in self.codes(targets.shape[-1]))
        top = torch.cat([kernel.unsqueeze(-3).expand(*cross.shape, -1), cross.unsqueeze(-1)], -1)
        whole = torch.cat([top, torch.cat([cross, own], -1).unsqueeze(-2)], -2)
        ridges = candidate_ridges(whole, whole + self.offset, torch.ones_like(whole[..., 0]))
        values, vectors = torch.linalg.eigh(whole + self.offset)
        inverse = 1 / (values.clamp(min=0).unsqueeze(-2) + ridges.unsqueeze(-1))
        diagonal = inverse @ vectors.square().mT
        right = F.pad(targets @ encode, (0, 0, 0, 1)).unsqueeze(-3)
        base = vectors.unsqueeze(-3) @ (inverse.unsqueeze(-1) * (vectors.mT @ right).unsqueeze(-3))
        last = (inverse * vectors[..., -1:, :]) @ vectors.mT
        relative, relative_last = base / diagonal.unsqueeze(-1), last / diagonal
        fixed, square = relative.square().sum((-2, -1)), relative_last.square().sum(-1)
        mixed = (relative * relative_last.unsqueeze(-1)).sum(-2)
        for code in encode:
            errors = fixed + 2 * mixed @ code + square * code.square().sum()
            best = errors.argmin(-1)[..., None, None]
            chosen = relative.gather(-3, best.unsqueeze(-1).expand(*best.shape[:-1], *relative.shape[-2:])).squeeze(-3)
            chosen_last = relative_last.gather(-2, best.expand(*best.shape[:-1], relative_last.shape[-1])).squeeze(-2)
            known = torch.cat([right[..., :-1, :], code.expand_as(right[..., -1:, :])], -2)
            yield (known - chosen - chosen_last.unsqueeze(-1) * code) @ decode


def _errors(inverse: Tensor, solution: Tensor) -> Tensor:
    """Of each point when it is left out ``(..., n, L)``."""
    return solution / _diagonal(inverse).unsqueeze(-1)


def errors_together(inverse: Tensor, solution: Tensor, targets: Tensor) -> Tensor:
    """Of each point when one of each class is left out: ``(C^-1)_SS^-1 B_S`` of those that leave, its own row.

    Args:
        inverse: ``C^-1``, ``(..., n, n)``.
        solution: B ``(..., n, L)``.
        targets: One-hot labels ``(..., n, ways)``, every point present once.

    Returns:
        ``(..., n, L)``.
    """
    points, leave = one_of_each_class(targets)
    size = inverse.shape[-1]
    found = []
    for part in torch.arange(size).split(max(1, _BLOCKS // points.shape[-1] ** 2)):
        mine, gone = points[..., part, :], leave[..., part, :]
        pairs = mine.unsqueeze(-1) * size + mine.unsqueeze(-2)
        blocks = inverse.flatten(-2).gather(-1, pairs.flatten(-3)).view(pairs.shape)
        blocks = torch.where(gone.unsqueeze(-1) & gone.unsqueeze(-2), blocks, _eye(blocks))
        rows = mine.flatten(-2).unsqueeze(-1).expand(*mine.shape[:-2], -1, solution.shape[-1])
        sides = solution.gather(-2, rows).unflatten(-2, mine.shape[-2:]) * gone.unsqueeze(-1)
        found.append((solve_spd(blocks, sides) * targets[..., part, :].unsqueeze(-1)).sum(-2))
    return torch.cat(found, -2)


def _eye(kernel: Tensor) -> Tensor:
    return torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)
