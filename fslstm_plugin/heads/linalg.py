"""The linear solve of the heads, and the inverse where its diagonal is wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SingularError
from ..tracing import values_known


def solve_spd(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve ``matrix x = right`` for symmetric positive definite matrices by one Cholesky factorisation.

    Kernel matrix plus ridge is positive definite, unless rounding of single-precision features (of a trace
    many millions of times the ridge, with points given twice) outweighs the ridge. Only such matrices get
    their diagonal raised by that rounding error, single precision times the trace (where values can be read,
    see `values_known`; products are in double precision elsewhere, and a failure gives NaN).

    Args:
        matrix: ``(..., n, n)``.
        right: ``(..., n, r)``; leading dimensions broadcast.

    Returns:
        ``(..., n, r)``, differentiable (autograd's rule for it is the implicit function theorem).

    Raises:
        SingularError: If a matrix is not positive definite even so, for example because it holds NaN.

    Example:
        >>> solve_spd(torch.eye(2) * 4, torch.ones(2, 1)).squeeze(-1)
        tensor([0.2500, 0.2500])
    """
    return torch.cholesky_solve(right, cholesky(matrix, torch.float32))


def inverse_spd(matrix: Tensor) -> Tensor:
    """The inverses of such matrices ``(..., n, n)``; see `solve_spd`.

    Example:
        >>> inverse_spd(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        tensor([[ 0.6667, -0.3333],
                [-0.3333,  0.6667]])
    """
    return torch.cholesky_inverse(cholesky(matrix, torch.float32))


def cholesky(matrix: Tensor, rounded_to: torch.dtype) -> Tensor:
    """The Cholesky factors of matrices that are positive definite but for rounding.

    Args:
        matrix: ``(..., n, n)``.
        rounded_to: The precision that the entries were rounded to; that of the trace is added to the diagonal of
            matrices that have no factor.

    Returns:
        ``(..., n, n)``, lower triangular.

    Raises:
        SingularError: If a matrix has no factor even so.

    Example:
        >>> cholesky(torch.ones(2, 2), torch.float32)
        tensor([[1.0000e+00, 0.0000e+00],
                [1.0000e+00, 6.9053e-04]])
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if values_known() and failed.any():
        diagonal = matrix.detach().diagonal(dim1=-2, dim2=-1)
        rounding = torch.finfo(rounded_to).eps * diagonal.sum(-1, keepdim=True) * (failed != 0).unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(matrix + torch.diag_embed(rounding.expand(diagonal.shape)))
        if failed.any():
            raise SingularError(
                f"{int((failed != 0).sum())} of {failed.numel()} kernel matrices are not positive definite; "
                "check the features for NaN, scale them down, or raise the ridge."
            )
    return factor
