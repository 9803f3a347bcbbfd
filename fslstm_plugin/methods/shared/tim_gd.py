"""What TIM and alpha-TIM share: weights of the loss, and Adam on the prototypes, with the gradient in closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam  # The class torch.optim.Adam would import PyTorch's compiler first: 2 seconds.

from ...adapters import Normalize
from ...checks import require
from ...features import EpisodeFeatures
from ..base import Method
from .batches import in_chunks
from .prototypes import class_means

Slope = Callable[[Tensor, Tensor], Tensor]

_ADAM: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
    "fused": True,
}


class InformationMethod(Method):
    """A method that minimises a cross entropy and entropies; for the arguments see `TIM`."""

    is_transductive = True

    def __init__(
        self,
        temperature: float,
        support_weight: float,
        marginal_weight: float,
        conditional_weight: float,
        learning_rate: float,
    ) -> None:
        super().__init__([Normalize()])
        self.temperature = require("temperature", temperature, above=0)
        self.support_weight = require("support_weight", support_weight, above=0)
        self.learning_rate = require("learning_rate", learning_rate, above=0)
        self.marginal_weight = require("marginal_weight", marginal_weight, least=0)
        self.conditional_weight = require("conditional_weight", conditional_weight, least=0)

    def descended(self, features: EpisodeFeatures, slope: Slope, steps: int) -> Tensor:
        """The logits ``(..., m, ways)`` after so many steps of Adam on the prototypes, of features of unit length.

        The loss is the support's cross entropy times its weight, and a function of the queries' probabilities. The
        slope is, from these probabilities ``(episodes, ways, m)`` and their logarithms, m times the loss's derivative
        with respect to each. Adam divides each coordinate by the size of its own gradients, so this needs the features
        themselves: the same points turned in space, or their Gram matrix, give another result. Without gradients.
        """
        return in_chunks(partial(self._descend, slope, steps), features.points, features.targets)

    @torch.no_grad()
    def _descend(self, slope: Slope, steps: int, points: Tensor, targets: Tensor) -> Tensor:
        """Of features ``(episodes, n + m, d)``, the support first, and its one-hot labels ``(episodes, n, ways)``."""
        labels, temperature = targets.mT.to(points.dtype), self.temperature
        n, m = labels.shape[-1], points.shape[-2] - labels.shape[-1]
        weights = class_means(targets).to(points) @ points[..., :n, :]
        first, second, count = torch.zeros_like(weights), torch.zeros_like(weights), points.new_zeros(())
        for _ in range(steps):
            log_p = _logits(points, weights, temperature).log_softmax(-2)
            p = log_p.exp()
            support, query = p.split([n, m], -1)
            steep = slope(query, log_p[..., n:])
            of_support = (support - labels) * (temperature * self.support_weight / n)
            of_query = (steep - (query * steep).sum(-2, keepdim=True)) * query * (temperature / max(m, 1))
            force = torch.cat([of_support, of_query], -1)  # The loss's derivative by w.x, of each class and point.
            gradient = torch.baddbmm(weights * -force.sum(-1, keepdim=True), force, points)
            adam([weights], [gradient], [first], [second], [], [count], lr=self.learning_rate, **_ADAM)
        own = points[..., n:, :].square().sum(-1, keepdim=True)
        return _logits(points, weights, temperature)[..., n:].mT - temperature / 2 * own


def _logits(points: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Logits ``(episodes, ways, points)`` less what all classes share, the point's squared norm."""
    return temperature * (weights @ points.mT - weights.square().sum(-1, keepdim=True) / 2)
