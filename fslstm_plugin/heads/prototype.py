"""Nearest prototype (the paper's NN)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..gram import EpisodeGram
from ..kernels import Linear
from .base import Dual, Head, SolvedSystem
from .leave_one_out import one_of_each_class
from .margins import Margins, WithQueries, margins, margins_beside_queries, margins_of_each_class, query_parts


class PrototypeClassifier(Head):
    r"""Nearest class mean: ``logit_c = -||q - p_c||^2 / d``, p_c the mean of the support of class c.

    With a kernel other than the linear one, the means are taken in the kernel's feature space. Use this when only speed
    counts; with several shots `RidgeClassifier` and `LSSVMClassifier` weigh the support points better.

    Source: the paper's section on base learners (NN), after Snell et al., "Prototypical networks for few-shot
    learning", 2017; dividing by d is the published implementation's.

    For the arguments see `Head`.

    Example:
        >>> head = PrototypeClassifier(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
        >>> head(torch.tensor([[0.0, 2.0]]))
        tensor([[-2., -4.]])
    """

    is_static = True
    why_no_leave_one_out = None

    def solve(self, kernel: Tensor, targets: Tensor) -> Dual:
        """Twice the class averages, and the prototypes' squared norms: ``2 q.p - p.p``."""
        average = targets / targets.sum(-2, keepdim=True)
        return Dual(2 * average, -(average * (kernel @ average)).sum(-2))

    def decide(self, gram: EpisodeGram, targets: Tensor, dual: Dual) -> Tensor:
        """See `Head.decide`; completes the squared distance with ``q.q``, and divides by d."""
        own = gram.query_self_kernel(self.kernel).unsqueeze(-1)
        return (super().decide(gram, targets, dual) - own) / gram.dim

    def reduced(self, gram: EpisodeGram, targets: Tensor) -> tuple[Head, EpisodeGram, Tensor]:
        """See `Head.reduced`; the means of the classes, each with the weight of its points."""
        if not isinstance(self.kernel, Linear) or targets.shape[-2] <= targets.shape[-1]:
            return super().reduced(gram, targets)
        counts = targets.sum(-2)
        average = targets / counts.unsqueeze(-2)
        means = replace(gram, support=average.mT @ gram.support @ average, cross=gram.cross @ average)
        return self, means, torch.diag_embed(counts)

    def leave_one_out(self, gram: EpisodeGram, targets: Tensor, *, of_each_class: bool = False) -> Tensor:
        """See `Head.leave_one_out`; from the sums of the classes, less the points left out."""
        return _without_each(gram.support_kernel(self.kernel, targets), targets, of_each_class).logits() / gram.dim

    def leave_one_out_with_queries(
        self, gram: EpisodeGram, targets: Tensor, *, of_own_class: bool = False, system: SolvedSystem | None = None
    ) -> Iterator[WithQueries]:
        """See `Head.leave_one_out_with_queries`; only the sum of the query's class grows."""
        without = _without_each(gram.support_kernel(self.kernel, targets), targets)
        absent, predicted = without.logits() / gram.dim, self.predict(gram, targets)
        cross, norms = gram.cross_kernel(self.kernel, targets), gram.query_self_kernel(self.kernel)
        labels = targets.argmax(-1)
        others = margins(absent, labels).other.unsqueeze(-2)
        places = labels[..., None, :, None]

        def wanted(values: Tensor) -> Tensor:
            """Of each class, or of the points' own, ``(..., m or 1, n or 1, ways)``."""
            spread = values.expand(*values.shape[:-2], absent.shape[-2], -1)
            return spread.gather(-1, places.expand(*spread.shape[:-1], 1)) if of_own_class else values

        counts, inner, squares, own = (values.expand_as(absent).unsqueeze(-3) for values in without)
        for part in query_parts(cross.shape[-2], labels.numel() if of_own_class else targets.numel()):
            near, norm = cross[..., part, :].unsqueeze(-1), norms[..., part, None, None]
            crossing = wanted((cross[..., part, :] @ targets).unsqueeze(-2)) - wanted(targets.unsqueeze(-3)) * near
            grown = _Sums(wanted(counts) + 1, wanted(inner) + near, wanted(squares) + 2 * crossing + norm, wanted(own))
            present = grown.logits() / gram.dim
            if of_own_class:
                points = Margins(present.squeeze(-1), others.expand_as(present[..., 0]))
            else:
                points = margins_beside_queries(absent.unsqueeze(-3), present, labels)
            yield WithQueries(points, margins_of_each_class(predicted[..., part, :]))


class _Sums(NamedTuple):
    """Sums of points, and a point to be compared with their means; all broadcast."""

    counts: Tensor  # How many points were summed.
    inner: Tensor  # Inner products of the sums with the point.
    squares: Tensor  # Squared norms of the sums.
    own: Tensor  # Squared norm of the point.

    def logits(self) -> Tensor:
        """Negative squared distances to the means; minus infinity to that of no points."""
        counts = self.counts.clamp(min=1)
        distances = self.own - 2 * self.inner / counts + self.squares / counts.square()
        return torch.where(self.counts > 0, -distances, -torch.inf)


def _without_each(kernel: Tensor, targets: Tensor, of_each_class: bool = False) -> _Sums:
    """Each point ``(..., n, 1)`` beside the classes' sums ``(..., n, ways)`` without it, or one of each class."""
    norms = torch.linalg.diagonal(kernel).unsqueeze(-1)
    inner = kernel @ targets
    squares = (targets * inner).sum(-2, keepdim=True)
    if of_each_class:
        points, leave = one_of_each_class(targets)
        gone, crossing = leave.to(kernel), kernel.gather(-1, points)
        lost = 2 * inner.gather(-2, points) - norms.expand_as(inner).gather(-2, points)
    else:
        gone, crossing, lost = targets, norms, 2 * inner - norms
    return _Sums(targets.sum(-2, keepdim=True) - gone, inner - gone * crossing, squares - gone * lost, norms)
