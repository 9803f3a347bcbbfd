"""Images of a split, gathered, augmented and normalised in one batch on the split's device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError
from ..normalization import Normalization
from ..recipes import Augmentation

LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class _Draw:
    """The random choices for a batch of images, each ``(images,)``; the factors are ``(images, 3)``."""

    top: Tensor
    left: Tensor
    flip: Tensor
    factors: Tensor


def _draw(augmentation: Augmentation, images: int, keys: Sequence[Sequence[int]], device: torch.device) -> _Draw:
    """Choices for ``images`` images, an equal share from the generator of each key."""
    share = images // len(keys)
    uniform = np.concatenate([np.random.default_rng(list(key)).random((share, 6), np.float32) for key in keys])
    draws = torch.from_numpy(uniform).to(device)
    offsets = (draws[:, :2] * (2 * augmentation.padding + 1)).long()
    return _Draw(
        top=offsets[:, 0],
        left=offsets[:, 1],
        flip=draws[:, 2] < augmentation.flip,
        factors=1 + augmentation.jitter * (2 * draws[:, 3:] - 1),
    )


def _crop(store: Tensor, indices: Tensor, draw: _Draw, padding: int) -> Tensor:
    """Gather, crop and flip in one indexing of pixels: float ``(images, H, W, 3)`` in [0, 255]."""
    height, width = store.shape[1:3]
    rows = torch.arange(height, device=store.device) + draw.top[:, None] - padding
    columns = torch.arange(width, device=store.device).expand(len(indices), -1)
    columns = torch.where(draw.flip[:, None], width - 1 - columns, columns) + draw.left[:, None] - padding
    row_inside, column_inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    inside = (row_inside[:, :, None] & column_inside[:, None, :]).unsqueeze(-1)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    pixels = (indices[:, None, None] * height + rows[:, :, None]) * width + columns[:, None, :]
    # Both are several times as fast as indexing with three tensors, and as a product of floats.
    found = store.flatten(0, 2).index_select(0, pixels.flatten()).unflatten(0, pixels.shape)
    return (found * inside).float()


def _jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation by each image's factors; pixels stay in [0, 255]."""
    luma = images.new_tensor(LUMA)
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
    mean = pixels.new_tensor(normalization.mean).mul_(255).repeat(width)
    std = pixels.new_tensor(normalization.std).mul_(255).repeat(width)
    return ((pixels.flatten(2) - mean) / std).unflatten(2, (width, 3))


def make_images(
    store: Tensor,
    indices: Tensor,
    normalization: Normalization,
    augmentation: Augmentation | None = None,
    keys: Sequence[Sequence[int]] = (),
) -> Tensor:
    """Normalised images from a split's pixels.

    Args:
        store: All images of the split, uint8 ``(N, H, W, 3)``.
        indices: Which images, int64 ``(...)`` on the store's device.
        normalization: Mean and standard deviation of each channel.
        augmentation: Random changes of each image; none by default.
        keys: Seeds from which the random changes follow, one (a few non-negative integers) for each equal share of
            the indices, for example one per episode. Needed with ``augmentation``.

    Returns:
        float32 ``(..., 3, H, W)`` in channels-last memory.

    Raises:
        UsageError: If there is augmentation without keys, or the keys cannot share the images equally.

    Example:
        >>> store = torch.full((10, 32, 32, 3), 255, dtype=torch.uint8)
        >>> half = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        >>> images = make_images(store, torch.arange(4), half)
        >>> images.shape, images.unique()
        (torch.Size([4, 3, 32, 32]), tensor([1.]))
    """
    flat = indices.flatten()
    if augmentation is None:
        pixels = store[flat].float()
    else:
        if not keys or len(flat) % len(keys):
            raise UsageError(f"{len(flat)} images cannot be shared equally by {len(keys)} augmentation keys.")
        draw = _draw(augmentation, len(flat), keys, store.device)
        pixels = _crop(store, flat, draw, augmentation.padding)
        if augmentation.jitter:
            pixels = _jitter(pixels, draw.factors)
    return _normalize(pixels, normalization).permute(0, 3, 1, 2).unflatten(0, indices.shape)
