"""What ``fslstm eval`` makes of features, and whether a reference agrees: the time of a wrong answer means nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.balance import BALANCED
from ..data.sampler import EpisodeSampler
from ..errors import FSLSTMError
from ..evaluation.runner import FeatureSource, run_methods
from ..features import EpisodeFeatures
from ..heads import one_hot
from ..methods.base import Method

TIE = 1e-4
"""A query is a tie if its two best logits are no further apart than this share of its best and its worst.

Both sides begin with single-precision features, whose rounding moves logits by a few millionths of that.
"""


class Disagreement(FSLSTMError):
    """The two sides of a benchmark do not agree."""


@dataclass(frozen=True)
class Agreement:
    """The agreement of two sides."""

    predictions: int  # How many predictions were compared.
    ties: int  # On how many of them the sides differed, each a tie of the reference's.


def compare(case: str, ours: Tensor, reference: Tensor, tie: float = TIE) -> Agreement:
    """Compare predictions ``(fits, episodes, queries)`` with a reference's logits ``(fits, episodes, queries, ways)``.

    The pseudo labels of one fit make the support of the next, so an episode in which a tie was broken differently is
    compared up to that fit only.

    Raises:
        Disagreement: If a prediction differs and was no tie.

    Example:
        >>> compare("toy", torch.tensor([[[0, 1]]]), torch.tensor([[[[2.0, 1.0], [0.0, 3.0]]]]))
        Agreement(predictions=2, ties=0)
    """
    differ = ours != reference.argmax(-1)
    parted = differ.any(-1)
    together = (parted.cumsum(0) - parted.long() == 0).unsqueeze(-1).expand_as(differ)
    wrong = differ & together & ~near_ties(reference, tie)
    if wrong.any():
        fit, episode, query = (int(index) for index in wrong.nonzero()[0])
        raise Disagreement(
            f"{case}: {int(wrong.sum())} of {int(together.sum())} predictions differ from the reference's, "
            f"the first of episode {episode}, query {query}, fit {fit}; the times mean nothing."
        )
    return Agreement(int(together.sum()), int((differ & together).sum()))


def near_ties(logits: Tensor, tie: float = TIE) -> Tensor:
    """Which queries have two practically equal best logits, bool, without the last dimension."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1] <= tie * (best[..., 0] - logits.amin(-1))


class DrawnEpisodes(EpisodeSampler):
    """Episodes drawn beforehand, so that drawing them is not timed.

    Image indices ``(episodes, ways * (shots + queries))`` are in the order of `labels`, the support first.
    """

    def __init__(self, indices: Tensor, ways: int, shots: int, queries: int) -> None:
        self.indices, self.ways, self.shots, self.queries = indices, ways, shots, queries
        self.balance, self.seed = BALANCED, 0  # All is drawn already: the seed is not used.

    def batch(self, start: int, count: int) -> Tensor:
        """See `EpisodeSampler.batch`."""
        return self.indices[start : start + count]


def predictions(source: FeatureSource, episodes: DrawnEpisodes, methods: Sequence[Method]) -> Tensor:
    """What each method predicts, int64 ``(methods, episodes, queries)``."""
    targets = one_hot(episodes.labels[: episodes.num_support], episodes.ways).expand(len(episodes.indices), -1, -1)
    features = EpisodeFeatures.from_points(source.points(episodes.indices), targets, source.base_mean, source.map_shape)
    with torch.no_grad():
        return torch.stack([method.eval().logits(features).argmax(-1) for method in methods])


def agreed(
    case: str,
    source: FeatureSource,
    episodes: DrawnEpisodes,
    methods: Sequence[Method],
    reference: Tensor,
    tie: float = TIE,
) -> Agreement:
    """Compare predictions with a reference's logits, and the accuracies of a run of the engine with theirs.

    The last of the methods is what is timed, the others are its earlier fits; see `compare`.

    Raises:
        Disagreement: If a prediction differs and was no tie, or an episode without ties has another accuracy.
    """
    predicted = predictions(source, episodes, methods)
    agreement = compare(case, predicted, reference, tie)
    (timed,) = accuracies(source, episodes, methods[-1:], len(episodes.indices))
    right = (predicted[-1] == episodes.labels[episodes.num_support :]).double().mean(-1) * 100
    decided = ~near_ties(reference, tie).any(-1).any(0)
    wrong = decided & ((timed - right).abs() > 1e-6)
    if wrong.any():
        raise Disagreement(
            f"{case}: a run of the engine gave {int(wrong.sum())} of {len(timed)} episodes another accuracy than the "
            "predictions that were compared; the times mean nothing."
        )
    return agreement


def accuracies(source: FeatureSource, episodes: EpisodeSampler, methods: Sequence[Method], count: int) -> Tensor:
    """Percent of the queries correctly predicted ``(methods, count)``, as ``fslstm eval`` computes it."""
    return torch.stack([outcome.accuracies for outcome in run_methods(source, episodes, methods, count)])
