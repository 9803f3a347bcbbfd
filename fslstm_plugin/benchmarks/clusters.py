"""Synthetic features: noisy clusters, about as hard as those of a trained backbone."""

from __future__ import annotations

import torch
from torch import Tensor

CLASSES, IMAGES = 20, 600  # As the test split of CIFAR-FS.
_FACTORS = 128
_SEPARATION = 0.35  # Of the class centres, in standard deviations of a factor: three of four queries right at 5 shots.
_NORM = 16.0  # Of a Conv4's features on CIFAR-FS; the heads' ridges are in these units.


def clusters(dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features float32 ``(12000, dim)`` and labels int64 ``(12000,)`` of a split.

    A point is its class's centre and noise in 128 factors, mixed into all dimensions. The factors keep the task as hard
    whatever the dimension, as it is with real features, which vary in far fewer directions than they have numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = _SEPARATION * torch.randn(CLASSES, 1, _FACTORS, generator=generator)
    points = (centres + torch.randn(CLASSES, IMAGES, _FACTORS, generator=generator)).flatten(0, 1)
    mixing = torch.randn(_FACTORS, dim, generator=generator) / dim**0.5
    features = points @ mixing * (_NORM / (_FACTORS * (1 + _SEPARATION**2)) ** 0.5)
    return features, torch.arange(CLASSES).repeat_interleave(IMAGES)
