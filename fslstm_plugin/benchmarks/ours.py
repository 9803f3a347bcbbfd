"""What ``fslstm eval`` does with features, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..data.balance import BALANCED
from ..data.sampler import EpisodeSampler
from ..evaluation.runner import FeatureSource, run_methods
from ..features import EpisodeFeatures
from ..methods.base import Method
from .agreement import TIE, Agreement, compare, require_same_accuracies


class DrawnEpisodes(EpisodeSampler):
    """Episodes drawn beforehand, so that drawing them is not timed.

    Args:
        indices: Image indices ``(episodes, ways * (shots + queries))``, support first, in the order of `labels`.
        ways: Classes per episode.
        shots: Support images per class.
        queries: Query images per class.
    """

    def __init__(self, indices: Tensor, ways: int, shots: int, queries: int) -> None:
        self.indices, self.ways, self.shots, self.queries = indices, ways, shots, queries
        self.balance, self.seed = BALANCED, 0  # All is drawn already: the seed is not used.

    def batch(self, start: int, count: int) -> Tensor:
        """See `EpisodeSampler.batch`."""
        return self.indices[start : start + count]


class _Recorder(Method):
    """Another method, whose predictions it keeps."""

    def __init__(self, method: Method) -> None:
        super().__init__(method.adapters)
        self.method = method
        self.is_transductive, self.uses_gram = method.is_transductive, method.uses_gram

    def logits(self, features: EpisodeFeatures) -> Tensor:
        logits = self.method.logits(features)
        self.predicted = logits.argmax(-1)
        return logits


def predictions(source: FeatureSource, episodes: DrawnEpisodes, methods: Sequence[Method]) -> Tensor:
    """What each method predicts in evaluation itself.

    Args:
        source: Features of the whole split.
        episodes: What to predict, in one batch.
        methods: The methods.

    Returns:
        int64 ``(methods, episodes, queries)``.
    """
    count = len(episodes.indices)
    recorders = [_Recorder(method) for method in methods]
    run_methods(source, episodes, recorders, count, batch_episodes=count)
    return torch.stack([recorder.predicted for recorder in recorders])


def agreed(
    case: str,
    source: FeatureSource,
    episodes: DrawnEpisodes,
    methods: Sequence[Method],
    reference: Tensor,
    tie: float = TIE,
) -> Agreement:
    """Compare predictions with a reference's, and the accuracies of a run of the engine with theirs.

    Args:
        case: For error messages.
        source: Features of the whole split.
        episodes: What to predict.
        methods: The last is what is timed, the others its earlier fits.
        reference: Logits ``(methods, episodes, queries, ways)``.
        tie: What is a tie, see `TIE`.

    Raises:
        Disagreement: If a prediction differs and was no tie, or an accuracy is not that of the predictions.
    """
    predicted = predictions(source, episodes, methods)
    agreement = compare(case, predicted, reference, tie)
    (timed,) = accuracies(source, episodes, methods[-1:], len(episodes.indices))
    right = (predicted[-1] == episodes.labels[episodes.num_support :]).double().mean(-1) * 100
    require_same_accuracies(case, timed, right, reference, tie)
    return agreement


def accuracies(source: FeatureSource, episodes: EpisodeSampler, methods: Sequence[Method], count: int) -> Tensor:
    """Percent of the queries correctly predicted ``(methods, count)``, as ``fslstm eval`` computes it."""
    return torch.stack([outcome.accuracies for outcome in run_methods(source, episodes, methods, count)])
