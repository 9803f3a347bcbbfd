"""Alpha-TIM: TIM with entropies that force equal shares less."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor

from ..checks import require
from ..features import EpisodeFeatures
from .shared.tim_gd import InformationMethod


class AlphaTIM(InformationMethod):
    r"""`TIM` by Adam, with Tsallis' entropies ``H(p) = (1 - sum_c p_c^alpha) / (alpha - 1)`` in place of Shannon's.

    Prior over the classes: pushes towards equal shares, but weakly, the less the greater alpha is. Use this when the
    queries may be unbalanced and the features have many dimensions; not when they are balanced (`TIM` is better, and by
    adm much faster), or when there is one query: then it is no more than the support's cross entropy.

    Without gradients. Source: Veilleux et al., "Realistic evaluation of transductive few-shot learning", NeurIPS 2021.

    Args:
        alpha: Above 1. Default None, as published: 2 at 1 shot, 5 at 2 to 4, 7 at 5 or more. The shots are the mean
            over the classes, where they are not equal.
        steps: Number of steps, default 1000. 0 leaves the class means.
        temperature: See `TIM`, default 15.
        support_weight: See `TIM`, default 1.
        marginal_weight: See `TIM`, default 1.
        conditional_weight: See `TIM`, default 1.
        learning_rate: Of Adam, above 0; default 1e-4.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> import torch
        >>> support, query = torch.eye(2), torch.tensor([[1.0, 0.5], [0.9, 1.0], [0.2, 1.0]])
        >>> features = EpisodeFeatures(support, query, torch.tensor([0, 1]))
        >>> AlphaTIM(steps=100).logits(features).softmax(-1).round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.2000, 0.8000],
                [0.0000, 1.0000]])
    """

    search_space: ClassVar = {"alpha": (1.5, 2.0, 3.0, 5.0, 7.0)}

    def __init__(
        self,
        alpha: float | None = None,
        steps: int = 1000,
        temperature: float = 15.0,
        support_weight: float = 1.0,
        marginal_weight: float = 1.0,
        conditional_weight: float = 1.0,
        learning_rate: float = 1e-4,
    ) -> None:
        super().__init__(temperature, support_weight, marginal_weight, conditional_weight, learning_rate)
        self.alpha = None if alpha is None else require("alpha", alpha, above=1)
        self.steps = require("steps", steps, least=0, whole=True)

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in the features' precision, single at least."""
        features = self.prepare(features)
        shots = features.num_support / features.ways
        published = 2.0 if shots < 2 else 5.0 if shots < 5 else 7.0
        alpha = published if self.alpha is None else self.alpha
        return self.descended(features, partial(self._slope, alpha), self.steps)

    def _slope(self, alpha: float, p: Tensor, log_p: Tensor) -> Tensor:
        """See `descended`: of Tsallis' entropies."""
        power = alpha - 1
        marginal = self.marginal_weight * p.mean(-1, keepdim=True) ** power
        return (marginal - self.conditional_weight * p**power) * (alpha / power)
