"""The two ways in which the published methods prepare features: CL2N, and a power with unit length."""

from __future__ import annotations

from ...adapters import Center, FeatureAdapter, Normalize, Power
from ...adapters.power import NegativeFeaturesError
from ...errors import UsageError
from ...features import EpisodeFeatures
from ..base import Method


def cl2n(center: str | None) -> list[FeatureAdapter]:
    """Features less a mean, then of unit length (SimpleShot's CL2N).

    Args:
        center: Which mean, see `Center`; None for none.
    """
    return [Normalize()] if center is None else [Center(center), Normalize()]


class PowerMethod(Method):
    """A method on powers of features, brought to unit length.

    Args:
        exponent: See `Power`.
        negative: See `Power`.
    """

    def __init__(self, exponent: float, negative: str) -> None:
        super().__init__([Power(exponent, negative), Normalize()])
        self.exponent, self.negative = exponent, negative

    def prepare(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `Method.prepare`.

        Raises:
            UsageError: If some features are negative, and these are refused.
        """
        try:
            return super().prepare(features)
        except NegativeFeaturesError as error:
            raise UsageError(
                f"{self.family} takes a power of the features, but some are negative, as after a LeakyReLU: use "
                f"{self.family}(negative=signed)."
            ) from error
