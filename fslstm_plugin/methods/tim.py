"""Transductive information maximisation (TIM)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ..checks import one_of, require
from ..features import EpisodeFeatures
from .base import Gram
from .shared.batches import in_chunks
from .shared.prototypes import class_means
from .shared.tim_gd import InformationMethod

_STEPS = {"adm": 150, "gd": 1000}  # Of each solver, as published.


class TIM(InformationMethod):
    r"""Prototypes that make the queries' predictions confident one by one, and of every class together.

    ``logit_c = -(temperature / 2) ||x - w_c||^2`` for points of unit length; the prototypes w start at the class means
    and minimise ``support_weight CE - marginal_weight H(mean prediction) + conditional_weight (mean H(prediction))``:
    the support's cross entropy, less the mutual information between queries and labels.

    Prior over the classes: pushes towards equal shares, and so fills classes that have few queries or none. Use this
    when the queries are balanced or nearly so; not when they may be of few of the classes, where `AlphaTIM` does less
    harm, or when there is but one query.

    ``solver="adm"`` alternates closed forms on the Gram matrix, with gradients, and is much faster; ``"gd"`` is
    the same loss by Adam on the features, without gradients. Both are published, with like accuracies. Where the
    predictions stay soft, as at a temperature of 5, and at 10 after ``bpa``, adm does not come to rest, and rounding
    alone can change what it predicts.

    Source: Boudiaf et al., "Transductive information maximization for few-shot learning", NeurIPS 2020.

    Args:
        solver: ``"adm"`` (default) or ``"gd"``.
        steps: Number of steps; default None, as published: 150 by adm, 1000 by gd. 0 leaves the class means.
        temperature: Above 0; default 15.
        support_weight: Above 0; default 0.1.
        marginal_weight: At least 0; default 1.
        conditional_weight: At least 0; default 0.1.
        learning_rate: Of gd's Adam, above 0; default 1e-4.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> support, query = torch.eye(2), torch.tensor([[1.0, 0.5], [0.9, 1.0], [0.2, 1.0]])
        >>> features = EpisodeFeatures(support, query, torch.tensor([0, 1]))
        >>> TIM(steps=10).logits(features).softmax(-1).round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.4600, 0.5400],
                [0.0000, 1.0000]], dtype=torch.float64)
    """

    fills_classes_equally = True
    search_space: ClassVar = {"temperature": (5.0, 10.0, 15.0, 20.0, 30.0)}

    def __init__(
        self,
        solver: str = "adm",
        steps: int | None = None,
        temperature: float = 15.0,
        support_weight: float = 0.1,
        marginal_weight: float = 1.0,
        conditional_weight: float = 0.1,
        learning_rate: float = 1e-4,
    ) -> None:
        super().__init__(temperature, support_weight, marginal_weight, conditional_weight, learning_rate)
        self.solver = one_of("solver of TIM", solver, _STEPS)
        self.uses_gram: Gram = "all" if solver == "adm" else "none"  # gd needs the features themselves.
        self.steps = None if steps is None else require("steps", steps, least=0, whole=True)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision by adm, in the features' (single at least) by gd."""
        features = self.prepare(features)
        steps = _STEPS[self.solver] if self.steps is None else self.steps
        if self.solver == "gd":
            return self.descended(features, self._slope, steps)
        return in_chunks(partial(self._alternated, steps), features.gram.whole, features.targets)

    def _alternated(self, steps: int, gram: Tensor, targets: Tensor) -> Tensor:
        """Logits ``(episodes, m, ways)`` by adm, of products ``(episodes, n + m, n + m)`` and one-hot labels.

        Prototypes are mixtures ``W = B X`` of the points, and all that is needed of them are their products with the
        points and with themselves. Both follow from one step to the next by one product with the Gram matrix.
        """
        # Classes before points: softmax and products are several times as fast over long rows.
        labels = targets.mT.to(gram.dtype)
        n, m = labels.shape[-1], gram.shape[-1] - labels.shape[-1]
        exponent, balance = 1 + self.conditional_weight, self.marginal_weight / (self.marginal_weight + 1)
        importance = gram.new_full((n + m,), n / max(m, 1))
        importance[:n] = self.support_weight / exponent

        mean = class_means(targets).to(gram)
        products = mean @ gram[..., :n, :]  # Of each prototype with each point, and with itself.
        norms = (mean * products[..., :n]).sum(-1, keepdim=True)
        for _ in range(steps):
            log_p = (self.temperature * (products - norms / 2)).log_softmax(-2)
            sharp = exponent * log_p[..., n:]
            # Each class's probabilities are divided by a power of their sum, which is what pulls to uniform.
            assigned = (sharp - balance * sharp.logsumexp(-1, keepdim=True)).softmax(-2)
            wanted, found = importance * torch.cat([labels, assigned], -1), importance * log_p.exp()
            move, keep, total = wanted - found, found.sum(-1, keepdim=True), wanted.sum(-1, keepdim=True)
            moved = move @ gram
            # w <- (sum_i move_i x_i + keep w) / total, and what this makes of w.x and w.w.
            change = (move * (moved + 2 * keep * products)).sum(-1, keepdim=True)
            norms = (change + keep.square() * norms) / total.square()
            products = (moved + keep * products) / total
        own = torch.linalg.diagonal(gram).unsqueeze(-2)
        return (self.temperature * (products - norms / 2) - self.temperature / 2 * own)[..., n:].mT

    def _slope(self, p: Tensor, log_p: Tensor) -> Tensor:
        """See `descended`: of Shannon's entropies, less what all classes share, which has no effect."""
        shares = p.mean(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        return self.marginal_weight * shares.log() - self.conditional_weight * log_p
