"""What ``fslstm eval`` does with features, and what it predicts on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..data.balance import BALANCED
from ..data.sampler import EpisodeSampler
from ..evaluation.engine import Method, run_methods
from ..evaluation.experiment import cached_source
from ..gram import EpisodeGram
from ..heads import Head
from ..transduction import PseudoSupportModule


class DrawnEpisodes(EpisodeSampler):
    """Episodes that were drawn before, so that drawing them is on nobody's clock.

    Args:
        indices: Image indices ``(episodes, ways * (shots + queries))``, support first, in the order of `labels`.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
    """

    def __init__(self, indices: Tensor, ways: int, shots: int, queries: int) -> None:
        self.indices, self.ways, self.shots, self.queries = indices, ways, shots, queries
        self.balance, self.seed = BALANCED, 0  # All is drawn already: the seed is not used.

    def batch(self, start: int, count: int) -> Tensor:
        """See `EpisodeSampler.batch`."""
        return self.indices[start : start + count]


@dataclass(frozen=True)
class _Recorder(Method):
    """A method that keeps what it predicted."""

    predicted: list[Tensor] = field(default_factory=list)

    def logits(self, gram: EpisodeGram, targets: Tensor) -> Tensor:
        logits = super().logits(gram, targets)
        self.predicted.append(logits.argmax(-1))
        return logits


def method(name: str, head: Head, psm_iterations: int = 0) -> Method:
    """The method as the tables have it: the head alone, or with the Pseudo Support Module."""
    if not psm_iterations:
        return Method(name, head)
    return Method(name, head, transduction=PseudoSupportModule(psm_iterations), modules=("psm",))


def predictions(features: Tensor, episodes: DrawnEpisodes, head: Head, psm_iterations: int = 0) -> Tensor:
    """Predicted classes after each fit, from the engine itself.

    Args:
        features: Of the whole split ``(N, d)``.
        episodes: What to predict, in one batch.
        head: The head.
        psm_iterations: Refits of the Pseudo Support Module.

    Returns:
        int64 ``(psm_iterations + 1, episodes, queries)``.
    """
    count = len(episodes.indices)
    recorders = [
        _Recorder("", head, transduction=PseudoSupportModule(iterations)) for iterations in range(psm_iterations + 1)
    ]
    run_methods(cached_source(features), episodes, recorders, count, batch_episodes=count)
    return torch.stack([recorder.predicted[-1] for recorder in recorders])


def accuracies(features: Tensor, episodes: EpisodeSampler, methods: Sequence[Method], count: int) -> Tensor:
    """Percent of the queries predicted rightly ``(methods, count)``, as ``fslstm eval`` computes it."""
    outcomes = run_methods(cached_source(features), episodes, methods, count)
    return torch.stack([outcome.accuracies for outcome in outcomes])


def accuracies_of(predicted: Tensor, episodes: EpisodeSampler) -> Tensor:
    """The same of predictions ``(episodes, queries)``."""
    return (predicted == episodes.labels[episodes.num_support :]).double().mean(-1) * 100
