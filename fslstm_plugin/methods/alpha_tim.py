"""Alpha-TIM: TIM with entropies that force equal shares less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from ..adapters import Normalize
from ..checks import require
from ..features import EpisodeFeatures
from .base import Method
from .shared.batches import in_chunks
from .shared.tim_gd import descend


class AlphaTIM(Method):
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

    is_transductive = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"alpha": (1.5, 2.0, 3.0, 5.0, 7.0)}

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
        super().__init__([Normalize()])
        if alpha is not None:
            require("alpha", alpha, above=1)
        require("temperature", temperature, above=0)
        require("support_weight", support_weight, above=0)
        require("learning_rate", learning_rate, above=0)
        require("marginal_weight", marginal_weight, least=0)
        require("conditional_weight", conditional_weight, least=0)
        self.alpha = alpha
        self.steps = require("steps", steps, least=0, whole=True)
        self.temperature, self.learning_rate = temperature, learning_rate
        self.support_weight = support_weight
        self.marginal_weight, self.conditional_weight = marginal_weight, conditional_weight

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in the features' precision, single at least."""
        features = self.prepare(features)
        alpha = self._published_alpha(features.num_support / features.ways) if self.alpha is None else self.alpha
        solve = partial(
            descend,
            slope=partial(self._slope, alpha),
            steps=self.steps,
            learning_rate=self.learning_rate,
            temperature=self.temperature,
            support_weight=self.support_weight,
        )
        return in_chunks(solve, features.points, features.targets, caches=2)

    @staticmethod
    def _published_alpha(shots: float) -> float:
        return 2.0 if shots < 2 else 5.0 if shots < 5 else 7.0

    def _slope(self, alpha: float, p: Tensor, log_p: Tensor) -> Tensor:
        """See `descend`: of Tsallis' entropies."""
        power = alpha - 1
        marginal = self.marginal_weight * p.mean(-1, keepdim=True) ** power
        return (marginal - self.conditional_weight * p**power) * (alpha / power)
