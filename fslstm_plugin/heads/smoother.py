"""Heads whose predictions are linear in the labels, and so can leave out each of their points in closed form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..gram import EpisodeGram
from ..kernels import Linear
from ..tracing import values_known
from .base import Dual, Head, SolvedSystem, weight_roots
from .leave_one_out import CANDIDATE_RIDGES, candidate_ridges, choose_ridge, one_of_each_class
from .linalg import eigh, half_solved, inverse_smoother, keeps_digits, require_above_rounding, solve_smoother, solve_spd
from .margins import Margins, WithQueries, margins, margins_beside_queries, margins_of_each_class, query_parts

_BLOCKS = 10**7  # Numbers in the blocks that leave together, at a time and for each episode.


class SmootherHead(Head):
    """A head that solves ``C B = Y``, ``C = K + c 11^T + ridge I``, and predicts ``(K + c) B``.

    Without point i it predicts ``Y_i - B_i / (C^-1)_ii`` for it, and without the points S ``Y_S - (C^-1)_SS^-1 B_S``
    for them. A query x with a candidate label adds a row and a column to C, the same for every label, so that the
    inverse is a rank-one extension, and a row to Y, in which B is linear: with ``v = C^-1 k(x)``,
    ``s = k(x, x) + c + ridge - k(x).v`` and the prediction f for x,

        ``B_i + v_i (f - y) / s`` and ``(C^-1)_ii + v_i^2 / s`` take the places of ``B_i`` and ``(C^-1)_ii``.

    Source: Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector
    machines", 2004; the extension is the inverse of a bordered matrix.
    """

    ridge: float | str
    offset: float = 0.0  # The number c.
    is_static = True
    why_no_leave_one_out: str | None = None

    @abstractmethod
    def codes(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What one-hot labels are multiplied with to be Y ``(ways, L)``, and B to be the logits ``(L, ways)``.

        They have the type and device of the labels ``(..., n, ways)``.
        """

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """See `Head.solve`."""
        encode, decode = self.codes(targets)
        roots, scaled = weight_roots(targets)
        solution = self._solution(kernel, roots, scaled @ encode)
        return Dual(solution.alpha @ decode, solution.bias @ decode)

    def reduced(self, gram: EpisodeGram, targets: Tensor) -> tuple[Head, EpisodeGram, Tensor]:
        """See `Head.reduced`; the support is eliminated, and the columns of Y stand in its place.

        Of the matrix of ``K + c 11^T`` between support and queries, bordered by Y, eliminating the support leaves what
        it does not explain of the queries, and its prediction for them: one factorisation of the support for all
        refits, whose systems are those of the appended points alone. The sums are those of one factorisation of all,
        the support first. Where rounding might reach the ridge, everything stays.
        """
        if not self._can_eliminate(gram):
            return super().reduced(gram, targets)
        encode, _ = self.codes(targets)
        roots, scaled = weight_roots(targets)
        border = torch.cat([scaled @ encode, roots * (gram.cross.mT + self.offset)], -1)
        half = half_solved(gram.support * roots * roots.mT, border, float(self.ridge), self.offset, roots)
        labels, crossing = half.tensor_split([encode.shape[-1]], dim=-1)
        left = gram.query_block + self.offset - crossing.mT @ crossing
        rest = EpisodeGram(labels.mT @ labels, crossing.mT @ labels, gram.query_norms, gram.dim, left)
        return _WithoutSupport(self, encode), rest, torch.zeros_like(rest.support @ encode.mT)

    def _can_eliminate(self, gram: EpisodeGram) -> bool:
        """Whether points are eliminated one by one without loss; not if the ridge depends on all of them."""
        if isinstance(self.ridge, str) or not isinstance(self.kernel, Linear) or not values_known():
            return False
        trace = torch.linalg.diagonal(gram.support).sum(-1) + gram.query_norms.sum(-1)
        return bool(keeps_digits(trace.detach(), self.ridge).all())

    def _solution(self, kernel: Tensor, roots: Tensor, right: Tensor) -> Dual:
        """B ``(..., n, L)`` and ``c 1^T B``, all but the ridge weighted by the roots ``(..., n, 1)`` of weights."""
        weighting = roots * roots.mT
        weighted = kernel * weighting
        ridge = self._ridge_of(weighted, weighting, right, roots.squeeze(-1).square())
        return Dual(*solve_smoother(weighted, right, ridge, self.offset, roots))

    def _ridge_of(self, kernel: Tensor, weighting: Tensor | float, right: Tensor, weights: Tensor) -> Tensor | float:
        """The ridge, a number or ``(..., 1, 1)``: of ``ridge=loo`` the one that `choose_ridge` finds."""
        if not isinstance(self.ridge, str):
            return self.ridge
        return choose_ridge(kernel, kernel + self.offset * weighting, right, weights)[..., None, None]

    def leave_one_out(self, gram: EpisodeGram, targets: Tensor, *, of_each_class: bool = False) -> Tensor:
        """See `Head.leave_one_out`."""
        self.require_leave_one_out()
        kernel = gram.support_kernel(self.kernel, targets)
        encode, decode = self.codes(targets)
        right = targets @ encode
        ridge = self._ridge_of(kernel, 1.0, right, torch.ones_like(kernel[..., 0]))
        if not isinstance(ridge, Tensor):
            require_above_rounding(kernel, ridge)
        inverse = inverse_smoother(kernel, ridge, self.offset)
        solution = inverse @ right
        if of_each_class:
            error = errors_together(inverse, solution, targets)
        else:
            error = solution / torch.linalg.diagonal(inverse).unsqueeze(-1)
        return (right - error) @ decode

    def solved_system(self, gram: EpisodeGram, targets: Tensor) -> SolvedSystem | None:
        """See `Head.solved_system`; None for a ridge that depends on the queries."""
        if isinstance(self.ridge, str):
            return None
        kernel = gram.support_kernel(self.kernel, targets)
        require_above_rounding(kernel, self.ridge)
        inverse = inverse_smoother(kernel, self.ridge, self.offset)
        return SolvedSystem(inverse, inverse @ (targets @ self._code(targets)))

    def leave_one_out_with_queries(
        self, gram: EpisodeGram, targets: Tensor, *, of_own_class: bool = False, system: SolvedSystem | None = None
    ) -> Iterator[WithQueries]:
        """See `Head.leave_one_out_with_queries`."""
        self.require_leave_one_out()
        cross = gram.cross_kernel(self.kernel, targets)
        own = gram.query_self_kernel(self.kernel).unsqueeze(-1)
        system = system or self.solved_system(gram, targets)
        if system is not None:
            return self._bordered(system, cross, own, targets, of_own_class)
        kernel = gram.support_kernel(self.kernel, targets)
        parts = query_parts(cross.shape[-2], CANDIDATE_RIDGES * targets.numel() + kernel.numel())
        return (self._extended(kernel, cross[..., part, :], own[..., part, :], targets, of_own_class) for part in parts)

    def _code(self, targets: Tensor) -> Tensor:
        """What the label of each class adds to each logit ``(ways, ways)``."""
        encode, decode = self.codes(targets)
        return encode @ decode

    def _bordered(
        self, system: SolvedSystem, cross: Tensor, own: Tensor, targets: Tensor, of_own_class: bool
    ) -> Iterator[WithQueries]:
        inverse, solution = system
        code, labels, ridge = self._code(targets), targets.argmax(-1), float(self.ridge)
        right, step = targets @ code, _only_own_changes(code)
        column = cross + self.offset
        solved = column @ inverse
        # What the support leaves of a query is never less than the ridge, but rounding can take it away.
        left = (own + self.offset + ridge - (column * solved).sum(-1, keepdim=True)).clamp(min=ridge)
        diagonal = torch.linalg.diagonal(inverse).unsqueeze(-2) + solved.square() / left
        weight = (solved / left / diagonal).unsqueeze(-1)
        predicted = column @ solution
        for part in query_parts(cross.shape[-2], targets.numel()):
            mine = weight[..., part, :, :]
            # Less what is the same for each label of the query: mine times its code is to come.
            logits = right.unsqueeze(-3) - solution.unsqueeze(-3) / diagonal[..., part, :].unsqueeze(-1)
            logits -= mine * predicted[..., part, :].unsqueeze(-2)
            if of_own_class:
                points = margins(logits.addcmul_(mine, right.unsqueeze(-3)), labels.unsqueeze(-2))
            elif step is not None:
                points = margins_beside_queries(logits, logits + mine * step, labels)
            else:
                points = _stacked(margins(logits + mine * each, labels.unsqueeze(-2)) for each in code)
            yield WithQueries(points, margins_of_each_class(predicted[..., part, :]))

    def _extended(self, kernel: Tensor, cross: Tensor, own: Tensor, targets: Tensor, of_own_class: bool) -> WithQueries:
        """The same where each query and label may choose another ridge: from one eigendecomposition per query.

        The solution of every ridge is ``base + last y^T`` in the codes y of the query's label, and so its leave-one-out
        error is a quadratic function of them.
        """
        encode, decode = self.codes(targets)
        top = torch.cat([kernel.unsqueeze(-3).expand(*cross.shape, -1), cross.unsqueeze(-1)], -1)
        whole = torch.cat([top, torch.cat([cross, own], -1).unsqueeze(-2)], -2)
        ridges = candidate_ridges(whole, whole + self.offset, torch.ones_like(whole[..., 0]))
        values, vectors = eigh(whole + self.offset)
        inverse = 1 / (values.clamp(min=0).unsqueeze(-2) + ridges.unsqueeze(-1))
        diagonal = inverse @ vectors.square().mT
        known = (targets @ encode).unsqueeze(-3)
        projected = (vectors.mT @ F.pad(known, (0, 0, 0, 1))).unsqueeze(-3)
        base = vectors.unsqueeze(-3) @ (inverse.unsqueeze(-1) * projected) / diagonal.unsqueeze(-1)
        last = (inverse * vectors[..., -1:, :]) @ vectors.mT / diagonal
        fixed, square = base.square().sum((-2, -1)), last.square().sum(-1)
        mixed = (last.unsqueeze(-2) @ base).squeeze(-2)
        errors = fixed.unsqueeze(-1) + 2 * mixed @ encode.mT + square.unsqueeze(-1) * encode.square().sum(-1)
        best = errors.argmin(-2)  # for each label of the query

        def logits(base: Tensor, last: Tensor, codes: Tensor, label: Tensor) -> Tensor:
            """Of points with these codes, beside each the query's label."""
            ridge = best.gather(-1, label).unsqueeze(-2)
            chosen = base.gather(-3, ridge.unsqueeze(-1).expand(*ridge.shape, base.shape[-1])).squeeze(-3)
            return (codes - chosen - last.gather(-2, ridge).mT * encode[label]) @ decode

        def points(label: Tensor) -> Margins:
            return margins(logits(base[..., :-1, :], last[..., :-1], known, label.expand_as(cross)), labels)

        labels, classes = targets.argmax(-1).unsqueeze(-2), torch.arange(best.shape[-1], device=best.device)
        row = base[..., -1:, :].expand(*base.shape[:-2], *encode.shape)
        query = logits(row, last[..., -1:].expand(row.shape[:-1]), encode, classes.expand_as(best))
        return WithQueries(points(labels) if of_own_class else _stacked(map(points, classes)), margins(query, classes))


