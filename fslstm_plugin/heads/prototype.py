"""Nearest prototype (the paper's NN)."""

from __future__ import annotations

from torch import Tensor

from ..gram import EpisodeGram
from .base import Dual, Head


class PrototypeClassifier(Head):
    r"""Nearest class mean: ``logit_c = -||q - p_c||^2 / d``, p_c the mean of the support of class c.

    With a kernel other than the linear one, the means are taken in the kernel's feature space. Use this when
    speed is all; with several shots `RidgeClassifier` and `LSSVMClassifier` weigh the support points better.

    Source: the paper's section on base learners (NN), after Snell et al., "Prototypical networks for few-shot
    learning", 2017; dividing by d is the published implementation's.

    Args:
        support: See `Head`.
        labels: See `Head`.
        ways: See `Head`.
        kernel: See `Head`.

    Example:
        >>> import torch
        >>> head = PrototypeClassifier(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
        >>> head(torch.tensor([[0.0, 2.0]]))
        tensor([[-2., -4.]])
    """

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """Twice the class averages, and the prototypes' squared norms: ``2 q.p - p.p``."""
        average = targets / targets.sum(-2, keepdim=True)
        return Dual(2 * average, -(average * (kernel @ average)).sum(-2))

    def decide(self, gram: EpisodeGram, targets: Tensor, dual: Dual) -> Tensor:
        """See `Head.decide`; completes the squared distance with ``q.q``, and divides by d."""
        own = gram.query_self_kernel(self.kernel).unsqueeze(-1)
        return (super().decide(gram, targets, dual) - own) / gram.dim
