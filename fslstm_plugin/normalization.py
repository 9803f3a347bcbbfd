"""How pixels are normalised before a backbone sees them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each colour channel, for pixels in [0, 1]."""

    mean: tuple[float, float, float]  # Mean of red, green and blue.
    std: tuple[float, float, float]  # Standard deviation of red, green and blue.


IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
