"""Nearest prototype (the paper's NN)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..gram import EpisodeGram
from .base import Dual, Head
from .leave_one_out import one_of_each_class


class PrototypeClassifier(Head):
    r"""Nearest class mean: ``logit_c = -||q - p_c||^2 / d``, p_c the mean of the support of class c.

    With a kernel other than the linear one, the means are taken in the kernel's feature space. Use this when only speed
    counts; with several shots `RidgeClassifier` and `LSSVMClassifier` weigh the support points better.

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

    @property
    def lacks_leave_one_out(self) -> str | None:
        """See `Head.lacks_leave_one_out`."""
        return None

    def leave_one_out(self, gram: EpisodeGram, targets: Tensor, *, of_each_class: bool = False) -> Tensor:
        """See `Head.leave_one_out`; from the sums of the classes, less the points left out."""
        return _without_each(gram.support_kernel(self.kernel, targets), targets, of_each_class).logits() / gram.dim

    def leave_one_out_with_queries(self, gram: EpisodeGram, targets: Tensor) -> Iterator[Tensor]:
        """See `Head.leave_one_out_with_queries`; only the sum of the query's class grows."""
        without = _without_each(gram.support_kernel(self.kernel, targets), targets)
        alone, predicted = without.logits() / gram.dim, self.predict(gram, targets).unsqueeze(-2)
        cross, norms = gram.cross_kernel(self.kernel, targets), gram.query_self_kernel(self.kernel)
        with_sums = cross @ targets
        for label in range(targets.shape[-1]):
            counts, inner, squares, own = (values.expand_as(alone)[..., label].unsqueeze(-2) for values in without)
            member = targets[..., label].unsqueeze(-2)
            crossing = with_sums[..., label].unsqueeze(-1) - member * cross
            grown = _Sums(counts + 1, inner + cross, squares + 2 * crossing + norms.unsqueeze(-1), own)
            logits = alone.unsqueeze(-3).repeat_interleave(cross.shape[-2], -3)
            logits[..., label] = grown.logits() / gram.dim
            yield torch.cat([logits, predicted], -2)


class _Sums(NamedTuple):
    """Sums of points, and a point to be compared with their means; all broadcast.

    Args:
        counts: How many points were summed.
        inner: Inner products of the sums with the point.
        squares: Squared norms of the sums.
        own: Squared norm of the point.
    """

    counts: Tensor
    inner: Tensor
    squares: Tensor
    own: Tensor

    def logits(self) -> Tensor:
        """Negative squared distances to the means; minus infinity to that of no points."""
        counts = self.counts.clamp(min=1)
        distances = self.own - 2 * self.inner / counts + self.squares / counts.square()
        return torch.where(self.counts > 0, -distances, -torch.inf)


def _without_each(kernel: Tensor, targets: Tensor, of_each_class: bool = False) -> _Sums:
    """Each point ``(..., n, 1)`` beside the classes' sums ``(..., n, ways)`` without it, or one of each class."""
    points, leave = one_of_each_class(targets)
    gone = leave.to(kernel) if of_each_class else targets
    norms = kernel.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    inner = kernel @ targets
    squares = (targets * inner).sum(-2, keepdim=True)
    lost = 2 * inner.gather(-2, points) - norms.expand_as(inner).gather(-2, points)
    return _Sums(
        targets.sum(-2, keepdim=True) - gone, inner - gone * kernel.gather(-1, points), squares - gone * lost, norms
    )
