"""Ridge regression on one-hot labels (the paper's RR)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require
from ..kernels import Kernel
from .base import POWERS_OF_TEN
from .smoother import SmootherHead


class RidgeClassifier(SmootherHead):
    """Ridge regression: ``alpha = 2 (K + ridge I)^-1 Y``, Y the one-hot labels.

    In features: W minimises ``||X W - Y||^2 + ridge ||W||^2``, and the logits are ``2 q.W``.

    Source: the paper's section on base learners (RR), after Bertinetto et al., "Meta-learning with
    differentiable closed-form solvers", 2019; the factor 2 is the published implementation's.

    For the other arguments see `Head`.

    Args:
        ridge: Regularisation in units of a squared feature norm, above 0; default 50.

    Raises:
        UsageError: If the ridge is not above 0, or as in `Head`.

    Example:
        >>> head = RidgeClassifier(torch.eye(2), torch.tensor([0, 1]), ridge=1.0)
        >>> head(torch.tensor([[3.0, 1.0]]))
        tensor([[3., 1.]])
    """

    search_space: ClassVar = {"ridge": POWERS_OF_TEN}
    constant = ("ridge", "λ")

    def __init__(
        self,
        support: Tensor | None = None,
        labels: Tensor | None = None,
        ways: int | None = None,
        *,
        ridge: float = 50.0,
        kernel: str | Kernel = "linear",
    ) -> None:
        super().__init__(support, labels, ways, kernel=kernel)
        self.ridge: float = require("ridge", ridge, above=0)

    def codes(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """See `SmootherHead.codes`."""
        own = torch.eye(targets.shape[-1], dtype=targets.dtype, device=targets.device)
        return own, 2 * own
