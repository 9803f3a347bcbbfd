"""LaplacianShot: neighbouring queries agree."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..checks import require, require_bool
from ..features import EpisodeFeatures
from .base import Gram, Method
from .bd_cspn import rectified_prototypes
from .shared.prototypes import cl2n, class_means, squared_distances


class LaplacianShot(Method):
    r"""Queries near a prototype, and of one class with the queries nearest to them.

    With squared distances a to the prototypes of `BDCSPN` (queries shifted), and V_jl = 1 if query l is among the
    nearest of query j, iterate ``y = softmax(-a + weight V y)`` from ``softmax(-a)``: a bound optimisation of
    ``sum y ln y + a y - weight y V y``. The logits are ln y, so their softmax is y.

    No prior over the classes of the queries; an absent class gets little mass. Each episode stops by its own energy.

    Use this at 1 shot where queries come in numbers, balanced or not; not with a few queries, whose neighbours are of
    other classes, nor with several shots where the queries may be very unbalanced.

    Source: Ziko et al., "Laplacian regularized few-shot learning", ICML 2020.

    Args:
        weight: Of the neighbours (lambda), 0 or more. Default 1; published values are 0.7 for 1 shot and 0.1 to 0.3 for
            more where queries are balanced, 0.7 to 1 where not.
        neighbours: Size of a neighbourhood, the query itself counted, as published: default 3, so 2 others. All there
            are where there are fewer.
        rectify: Whether prototypes and shift are `BDCSPN`'s (default, as in the published runs), or else class means.
        temperature: Of the rectification, see `BDCSPN`; default 10.
        iterations: The most iterations; default 20.
        tolerance: Relative change of the energy at which an episode stops, but not before the third iteration; default
            1e-6.
        center: See `SimpleShot`; default ``"base"``.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        >>> LaplacianShot(weight=0.7, center=None).logits(features).argmax(-1)
        tensor([1, 0])
    """

    is_transductive = True
    uses_gram: Gram = "all"
    search_space: ClassVar = {"weight": (0.1, 0.3, 0.5, 0.7, 0.8, 1.0, 1.2, 1.5)}

    def __init__(
        self,
        weight: float = 1.0,
        neighbours: int = 3,
        rectify: bool = True,
        temperature: float = 10.0,
        iterations: int = 20,
        tolerance: float = 1e-6,
        center: str | None = "base",
    ) -> None:
        super().__init__(cl2n(center))
        self.weight = require("weight", weight, least=0)
        self.temperature = require("temperature", temperature, above=0)
        self.tolerance = require("tolerance", tolerance, above=0)
        self.neighbours = require("neighbours", neighbours, least=1, whole=True)
        self.iterations = require("iterations", iterations, least=0, whole=True)
        self.rectify, self.center = require_bool("rectify", rectify), center

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision."""
        gram, num_support = self.prepare(features).gram.whole, features.num_support
        mix = class_means(features.targets, gram.shape[-1] - num_support)
        if self.rectify:
            mix, shift = rectified_prototypes(gram, features.targets, self.temperature)
            mix = mix - shift  # A query moved onto a prototype is where it was, from a prototype moved back.
        unary = squared_distances(gram, mix)[..., num_support:]
        near = nearest_others(gram[..., num_support:, num_support:], self.neighbours - 1)
        return self._smoothed(unary, near).mT

    def _smoothed(self, unary: Tensor, near: Tensor) -> Tensor:
        """Log-probabilities ``(..., ways, m)``."""
        logs = (-unary).log_softmax(-2)
        pull = self.weight * _gathered(logs.exp(), near)
        energy = torch.full_like(logs[..., :1, :1], torch.inf)
        running = torch.ones_like(energy, dtype=torch.bool)
        for iteration in range(self.iterations):
            logs = torch.where(running, (pull - unary).log_softmax(-2), logs)
            probabilities = logs.exp()
            pull = self.weight * _gathered(probabilities, near)
            before, energy = energy, (probabilities * (logs + unary - pull)).sum((-2, -1), keepdim=True)
            if iteration > 1:  # An episode that stopped does not change, so neither does its energy.
                running = (energy - before).abs() > self.tolerance * before.abs()
                if not running.any():
                    break
        return logs


def nearest_others(gram: Tensor, count: int) -> Tensor:
    """Indices ``(..., m, count)``, int64, of the other points nearest to each, nearest first, and first of equals.

    The inner products are ``(..., m, m)``; there are fewer than the count where there are fewer others.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> nearest_others(points @ points.mT, 1).squeeze(-1)
        tensor([1, 0, 1])
    """
    norms = torch.linalg.diagonal(gram.detach())
    remoteness = norms.unsqueeze(-2) - 2 * gram.detach()  # The squared distance but for the point's own norm.
    torch.linalg.diagonal(remoteness).fill_(torch.inf)
    found = torch.empty(*gram.shape[:-1], 0, dtype=torch.int64, device=gram.device)
    for _ in range(min(count, gram.shape[-1] - 1)):
        nearest = remoteness.argmin(-1, keepdim=True)
        found = torch.cat([found, nearest], -1)
        remoteness = remoteness.scatter(-1, nearest, torch.inf)
    return found


def _gathered(probabilities: Tensor, near: Tensor) -> Tensor:
    """Sums ``(..., ways, m)`` of the probabilities ``(..., ways, m)`` of the queries near each."""
    places = near.flatten(-2).unsqueeze(-2).expand(*probabilities.shape[:-1], -1)
    return probabilities.gather(-1, places).unflatten(-1, near.shape[-2:]).sum(-1)
