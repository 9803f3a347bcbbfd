"""The linear systems of the heads: kernel matrix plus ridge, and what is positive definite by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import SingularError, UsageError
from ..tracing import values_known

_ON_PROCESSOR = range(33, 257)  # Rows of the matrices of a batch that a GPU decomposes one at a time, each slowly.
_TOGETHER = 2**13  # Smaller matrices that it decomposes together: each takes memory, and cuSOLVER refuses 2**15.


def solve_smoother(
    kernel: Tensor, right: Tensor, ridge: Tensor | float, offset: float = 0.0, roots: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What ``(R (K + c 11^T) R + ridge I) x = right`` gives for predictions ``k(q)^T alpha + bias``.

    ``alpha = R x`` and ``bias = c 1^T alpha``, R the diagonal matrix of the roots. One Cholesky factorisation solves
    it, unless rounding of the kernel matrix reaches the ridge: with fewer features than points, K has a null space,
    in which x is rounding divided by the ridge. There the same predictions come from the primal problem in the
    coordinates that K has, no more than there are features: with ``K = U diag(e) U^T``, ``V = U diag(e)^-1/2`` of the
    eigenvalues above rounding, and ``P = K V``, ``alpha = R V w`` for the w and bias that minimise ``||P w + R 1 bias -
    right||^2 + ridge (w^T V^T P w + bias^2 / c)``.

    Source: the primal form is Williams and Seeger, "Using the Nystroem method to speed up kernel machines", 2001, exact
    here because V spans all of K.

    Args:
        kernel: K with rows and columns weighted by the roots, ``(..., n, n)``.
        right: ``(..., n, L)``.
        ridge: Above 0; a number or ``(..., 1, 1)``.
        offset: The number c; 0 for no bias.
        roots: See `weight_roots`, ``(..., n, 1)``. Default None: all 1.

    Returns:
        alpha ``(..., n, L)`` and bias ``(..., L)``, differentiable. In the primal form alpha has no part in the null
        space, which no prediction would see.

    Raises:
        SingularError: If a matrix is not positive definite even in single precision, for example because it holds NaN.

    Example:
        >>> solve_smoother(torch.ones(2, 2), torch.tensor([[1.0], [3.0]]), ridge=1.0)[0]
        tensor([[-0.3333],
                [ 1.6667]])
    """
    if roots is None:
        roots = torch.ones_like(kernel[..., :1])
    matrix = _system(kernel, ridge, offset, roots)
    factor, inaccurate = _factor(matrix)
    solution = torch.cholesky_solve(right, factor)
    alpha = roots * solution
    bias = offset * alpha.sum(-2)
    if inaccurate is None:
        return alpha, bias
    # The same shapes for all, of which those are taken that need it.
    kernel, right, roots = (
        each.expand(*inaccurate.shape, *each.shape[-2:])[inaccurate] for each in (kernel, right, roots)
    )
    better = _primal(kernel, right, roots, _ridges(ridge, inaccurate, kernel), offset)
    masks = inaccurate[..., None, None], inaccurate[..., None]
    old = alpha, bias.expand(*inaccurate.shape, bias.shape[-1])
    alpha, bias = (each.masked_scatter(*new) for each, *new in zip(old, masks, better, strict=True))
    return alpha, bias


def _primal(kernel: Tensor, right: Tensor, roots: Tensor, ridge: Tensor, offset: float) -> tuple[Tensor, Tensor]:
    """See `solve_smoother`, in primal form."""
    values, vectors = _eigenvalues(kernel.detach())
    kept = values > 0
    rank = int(kept.sum(-1).max())
    values, vectors, kept = (each[..., kernel.shape[-1] - rank :] for each in (values, vectors, kept))
    basis = vectors * torch.where(kept, values, torch.inf).rsqrt().unsqueeze(-2)
    points = kernel @ basis
    penalty = ridge * (basis.mT @ points) + torch.diag_embed((~kept).to(kernel))
    if offset:
        points = torch.cat([points, roots], -1)
        corner = (ridge / offset).expand(*kernel.shape[:-2], 1, 1)
        penalty = F.pad(penalty, (0, 1, 0, 1)) + F.pad(corner, (rank, 0, rank, 0))
    weights = torch.cholesky_solve(points.mT @ right, cholesky(points.mT @ points + penalty))
    alpha = roots * (basis @ weights[..., :rank, :])
    return alpha, weights[..., rank, :] if offset else torch.zeros_like(alpha[..., 0, :])


