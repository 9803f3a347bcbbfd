"""The one linear solve of the heads."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SingularError


def solve_spd(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve ``matrix x = right`` for symmetric positive definite matrices by one Cholesky factorisation.

    Kernel matrix plus ridge is positive definite, unless rounding of single-precision features (of a trace
    many millions of times the ridge, with points given twice) outweighs the ridge. Only such matrices get
    their diagonal raised by that rounding error, single precision times the trace.

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
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if failed.any():
        diagonal = matrix.detach().diagonal(dim1=-2, dim2=-1)
        rounding = torch.finfo(torch.float32).eps * diagonal.sum(-1, keepdim=True) * (failed != 0).unsqueeze(-1)
        factor, failed = torch.linalg.cholesky_ex(matrix + torch.diag_embed(rounding.expand(diagonal.shape)))
        if failed.any():
            raise SingularError(
                f"{int((failed != 0).sum())} of {failed.numel()} kernel matrices are not positive definite; "
                "check the features for NaN, or raise the ridge."
            )
    return torch.cholesky_solve(right, factor)
