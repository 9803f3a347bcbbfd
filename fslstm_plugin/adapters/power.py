"""Elementwise powers of features."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import one_of, require
from ..errors import UsageError
from ..features import EpisodeFeatures
from .base import FeatureAdapter

_OFFSET = 1e-6  # As published; keeps the derivative at 0 finite.


class Power(FeatureAdapter):
    """``(x + 1e-6)^exponent`` of every feature, which makes the skewed features of a ReLU more Gaussian.

    An exponent of 1 leaves features as they are, also those below 0.

    Source: Hu et al., "Leveraging the feature distribution in transfer-based few-shot learning" (PT-MAP), 2021; the
    signed form, Lazarou et al., "Iterative label cleaning" (iLPC), 2021.

    Args:
        exponent: Above 0; default 0.5, the square root.
        negative: How to treat features below 0: ``"refuse"`` (default), or ``"signed"``: the power of the absolute
            value, with the sign put back, the same for features that are not negative.

    Raises:
        UsageError: If an argument is outside its range.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2) * 4, torch.eye(2), torch.tensor([0, 1]))
        >>> Power().adapt(features).support.round(decimals=2)
        tensor([[2., 0.],
                [0., 2.]])
    """

    def __init__(self, exponent: float = 0.5, negative: str = "refuse") -> None:
        super().__init__()
        self.exponent = require("exponent", exponent, above=0)
        self.negative = one_of("way to treat negative features", negative, ("refuse", "signed"))

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`.

        Raises:
            UsageError: If some features are below 0, and these are refused.
        """
        if self.exponent == 1:
            return features.derived(lambda points: points, lambda gram: gram)
        if self.negative == "refuse" and features.points.numel() and features.points.amin() < 0:
            raise UsageError(
                "a power needs features that are not negative, as after a ReLU, but these have negative ones: use "
                "negative=signed, as in power(negative=signed) or pt-map(negative=signed)."
            )
        return features.derived(self._raised)

    def _raised(self, points: Tensor) -> Tensor:
        if self.negative == "signed":
            raised = (points.abs() + _OFFSET) ** self.exponent
            return torch.where(points < 0, -raised, raised)
        return (points + _OFFSET) ** self.exponent