def half_solved(kernel: Tensor, right: Tensor, ridge: float, offset: float, roots: Tensor) -> Tensor:
    """``L^-1 right`` ``(..., n, L)``, L the Cholesky factor of the system of `solve_smoother`; differentiable.

    What eliminating the system's points leaves of a form between columns of ``right`` is less by the products of
    these.

    Example:
        >>> half_solved(torch.eye(1), torch.tensor([[4.0]]), ridge=3.0, offset=0.0, roots=torch.ones(1, 1))
        tensor([[2.]])
    """
    return torch.linalg.solve_triangular(cholesky(_system(kernel, ridge, offset, roots)), right, upper=False)


def inverse_smoother(kernel: Tensor, ridge: Tensor | float, offset: float = 0.0) -> Tensor:
    """The inverses ``(..., n, n)`` of ``K + c 11^T + ridge I``, accurate also where rounding of K reaches the ridge.

    They are differentiable; for the arguments and errors see `solve_smoother`.

    Example:
        >>> inverse_smoother(torch.ones(2, 2), ridge=1.0)
        tensor([[ 0.6667, -0.3333],
                [-0.3333,  0.6667]])
    """
    matrix = _system(kernel, ridge, offset, torch.ones_like(kernel[..., :1]))
    factor, inaccurate = _factor(matrix)
    if inaccurate is None:
        return torch.cholesky_inverse(factor)
    # A zero on the diagonal of a factor is no failure of those that have another inverse.
    one = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.cholesky_inverse(factor.where(~inaccurate[..., None, None], one))
    better = _spectral_inverse(kernel[inaccurate].detach(), _ridges(ridge, inaccurate, kernel).detach(), offset)
    bad = matrix[inaccurate]
    # Its value is the first term alone, its derivative that of an inverse.
    better = better - better @ (bad - bad.detach()) @ better
    return inverse.masked_scatter(inaccurate[..., None, None], better)


def require_above_rounding(kernel: Tensor, ridge: float) -> None:
    """Refuse to leave out points where the kernel is so small beside the ridge that rounding would decide.

    What a point left out is predicted is found by leaving out its share, of the kernel over the ridge, of a label.

    Raises:
        UsageError: If that share has not half the digits of its precision.

    Example:
        >>> require_above_rounding(1e-12 * torch.eye(2), ridge=0.1)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: The features are so small that beside a ridge of 0.1 nothing is left of them...
    """
    greatest = torch.linalg.diagonal(kernel).amax() if kernel.numel() else kernel.new_zeros(())
    if 0 < greatest < torch.finfo(kernel.dtype).eps ** 0.5 * ridge:
        raise UsageError(
            f"The features are so small that beside a ridge of {ridge:g} nothing is left of them but rounding: scale "
            "them up, or to unit length, as normalize does."
        )


def _spectral_inverse(kernel: Tensor, ridge: Tensor, offset: float) -> Tensor:
    """The inverse with the null space of K exact, and ``c 11^T`` added to it as a change of rank one."""
    values, vectors = _eigenvalues(kernel)
    inverse = (vectors / (values.unsqueeze(-2) + ridge)) @ vectors.mT
    sums = inverse.sum(-1, keepdim=True)
    return inverse - offset * sums @ sums.mT / (1 + offset * sums.sum(-2, keepdim=True))


def _system(kernel: Tensor, ridge: Tensor | float, offset: float, roots: Tensor) -> Tensor:
    matrix = torch.addcmul(kernel, roots, roots.mT, value=offset)
    torch.linalg.diagonal(matrix).add_(ridge.squeeze(-1) if isinstance(ridge, Tensor) else ridge)
    return matrix


def _ridges(ridge: Tensor | float, wanted: Tensor, like: Tensor) -> Tensor:
    """The ridges ``(b, 1, 1)`` of the systems ``(...)`` that are wanted."""
    return torch.as_tensor(ridge, dtype=like.dtype, device=like.device).expand(*wanted.shape, 1, 1)[wanted]


def _factor(matrix: Tensor) -> tuple[Tensor, Tensor | None]:
    """The Cholesky factors, and which of them ``(...)`` rounding makes too inaccurate to use; None if none.

    In single precision, on Apple's GPUs, nothing better is there, and matrices without a factor are raised by their
    rounding, see `cholesky`.
    """
    if not values_known():
        return torch.linalg.cholesky_ex(matrix)[0], None
    if matrix.dtype != torch.float64:
        return cholesky(matrix), None
    factor, failed = torch.linalg.cholesky_ex(matrix)
    # The squared diagonal of a factor holds what the points before leave of each.
    inaccurate = (failed != 0) | ~keeps_digits(
        torch.linalg.diagonal(matrix.detach()).sum(-1), torch.linalg.diagonal(factor.detach()).amin(-1).square()
    )
    return factor, inaccurate if inaccurate.any() else None


