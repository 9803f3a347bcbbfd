"""Features of unit length."""

from __future__ import annotations

from ..features import EpisodeFeatures
from ..gram import EpisodeGram
from ..kernels import of_unit_length
from .base import FeatureAdapter


class Normalize(FeatureAdapter):
    """Bring every point to unit length; a zero vector stays zero, and has the derivative 0.

    Example:
        >>> import torch
        >>> features = EpisodeFeatures(torch.eye(2) * 3, torch.ones(1, 2), torch.tensor([0, 1]))
        >>> Normalize().adapt(features).gram.cross
        tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """

    is_static = True

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`."""
        return features.derived(of_unit_length, EpisodeGram.normalized)