class _WithoutSupport(Head):
    """A `SmootherHead` for appended points, whose support is eliminated: see `SmootherHead.reduced`.

    In place of the support there are the L columns of Y, of which the points' products are predictions.
    """

    def __init__(self, head: SmootherHead, encode: Tensor) -> None:
        super().__init__()
        self.head, self.columns = head, encode.shape[-1]

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """See `Head.solve`."""
        encode, decode = self.head.codes(targets)
        _, below = kernel.tensor_split([self.columns], dim=-2)
        predicted, among = below.tensor_split([self.columns], dim=-1)
        roots, scaled = weight_roots(targets[..., self.columns :, :])
        system = among * roots * roots.mT + float(self.head.ridge) * _eye(among)
        solution = roots * solve_spd(system, scaled @ encode - roots * predicted)
        alpha = torch.cat([decode.expand(*solution.shape[:-2], *decode.shape), solution @ decode], -2)
        return Dual(alpha, torch.zeros_like(alpha[..., 0, :]))


def errors_together(inverse: Tensor, solution: Tensor, targets: Tensor) -> Tensor:
    """Of each point ``(..., n, L)`` when one of each class leaves: its row of ``(C^-1)_SS^-1 B_S`` of these, S.

    The inverse is ``C^-1``, the solution B; the targets are one-hot ``(..., n, ways)``, every point present once.
    """
    points, leave = one_of_each_class(targets)
    size = inverse.shape[-1]
    found = []
    for part in torch.arange(size, device=points.device).split(max(1, _BLOCKS // points.shape[-1] ** 2)):
        mine, gone = points[..., part, :], leave[..., part, :]
        pairs = mine.unsqueeze(-1) * size + mine.unsqueeze(-2)
        blocks = inverse.flatten(-2).gather(-1, pairs.flatten(-3)).view(pairs.shape)
        blocks = torch.where(gone.unsqueeze(-1) & gone.unsqueeze(-2), blocks, _eye(blocks))
        rows = mine.flatten(-2).unsqueeze(-1).expand(*mine.shape[:-2], -1, solution.shape[-1])
        sides = solution.gather(-2, rows).unflatten(-2, mine.shape[-2:]) * gone.unsqueeze(-1)
        found.append((solve_spd(blocks, sides) * targets[..., part, :].unsqueeze(-1)).sum(-2))
    return torch.cat(found, -2)


def _only_own_changes(code: Tensor) -> Tensor | None:
    """How much more a label changes the logit of its class than those of the others; None if not equally.

    The code says what the label of each class adds to each logit ``(ways, ways)``.
    """
    step = code[0, 0] - code[0, -1]
    return step if torch.equal(code, code[0, -1] + step * _eye(code)) else None


def _stacked(found: Iterable[Margins]) -> Margins:
    """Margins for each class of the query as one, the classes last."""
    own, other = (torch.stack(each, -1) for each in zip(*found, strict=True))
    return Margins(own, other)


def _eye(kernel: Tensor) -> Tensor:
    return torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