def keeps_digits(trace: Tensor, least: Tensor | float) -> Tensor:
    """Whether solutions of positive definite systems ``(...)`` have half the digits of their precision at least.

    Rounding of their matrices, which have this trace, is divided by the least that a point has left when others are
    accounted for.
    """
    precision = torch.finfo(trace.dtype).eps
    return precision * trace < precision**0.5 * least


def _eigenvalues(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``(b, n)``, ascending, with those that are rounding as 0, and eigenvectors of ``(b, n, n)``.

    A `SingularError` if one is NaN, or so far below 0 that it cannot be rounding.
    """
    if not kernel.isfinite().all():
        raise _singular()
    values, vectors = eigh(kernel)
    # Rounding of products in single precision, of which some kernels are made, shows below 0 as much as above.
    below = -2 * values[..., :1]
    least = torch.maximum(kernel.shape[-1] * torch.finfo(kernel.dtype).eps * values[..., -1:], below)
    if (below[..., 0] > 2 * torch.finfo(torch.float32).eps * torch.linalg.diagonal(kernel).sum(-1)).any():
        raise _singular()
    return torch.where(values > least, values, 0), vectors


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``(..., n)``, ascending, and eigenvectors ``(..., n, n)`` of symmetric matrices; differentiable.

    A GPU decomposes those of a batch with more than 32 rows one at a time and, as long as they are small, takes longer
    for each than a processor: these go there and back. Of smaller ones it takes many together, but not all.

    Example:
        >>> eigh(torch.diag(torch.tensor([3.0, 1.0])))[0]
        tensor([1., 3.])
    """
    if matrix.device.type != "cuda" or matrix.ndim == 2:
        return _decomposed(matrix)
    each = matrix.flatten(0, -3)
    if matrix.shape[-1] in _ON_PROCESSOR and values_known():
        found = _on_processor(each.cpu())
    else:
        found = [_decomposed(part) for part in each.split(_TOGETHER)]
    values, vectors = (torch.cat(parts).to(matrix.device) for parts in zip(*found, strict=True))
    return values.view(matrix.shape[:-1]), vectors.view(matrix.shape)


def _on_processor(matrices: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of a part of the matrices ``(b, n, n)`` for each thread."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = list(pool.map(_decomposed, matrices.chunk(threads)))
    torch.set_num_threads(threads)  # The matrix library has one number for all threads.
    return found


def _decomposed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError as error:  # of what is not finite
        raise _singular() from error
    return values, vectors


def solve_spd(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution ``(..., n, r)`` of ``matrix x = right`` for positive definite matrices, by `cholesky`.

    Leading dimensions broadcast. It is differentiable: autograd's rule for it is the implicit function theorem.

    Example:
        >>> solve_spd(torch.eye(2) * 4, torch.ones(2, 1)).squeeze(-1)
        tensor([0.2500, 0.2500])
    """
    return torch.cholesky_solve(right, cholesky(matrix))


def cholesky(matrix: Tensor) -> Tensor:
    """The lower Cholesky factors of matrices ``(..., n, n)``, positive definite but for rounding in their precision.

    Matrices without a factor, and only those, have their diagonal raised by that rounding: the precision times the
    trace (where values can be read, see `values_known`; elsewhere a failure gives NaN).

    Raises:
        SingularError: If a matrix has no factor even so.

    Example:
        >>> cholesky(torch.ones(2, 2))
        tensor([[1.0000e+00, 0.0000e+00],
                [1.0000e+00, 6.9053e-04]])
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if values_known() and failed.any():
        diagonal = torch.linalg.diagonal(matrix.detach())
        rounding = torch.finfo(matrix.dtype).eps * diagonal.sum(-1, keepdim=True) * (failed != 0).unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(matrix + torch.diag_embed(rounding.expand(diagonal.shape)))
        if failed.any():
            raise _singular()
    return factor


def _singular() -> SingularError:
    return SingularError(
        "A kernel matrix is not positive definite: check the features for NaN, scale them down, or raise the ridge."
    )
