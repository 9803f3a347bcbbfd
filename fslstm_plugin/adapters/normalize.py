"""Features of unit length."""

from __future__ import annotations

import torch.nn.functional as F

from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from .base import FeatureAdapter


class Normalize(FeatureAdapter):
    """Bring every point to unit length; a zero vector stays zero.

    Example:
        >>> import torch
        >>> features = EpisodeFeatures(torch.eye(2) * 3, torch.ones(1, 2), torch.tensor([0, 1]))
        >>> Normalize().adapt(features).gram.cross
        tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """

    is_static = True

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`."""
        return features.derived(lambda points: F.normalize(points, dim=-1), EpisodeGram.normalized)
