"""Transductive information maximisation (TIM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..adapters import Normalize
from ..checks import require
from ..errors import UnknownNameError
from ..features import EpisodeFeatures
from .base import Gram, Method
from .shared.batches import in_chunks
from .shared.tim_adm import alternate
from .shared.tim_gd import descend

_STEPS = {"adm": 150, "gd": 1000}  # Of each solver, as published.


class TIM(Method):
    r"""Prototypes that make the queries' predictions confident one by one, and of every class together.

    ``logit_c = -(temperature / 2) ||x - w_c||^2`` for points of unit length; the prototypes w start at the class means
    and minimise ``support_weight CE - marginal_weight H(mean prediction) + conditional_weight (mean H(prediction))``:
    the support's cross entropy, less the mutual information between queries and labels.

    Prior over the classes: pushes towards equal shares, and so fills classes that have few queries or none. Use this
    when the queries are balanced or nearly so; not when they may be of few of the classes, where `AlphaTIM` does less
    harm, or when there is but one query.

    ``solver="adm"`` alternates closed forms on the Gram matrix, with gradients, and is much faster; ``"gd"`` is
    the same loss by Adam on the features, without gradients. Both are published, with like accuracies.

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

    is_transductive = True
    fills_classes_equally = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"temperature": (5.0, 10.0, 15.0, 20.0, 30.0)}

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
        super().__init__([Normalize()])
        if solver not in _STEPS:
            raise UnknownNameError("solver of TIM", str(solver), _STEPS)
        require("temperature", temperature, above=0)
        require("support_weight", support_weight, above=0)
        require("learning_rate", learning_rate, above=0)
        require("marginal_weight", marginal_weight, least=0)
        require("conditional_weight", conditional_weight, least=0)
        self.solver = solver
        self.steps = None if steps is None else require("steps", steps, least=0, whole=True)
        self.temperature, self.learning_rate = temperature, learning_rate
        self.support_weight = support_weight
        self.marginal_weight, self.conditional_weight = marginal_weight, conditional_weight

    @property
    def uses_gram(self) -> Gram:  # type: ignore[override]
        """See `Method`; gd needs the features themselves."""
        return "all" if self.solver == "adm" else "none"

    def logits(self, features: EpisodeFeatures) -> Tensor:
        """See `Method.logits`; in double precision by adm, in the features' (single at least) by gd."""
        features = self.prepare(features)
        steps = _STEPS[self.solver] if self.steps is None else self.steps
        if self.solver == "adm":
            solve = partial(
                alternate,
                steps=steps,
                temperature=self.temperature,
                support_weight=self.support_weight,
                marginal_weight=self.marginal_weight,
                conditional_weight=self.conditional_weight,
            )
            return in_chunks(solve, features.gram.whole, features.targets)
        solve = partial(
            descend,
            slope=self._slope,
            steps=steps,
            learning_rate=self.learning_rate,
            temperature=self.temperature,
            support_weight=self.support_weight,
        )
        return in_chunks(solve, features.points, features.targets, caches=2)

    def _slope(self, p: Tensor, log_p: Tensor) -> Tensor:
        """See `descend`: of Shannon's entropies, less what all classes share, which has no effect."""
        shares = p.mean(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        return self.marginal_weight * shares.log() - self.conditional_weight * log_p
