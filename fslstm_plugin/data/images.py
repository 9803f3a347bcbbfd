"""Images of a split, gathered, augmented and normalised in one batch on the split's device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError
from ..normalization import Normalization
from ..recipes import Augmentation

LUMA = (0.299, 0.587, 0.114)


class Changes(NamedTuple):
    """Random changes of images, drawn beforehand."""

    rows: Tensor  # From which row of the image each row comes, ``(..., H)``.
    columns: Tensor  # From which column each column comes, ``(..., W)``.
    row_inside: Tensor  # Whether that row is one of the image, or padding.
    column_inside: Tensor  # Likewise.
    factors: Tensor | None  # Of brightness, contrast and saturation, ``(..., 3)``; None without jitter.

    def of(self, steps: slice) -> Changes:
        """Those of a part of the first dimension, one image after the other."""
        return Changes(*(None if each is None else each[steps].flatten(0, 1) for each in self))  # type: ignore[arg-type]


def uniform_draws(keys: Sequence[Sequence[int]], images: int) -> Tensor:
    """Six uniform numbers in [0, 1) for each image, float32 ``(images, 6)`` on the CPU.

    The generator of each key, a few non-negative integers such as seed and episode, draws for an equal share of the
    images.

    Raises:
        UsageError: If the keys cannot share the images equally.
    """
    if not keys or images % len(keys):
        raise UsageError(f"{images} images cannot be shared equally by {len(keys)} augmentation keys.")
    share = images // len(keys)
    return torch.from_numpy(
        np.concatenate([np.random.default_rng(list(key)).random((share, 6), np.float32) for key in keys])
    )


def changes(augmentation: Augmentation, draws: Tensor, height: int, width: int) -> Changes:
    """The changes of images of this size in pixels that follow from the numbers ``(..., 6)`` of `uniform_draws`."""
    offsets = (draws[..., :2] * (2 * augmentation.padding + 1)).long()
    rows = torch.arange(height, device=draws.device) + offsets[..., :1] - augmentation.padding
    columns = torch.arange(width, device=draws.device)
    columns = torch.where(draws[..., 2:3] < augmentation.flip, width - 1 - columns, columns)
    columns = columns + offsets[..., 1:] - augmentation.padding
    return Changes(
        rows=rows.clamp(0, height - 1),
        columns=columns.clamp(0, width - 1),
        row_inside=(rows >= 0) & (rows < height),
        column_inside=(columns >= 0) & (columns < width),
        factors=1 + augmentation.jitter * (2 * draws[..., 3:] - 1) if augmentation.jitter else None,
    )


def _crop(store: Tensor, indices: Tensor, changes: Changes) -> Tensor:
    """Gather, crop and flip in one indexing of pixels: float ``(images, H, W, 3)`` in [0, 255]."""
    height, width = store.shape[1:3]
    inside = (changes.row_inside[:, :, None] & changes.column_inside[:, None, :]).unsqueeze(-1)
    first = (indices[:, None] * height + changes.rows) * width
    pixels = first[:, :, None] + changes.columns[:, None, :]
    # Both are several times as fast as indexing with three tensors, and as a product of floats.
    found = store.flatten(0, 2).index_select(0, pixels.flatten()).unflatten(0, pixels.shape)
    return (found * inside).float()


def _jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation by each image's factors; pixels stay in [0, 255]."""
    luma = _constant(LUMA, images.device)
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    images = (images * brightness).clamp_(0, 255)
    mean = (images @ luma).mean((1, 2))[:, None, None, None]
    images = torch.lerp(mean, images, contrast).clamp_(0, 255)
    grey = (images @ luma).unsqueeze(-1)
    return torch.lerp(grey, images, saturation).clamp_(0, 255)


def _normalize(pixels: Tensor, normalization: Normalization) -> Tensor:
    """Pixels ``(images, H, W, 3)`` less the mean, over the standard deviation."""
    width = pixels.shape[2]
    # For a whole row at once: three channels alone are too few for the processor's vector units.
    mean = _constant(normalization.mean, pixels.device, width)
    std = _constant(normalization.std, pixels.device, width)
    return ((pixels.flatten(2) - mean) / std).unflatten(2, (width, 3))


@lru_cache(maxsize=32)
def _constant(values: tuple[float, ...], device: torch.device, width: int = 0) -> Tensor:
    """The values; with a width those of a row of pixels, times 255. Kept, since a GPU would be waited for each time."""
    with torch.inference_mode(False):
        found = torch.tensor(values, device=device)
        return found.mul_(255).repeat(width) if width else found


def make_images(store: Tensor, indices: Tensor, normalization: Normalization, changes: Changes | None = None) -> Tensor:
    """Normalised images, float32 ``(..., 3, H, W)`` in channels-last memory, from a split's pixels.

    All images of the split, uint8 ``(N, H, W, 3)``, and the indices, int64 ``(...)``, are on one device; the random
    changes of each image, if any, are in the order of the indices.

    Example:
        >>> store = torch.full((10, 32, 32, 3), 255, dtype=torch.uint8)
        >>> half = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        >>> images = make_images(store, torch.arange(4), half)
        >>> images.shape, images.unique()
        (torch.Size([4, 3, 32, 32]), tensor([1.]))
    """
    flat = indices.flatten()
    if changes is None:
        pixels = store[flat].float()
    else:
        pixels = _crop(store, flat, changes)
        if changes.factors is not None:
            pixels = _jitter(pixels, changes.factors)
    return _normalize(pixels, normalization).permute(0, 3, 1, 2).unflatten(0, indices.shape)
