"""Where the features of episodes come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..methods.base import Method


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of episodes come from.

    Args:
        points: From image indices ``(batch, N)`` to features ``(batch, N, d)``.
        map_shape: Shape of the maps that the features are made of, if they are.
        base_mean: Mean feature ``(d,)`` of the base classes, for methods that need it.
        reentrant: Whether it may be called from several threads.
        bfloat16: Whether images go through networks in bfloat16, those of methods too.
    """

    points: Callable[[Tensor], Tensor]
    map_shape: tuple[int, int, int] | None = None
    base_mean: Tensor | None = None
    reentrant: bool = True
    bfloat16: bool = False

    def precision_of(self, method: Method, device: torch.device) -> torch.autocast:
        """In which a method's logits are computed."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16 and method.follows_autocast)


def indexed(
    features: Tensor, map_shape: tuple[int, int, int] | None = None, base_mean: Tensor | None = None
) -> FeatureSource:
    """Features looked up in those of a whole split ``(N, d)``."""

    def points(indices: Tensor) -> Tensor:
        # Several times as fast as indexing with a matrix.
        return features.index_select(0, indices.flatten()).unflatten(0, indices.shape)

    return FeatureSource(points, map_shape, base_mean)
