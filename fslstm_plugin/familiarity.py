"""How near a query is to any class at all, to notice the queries that are of none."""

from __future__ import annotations

from torch import Tensor

from .features import EpisodeFeatures
from .heads import PrototypeClassifier


def familiarity(features: EpisodeFeatures) -> Tensor:
    """Minus the squared distance to the nearest class mean, among features of unit length, per feature.

    Of the scores that ``fslstm eval --open-ways`` compares, the one that tells unknown classes apart best: the length
    of a feature says more of the picture than of its class, and probabilities compare classes with each other only.
    What is usual follows from the labelled points, each compared with the means of the others:
    ``PrototypeClassifier(kernel="cosine").leave_one_out``.

    Args:
        features: A batch of episodes; as the adapters left them, where there are some.

    Returns:
        ``(..., m)``, at most 0; the smaller, the less it is like any class.

    Example:
        >>> import torch
        >>> support, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> familiarity(EpisodeFeatures(support, torch.tensor([[1.0, 1.0], [-1.0, 0.0]]), labels))
        tensor([-0.2929, -1.0000], dtype=torch.float64)
    """
    return PrototypeClassifier(kernel="cosine").predict(features.support_gram, features.targets).amax(-1)
