"""Features that depend on an episode as a whole, computed from its images each time."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backbones.episode_statistics import episode_statistics
from ..backbones.views import Mirrored
from ..data.base import Split
from ..data.images import make_images
from ..model import Embedding
from .devices import sent
from .source import FeatureSource


def from_images(
    embedding: Embedding | Mirrored,
    split: Split,
    device: torch.device | str,
    base_mean: Tensor | None = None,
    bfloat16: bool = False,
) -> FeatureSource:
    """Features with the batch statistics of the episode's own images ("+BN"), or the images themselves.

    One episode after the other: on a CPU several at once, by grouped batch normalisation or `torch.func.vmap`, take
    longer, since their maps no longer fit into its cache.

    Args:
        embedding: From images to features, on the device.
        split: Where the images come from.
        device: Where to compute.
        base_mean: Mean feature of the base classes, for methods that need it. Default None.
        bfloat16: Whether the images go through networks in bfloat16. Default False.
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
