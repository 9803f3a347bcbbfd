"""Features less a mean."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import one_of
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..gram import small_matrix_dtype
from .base import FeatureAdapter

_ROUNDINGS = 4  # By which a mean of equal points may differ from them, in units of its own rounding.


class Center(FeatureAdapter):
    """Subtract a mean feature from every point; what is left of one by rounding alone is zero.

    Source: the base classes' mean, Wang et al., "SimpleShot: revisiting nearest-neighbor classification for few-shot
    learning", 2019; the episode's, as in PT-MAP, protoLP and iLPC.

    Args:
        mean: ``"base"`` (default), the mean over the images of the base classes, which a run knows; or ``"episode"``,
            the mean of the episode's support and queries, which makes the method transductive.

    Raises:
        UnknownNameError: If there is no such mean.

    Example:
        >>> features = EpisodeFeatures(torch.eye(2), torch.eye(2), torch.tensor([0, 1]))
        >>> Center("episode").adapt(features).query
        tensor([[ 0.5000, -0.5000],
                [-0.5000,  0.5000]])
    """

    def __init__(self, mean: str = "base") -> None:
        super().__init__()
        self.mean = one_of("mean to center by", mean, ("base", "episode"))
        self.is_transductive, self.needs_base_mean = mean == "episode", mean == "base"

    def adapt(self, features: EpisodeFeatures) -> EpisodeFeatures:
        """See `FeatureAdapter.adapt`.

        Raises:
            UsageError: If the base classes' mean is needed and unknown.
        """
        if self.mean == "episode":
            return features.derived(lambda points: _less(points, points.mean(-2, keepdim=True)))
        mean = features.base_mean
        if mean is None:
            raise UsageError(
                "center=base needs the mean feature of the base classes, which these features come without, as all do "
                "behind bpa: pass base_mean, or use center=episode."
            )
        mean = mean if mean.ndim == 1 else mean.to(small_matrix_dtype(mean.device)).mean(0)
        return features.derived(lambda points: _less(points, mean.to(points)))


def _less(points: Tensor, mean: Tensor) -> Tensor:
    """Points less a mean; one that differs from it by rounding alone becomes zero, which no unit vector is made of."""
    centred = points - mean
    left, whole = (torch.linalg.vector_norm(each.detach(), dim=-1, keepdim=True) for each in (centred, mean))
    return torch.where(left > _ROUNDINGS * torch.finfo(points.dtype).eps * whole, centred, 0)
