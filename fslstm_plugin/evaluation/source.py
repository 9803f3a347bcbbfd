"""Where the features of episodes come from: from those of a whole split, or from the episode's images each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..backbones.episode_statistics import episode_statistics
from ..backbones.views import Mirrored
from ..data.base import Split
from ..data.images import make_images
from ..methods.base import Method
from ..model import Embedding
from .devices import sent


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of episodes come from."""

    points: Callable[[Tensor], Tensor]  # From image indices ``(batch, N)`` to features ``(batch, N, d)``.
    map_shape: tuple[int, int, int] | None = None  # Shape of the maps that the features are made of, if they are.
    base_mean: Tensor | None = None  # Mean feature ``(d,)`` of the base classes, for methods that need it.
    reentrant: bool = True  # Whether it may be called from several threads.
    bfloat16: bool = False  # Whether images go through networks in bfloat16, those of methods too.

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


def from_images(
    embedding: Embedding | Mirrored,
    split: Split,
    device: torch.device | str,
    base_mean: Tensor | None = None,
    bfloat16: bool = False,
) -> FeatureSource:
    """Features with the batch statistics of the episode's own images ("+BN"), or the images themselves.

    The embedding is on the device. One episode after the other: on a CPU several at once, by grouped batch
    normalisation or `torch.func.vmap`, take longer, since their maps no longer fit into its cache.
    """
    device = torch.device(device)

    def embedded(episode: Tensor) -> Tensor:
        images = sent(split.images[episode], device)
        numbers = torch.arange(len(images), device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            return embedding(make_images(images, numbers, embedding.normalization)).float()

    def points(indices: Tensor) -> Tensor:
        with episode_statistics(embedding):
            return torch.stack([embedded(episode) for episode in indices.cpu()])

    # The backbone keeps an episode's statistics while it is in it.
    return FeatureSource(points, embedding.map_shape, base_mean, reentrant=False, bfloat16=bfloat16)
