"""The support vector machine of several classes (the paper's SVM)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require
from ..gram import EpisodeGram
from ..kernels import Kernel
from .base import POWERS_OF_TEN, Dual, Head, weight_roots
from .crammer_singer import solve_crammer_singer


class SVMClassifier(Head):
    """Crammer-Singer SVM: alpha minimises ``1/2 tr(A^T (K + I) A) - <Y, A>``, A <= C Y, rows summing to 0.

    Source: the paper's section on base learners (SVM), after Lee et al., "Meta-learning with
    differentiable convex optimization", 2019. `solve_crammer_singer` solves all episodes of a batch together.

    For the other arguments see `Head`.

    Args:
        C: Upper bound of a coefficient, above 0; default 0.1.
        tolerance: Relative duality gap to reach, above 0; default 1e-6.
        max_iterations: Limit for each of the solver's methods, at least 1; default 60.

    Raises:
        UsageError: If an argument is outside its range, or as in `Head`.

    Warns:
        ConvergenceWarning: When predicting, if episodes did not reach the tolerance.

    Example:
        >>> head = SVMClassifier(torch.eye(2), torch.tensor([0, 1]))
        >>> head(torch.tensor([[3.0, 1.0]]))
        tensor([[ 0.2000, -0.2000]])
    """

    search_space: ClassVar = {"C": POWERS_OF_TEN[:5]}
    constant = ("C", "C")

    def __init__(
        self,
        support: Tensor | None = None,
        labels: Tensor | None = None,
        ways: int | None = None,
        *,
        C: float = 0.1,
        kernel: str | Kernel = "linear",
        tolerance: float = 1e-6,
        max_iterations: int = 60,
    ) -> None:
        super().__init__(support, labels, ways, kernel=kernel)
        self.C = require("C", C, above=0)
        self.tolerance = require("tolerance", tolerance, above=0)
        self.max_iterations = require("max_iterations", max_iterations, least=1, whole=True)

    def solve(self, kernel: Tensor, targets: Tensor, start: Dual | None = None) -> Dual:
        """See the class."""
        roots, scaled = weight_roots(targets)
        guess = None
        if start is not None:
            guess = torch.zeros_like(targets)
            known = start.alpha.shape[-2]
            guess[..., :known, :] = start.alpha / roots[..., :known, :].clamp(min=1)
        alpha = roots * solve_crammer_singer(
            kernel * roots * roots.mT,
            scaled,
            self.C,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            start=guess,
        )
        return Dual(alpha, torch.zeros_like(targets[..., 0, :]))

    def learn(self, gram: EpisodeGram, targets: Tensor, start: Dual | None = None) -> Dual:
        """See `Head.learn`."""
        return self.solve(gram.support_kernel(self.kernel, targets), targets, start)
