"""The Crammer-Singer dual, batched: guess which coefficients are at their bounds, then solve for the others.

The problem of one episode, with ``H = K + I``:

    minimise  1/2 tr(A^T H A) - <Y, A>   subject to   A <= C Y elementwise, each row of A sums to 0.

Source: Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based vector machines",
2001, as Lee et al., "Meta-learning with differentiable convex optimization", 2019, solve it (theirs is the
``+ I``).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UsageError
from .linalg import cholesky

_RELAXATION = 1.6  # Over-relaxation of ADMM; 1.5 to 1.8 is the usual advice.
_FIRST_GUESS = 30  # Iterations of ADMM; an active-set step, which more of them might save, costs as much.
_ACTIVE_SETS = 12  # Steps after which the active-set method counts as cycling.
_NUMBERS = 2**17  # In the systems that a CPU solves together: more fall out of its cache.
_TOGETHER = 32  # A GPU, to which padding matters less than the number of calls, solves so many at least,
_PARTS = 4  # and all in so many parts at most.
_TO_BOUNDARY = 0.995  # Share of the way to the boundary that an interior-point step may go.
_TINY = 1e-300  # Makes 0 / 0 a 0.
_AIM = 1e-5  # Share of the tolerance that the interior-point method aims at.


class ConvergenceWarning(UserWarning):
    """The SVM solver stopped before it reached its tolerance."""


def solve_crammer_singer(
    kernel: Tensor,
    targets: Tensor,
    C: float = 0.1,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 60,
    start: Tensor | None = None,
) -> Tensor:
    """Solve a batch of Crammer-Singer duals.

    Args:
        kernel: Support kernel matrices ``(..., n, n)``, symmetric positive semidefinite; best in
            double precision.
        targets: Labels ``(..., n, ways)`` of the same type: one-hot rows, of any lengths (see `weight_roots`); a
            row of zeros is an absent point, whose row and column of the kernel must be zero.
        C: Upper bound of a coefficient, above 0; default 0.1.
        tolerance: Relative duality gap to reach; default 1e-6.
        max_iterations: Limit for each of the methods; default 60.
        start: Coefficients ``(..., n, ways)`` near the solution, such as those of fewer points with zeros for the
            others; they save time. Default None.

    Returns:
        Coefficients ``(..., n, ways)``, feasible to rounding. The gradient with respect to the kernel is that
        of the solution (implicit function theorem on the coefficients off their bounds), not of the
        iterations.

    Warns:
        ConvergenceWarning: If episodes did not reach the tolerance; it says how many, and their gap.

    Example:
        >>> kernel, targets = torch.zeros(2, 2).double(), torch.eye(2).double()
        >>> solve_crammer_singer(kernel, targets, C=0.1)
        tensor([[ 0.1000, -0.1000],
                [-0.1000,  0.1000]], dtype=torch.float64)
    """
    batch = targets.shape[:-2]
    kernel = kernel.expand(*batch, *kernel.shape[-2:]).flatten(0, -3) if batch else kernel.unsqueeze(0)
    points = targets.shape[-2:]
    start = None if start is None else start.reshape(-1, *points)
    alpha = _Solution.apply(kernel, targets.reshape(-1, *points), start, C, tolerance, max_iterations)
    return alpha.reshape(targets.shape)


def svm_duality_gap(kernel: Tensor, targets: Tensor, alpha: Tensor, C: float = 0.1) -> Tensor:
    """Relative duality gap of feasible coefficients: the objective is no farther than that from its optimum.

    Args:
        kernel: Support kernel matrices ``(..., n, n)``.
        targets: Labels ``(..., n, ways)``, as in `solve_crammer_singer`.
        alpha: Coefficients ``(..., n, ways)`` with ``alpha <= C targets`` and rows that sum to 0.
        C: Upper bound of a coefficient; default 0.1.

    Returns:
        ``(primal - dual) / primal`` objective for each episode, ``(...)``; 0 at the optimum.

    Example:
        >>> kernel, targets = torch.zeros(2, 2).double(), torch.eye(2).double()
        >>> svm_duality_gap(kernel, targets, torch.zeros(2, 2).double()).item()
        1.0
    """
    return _gap(kernel @ alpha + alpha, targets, alpha, C)


def _gap(scores: Tensor, targets: Tensor, alpha: Tensor, C: float) -> Tensor:
    """See `svm_duality_gap`; the scores are ``H A``."""
    quadratic = (alpha * scores).sum((-2, -1)) / 2
    length = targets.sum(-1)
    margins = length * (scores.sub(targets).amax(-1) + length) - (targets * scores).sum(-1)
    primal = quadratic + C * margins.sum(-1)
    dual = (targets * alpha).sum((-2, -1)) - quadratic
    return (primal - dual) / primal


class _Solution(torch.autograd.Function):
    """The solution as a function of the kernel."""

    @staticmethod
    def forward(
        kernel: Tensor,
        targets: Tensor,
        start: Tensor | None,
        C: float,
        tolerance: float,
        max_iterations: int,
    ) -> Tensor:
        alpha, gap = torch.zeros_like(targets), torch.full_like(targets[:, 0, 0], torch.inf)
        free = torch.ones_like(targets, dtype=torch.bool) if start is None else _free_from(start, kernel, targets)
        for method in (_active_set, _admm, _active_set, _interior_point)[start is None :]:
            hard = (~(gap <= tolerance)).nonzero().squeeze(-1)
            if len(hard):
                other, other_gap, free[hard] = method(
                    kernel[hard], targets[hard], C, free[hard], tolerance, max_iterations
                )
                better = other_gap < gap[hard]
                alpha[hard] = torch.where(better.view(-1, 1, 1), other, alpha[hard])
                gap[hard] = torch.where(better, other_gap, gap[hard])
        _warn_unless_converged(gap, tolerance)
        return alpha

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        kernel, targets, _, ctx.C, *_ = inputs
        ctx.save_for_backward(kernel, targets, output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """See `_in_one_batch`."""
        return _in_one_batch(_Solution, info.batch_size, in_dims, inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        """See `_Slope`."""
        return _Slope.apply(*ctx.saved_tensors, grad, ctx.C), None, None, None, None, None


class _Slope(torch.autograd.Function):
    """The gradient of the kernel from that of the solution: a function of its own, so that it can be mapped too."""

    @staticmethod
    def forward(kernel: Tensor, targets: Tensor, alpha: Tensor, grad: Tensor, C: float) -> Tensor:
        """With the active bounds held fixed, ``dA = -S(dK A)``, S the solve on the free coefficients."""
        hessian = _add_identity(kernel, 1.0)
        gradient = hessian @ alpha - targets
        multiplier = gradient.amax(-1, keepdim=True) - gradient
        free = _free(C * targets - alpha, multiplier, _curvature(hessian), targets)
        product = _solve_free(hessian, grad, torch.zeros_like(alpha), free) @ alpha.mT
        return -(product + product.mT) / 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> NoReturn:
        """It has no gradient itself."""
        raise UsageError("The gradient of an SVM cannot be differentiated again: use another head for that.")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """See `_in_one_batch`."""
        return _in_one_batch(_Slope, info.batch_size, in_dims, inputs)


def _in_one_batch(
    function: type[torch.autograd.Function], size: int, dims: Sequence[int | None], inputs: Sequence[Any]
) -> tuple[Tensor, int]:
    """More episodes of the same batch: the solver reads values, which cannot be read under vmap."""
    together = [
        _in_front(each, dim, size).flatten(0, 1) if isinstance(each, Tensor) else each
        for each, dim in zip(inputs, dims, strict=True)
    ]
    return function.apply(*together).unflatten(0, (size, -1)), 0


def _in_front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """A dimension moved to the front, or, where there is none, one of that size put there."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _admm(
    kernel: Tensor, targets: Tensor, C: float, free: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Some iterations of ADMM between ``rows sum to 0`` and ``A <= C Y``.

    Centring the rows commutes with H, so all classes and iterations share one inverse.

    Returns:
        Coefficients ``(b, n, ways)``, their duality gaps ``(b,)``, and a guess which coefficients are free.
    """
    hessian = _add_identity(kernel, 1.0)
    step = _curvature(hessian)
    inverse = _inverse(_add_identity(hessian, step))
    # Classes before points: the product with the inverse is several times as fast so.
    goal = targets.mT.contiguous()
    bound = C * goal
    bounded, scaled_dual = torch.zeros_like(goal), torch.zeros_like(goal)
    for _ in range(min(max_iterations, _FIRST_GUESS)):
        centred = torch.addcmul(goal, step, bounded - scaled_dual) @ inverse
        centred -= centred.mean(-2, keepdim=True)
        relaxed = torch.lerp(bounded, centred, _RELAXATION).add_(scaled_dual)
        bounded = torch.minimum(relaxed, bound)
        scaled_dual = relaxed.sub_(bounded)
    bounded, scaled_dual = bounded.mT, scaled_dual.mT
    alpha = _feasible(bounded, targets, C)
    free = _free(C * targets - bounded, step * scaled_dual, step, targets)
    return alpha, svm_duality_gap(kernel, targets, alpha, C), free


def _active_set(
    kernel: Tensor, targets: Tensor, C: float, free: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve with the other coefficients at their bounds, see which should be free, and repeat.

    Source: Hintermueller, Ito and Kunisch, "The primal-dual active set strategy as a semismooth Newton
    method", 2003. Needs 1 to 6 steps, or cycles. Episodes that have converged leave the batch.
    """
    alpha, gap = torch.zeros_like(targets), torch.full_like(targets[:, 0, 0], torch.inf)
    todo, guess = torch.arange(len(kernel), device=kernel.device), free
    hessian = _add_identity(kernel, 1.0)
    curvature = _curvature(hessian)
    for _ in range(min(max_iterations, _ACTIVE_SETS)):
        solution = _solve_free(hessian, targets, torch.where(free, 0, C * targets), free)
        feasible = _feasible(solution, targets, C)
        reached = _gap(hessian @ feasible, targets, feasible, C)
        alpha[todo], gap[todo] = feasible, reached
        going = (reached > tolerance).nonzero().squeeze(-1)
        if not len(going):
            break
        todo, hessian, curvature, targets, free, solution = (
            tensor[going] for tensor in (todo, hessian, curvature, targets, free, solution)
        )
        gradient = hessian @ solution - targets
        multiplier = gradient.gather(-1, _pivot(free)) - gradient
        free = _free(C * targets - solution, multiplier, curvature, targets)
    return alpha, gap, guess


def _interior_point(
    kernel: Tensor, targets: Tensor, C: float, free: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mehrotra's predictor-corrector method: some 10 to 25 iterations, whatever the spectrum and the guess.

    Keeps distances T = bound - A and multipliers L above 0 and drives ``T L`` to 0. The classes are coupled
    through the row sums only, so a step needs one inverse per class and one more system.
    """
    hessian = _add_identity(kernel, 1.0)
    # An absent point has no interior between its bounds; its coefficients are 0 whatever the bounds.
    bound = C * (targets + (targets.sum(-1, keepdim=True) == 0).to(targets) / targets.shape[-1])
    distance = bound.mean(-1, keepdim=True).expand_as(bound)
    gradient = hessian @ (bound - distance) - targets
    multiplier = gradient.amax(-1, keepdim=True) - gradient
    multiplier = multiplier + multiplier.mean((-2, -1), keepdim=True) + 1
    gap = svm_duality_gap(kernel, targets, bound - distance, C)
    previous = torch.full_like(gap, torch.inf)
    for _ in range(max_iterations):
        # The gap bounds the *square* of the coefficients' error, and halves quickly once it is small: go on
        # to a gap so small that they too are accurate, as long as rounding lets it shrink.
        going = (gap > tolerance) | ((gap > _AIM * tolerance) & (gap < previous / 2))
        if not going.any():
            break
        previous = gap
        inverses = _inverse(hessian.unsqueeze(1) + torch.diag_embed((multiplier / distance).mT))
        # The solve discards a constant in each row, so the row sums' multiplier need not be known.
        gradient = hessian @ (bound - distance) - targets + multiplier
        gradient = gradient - gradient.mean(-1, keepdim=True)
        product = distance * multiplier
        mean = product.mean((-2, -1), keepdim=True)
        # Predictor: aim at T L = 0. Corrector: aim at the mean it would reach, with its second-order term.
        move, turn = _newton(inverses, gradient, distance, multiplier, -product)
        length = _step_length(distance, -move, multiplier, turn)
        ahead = ((distance - length * move) * (multiplier + length * turn)).mean((-2, -1), keepdim=True)
        aim = (ahead / mean) ** 3 * mean - product + move * turn
        move, turn = _newton(inverses, gradient, distance, multiplier, aim)
        length = _TO_BOUNDARY * _step_length(distance, -move, multiplier, turn) * going.view(-1, 1, 1)
        distance, multiplier = distance - length * move, multiplier + length * turn
        gap = torch.where(going, svm_duality_gap(kernel, targets, bound - distance, C), gap)
    # Only rounding makes a gap negative, and one that is far below 0 is no success.
    return bound - distance, gap.abs(), free


def _newton(
    inverses: Tensor, gradient: Tensor, distance: Tensor, multiplier: Tensor, aim: Tensor
) -> tuple[Tensor, Tensor]:
    """The moves of A and L that make the gradient 0 and change ``T L`` by ``aim``, to first order."""
    move = _solve_with_row_sums_zero(inverses, -gradient - aim / distance)
    move = move - move.mean(-1, keepdim=True)  # What rounding leaves of the row sums would add up.
    return move, (aim + multiplier * move) / distance


def _step_length(distance: Tensor, move: Tensor, multiplier: Tensor, turn: Tensor) -> Tensor:
    """The longest step, 1 at most, that keeps both above 0: ``(b, 1, 1)``."""
    shrinking = torch.maximum(-move / distance, -turn / multiplier).amax((-2, -1), keepdim=True)
    return 1 / shrinking.clamp(min=1)


def _solve_free(hessian: Tensor, linear: Tensor, fixed: Tensor, free: Tensor) -> Tensor:
    """Minimise ``1/2 tr(A^T H A) - <linear, A>`` over the free entries of A, rows summing to 0, others fixed.

    One free entry of each row, its pivot, makes up for the others, which are the unknowns.
    """
    pivot = _pivot(free)
    start = fixed.scatter_add(-1, pivot, -fixed.sum(-1, keepdim=True) * free.any(-1, keepdim=True))
    unknown = free.scatter(-1, pivot, False)
    missing = linear - hessian @ start
    missing = missing - missing.gather(-1, pivot)
    change = torch.empty_like(fixed)
    # Episodes with about as many unknowns as each other together, for little padding.
    ascending, order = unknown.sum((-2, -1)).sort()
    counts: list[int] = ascending.tolist()
    on_cpu = order.device.type == "cpu"
    together = _NUMBERS // max(1, counts[-1]) ** 2 if on_cpu else max(_TOGETHER, -(-len(counts) // _PARTS))
    parts = order.split(max(1, together))
    sizes = [counts[place - 1] for place in accumulate(map(len, parts))]
    for part, size in zip(parts, sizes, strict=True):
        change[part] = _solve_unknown(hessian, part, missing[part], unknown[part], pivot[part], size)
    return (start + change).scatter_add(-1, pivot, -change.sum(-1, keepdim=True))


def _solve_unknown(hessian: Tensor, part: Tensor, missing: Tensor, unknown: Tensor, pivot: Tensor, size: int) -> Tensor:
    """Changes of the unknown entries that, with the pivots' against them, make up for what is missing.

    One dense system of the unknowns of all classes; of each episode there are ``size`` at most. The Hessian matrices
    are those of all episodes, of which these are a part.
    """
    batch, points, ways = missing.shape
    unknown = unknown.flatten(1)
    # The i-th unknown of an episode goes to place i, whatever is known to the spare place at the end.
    place = torch.where(unknown, unknown.cumsum(-1) - 1, size)
    entries = torch.arange(points * ways, device=place.device).expand(batch, -1)
    entry = place.new_zeros(batch, size + 1).scatter(-1, place, entries)[:, :size]
    present = (torch.arange(size, device=place.device) < unknown.sum(-1, keepdim=True)).to(missing)
    point = entry // ways
    classes = torch.eye(ways, dtype=missing.dtype, device=missing.device)
    plus, minus = F.embedding(entry % ways, classes), F.embedding(pivot.squeeze(-1).gather(-1, point), classes)
    direction = (plus - minus) * present.unsqueeze(-1)
    first = points * part.unsqueeze(-1)
    rows = hessian.flatten(0, 1).index_select(0, (first + point).flatten()).unflatten(0, point.shape)
    matrix = rows.gather(2, point.unsqueeze(1).expand(-1, size, -1)) * (direction @ direction.mT)
    torch.linalg.diagonal(matrix).add_(1 - present)
    right = missing.flatten(1).gather(1, entry) * present
    change = torch.cholesky_solve(right.unsqueeze(-1), torch.linalg.cholesky_ex(matrix)[0]).squeeze(-1)
    return F.pad(change, (0, 1)).gather(1, place).view(missing.shape)


def _pivot(free: Tensor) -> Tensor:
    """The first free entry of each row, ``(b, n, 1)``."""
    return free.to(torch.uint8).argmax(-1, keepdim=True)


def _free(distance: Tensor, multiplier: Tensor, curvature: Tensor, targets: Tensor) -> Tensor:
    """Of distance to the bound and multiplier one is 0; the curvature makes the two comparable.

    A row that could not sum to 0 for lack of a free entry gets its own class's.
    """
    free = distance * curvature > multiplier
    return free | ((targets > 0) & ~free.any(-1, keepdim=True))


def _free_from(start: Tensor, kernel: Tensor, targets: Tensor) -> Tensor:
    """Which coefficients are free at a solution near ``start``: those that are not 0 there, their own class's, and,
    of points that have none yet, those of classes that violate the margin.
    """
    scores = kernel @ start
    own = (targets * scores).sum(-1, keepdim=True) / targets.sum(-1, keepdim=True).clamp(min=_TINY)
    violating = (scores > own - targets.sum(-1, keepdim=True)) & ~(start != 0).any(-1, keepdim=True)
    return (start != 0) | (targets > 0) | violating


def _solve_with_row_sums_zero(inverses: Tensor, right: Tensor) -> Tensor:
    """Minimise ``1/2 sum_k v_k^T M_k v_k - <right, V>`` over V ``(b, n, ways)`` whose rows sum to 0.

    ``inverses`` holds the ``M_k^-1``, ``(b, ways, n, n)``.
    """
    solution = (inverses @ right.mT.unsqueeze(-1)).squeeze(-1)
    row_multiplier = _inverse(inverses.sum(1)) @ solution.sum(1).unsqueeze(-1)
    return (solution - (inverses @ row_multiplier.unsqueeze(1)).squeeze(-1)).mT


def _feasible(alpha: Tensor, targets: Tensor, C: float) -> Tensor:
    """Feasible coefficients: the other classes' at most 0, scaled down if the own one would exceed its bound."""
    others = torch.where(targets > 0, 0, alpha.clamp(max=0))
    total = -others.sum(-1, keepdim=True)
    bound = C * targets.sum(-1, keepdim=True)
    others = others * torch.where(total > bound, bound / total, 1)
    return torch.where(targets > 0, -others.sum(-1, keepdim=True), others)


def _curvature(hessian: Tensor) -> Tensor:
    """About the middle of the spectrum, ``(b, 1, 1)``: the mean eigenvalue without the points' common mean."""
    return (torch.linalg.diagonal(hessian).mean(-1) - hessian.mean((-2, -1))).view(-1, 1, 1)


def _add_identity(matrix: Tensor, factor: Tensor | float) -> Tensor:
    matrix = matrix.clone()
    torch.linalg.diagonal(matrix).add_(factor.squeeze(-1) if isinstance(factor, Tensor) else factor)
    return matrix


def _inverse(matrix: Tensor) -> Tensor:
    return torch.cholesky_inverse(cholesky(matrix))


def _warn_unless_converged(gap: Tensor, tolerance: float) -> None:
    missed = ~(gap <= tolerance)
    if missed.any():
        warnings.warn(
            f"The SVM solver did not converge in {int(missed.sum())} of {gap.numel()} episodes: their "
            f"relative duality gap is up to {gap[missed].max().item():.1e}, above the tolerance "
            f"{tolerance:.1e}. Raise max_iterations or the tolerance, or scale the features.",
            ConvergenceWarning,
            stacklevel=2,
        )
