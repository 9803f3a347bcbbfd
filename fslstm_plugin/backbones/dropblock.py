"""DropBlock: dropout of whole squares of a feature map."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def drop_block(features: Tensor, rate: float | Tensor, block_size: int) -> Tensor:
    """Zero random squares of each channel and rescale the rest to keep the mean.

    Args:
        features: Feature maps ``(batch, channels, h, w)``.
        rate: Share of the units to drop, in [0, 1); a scalar tensor avoids a synchronisation on a GPU.
        block_size: Side of a square in units; clamped to the feature map.

    Returns:
        A tensor of the same shape.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> dropped = drop_block(torch.ones(8, 16, 10, 10), rate=0.1, block_size=5)
        >>> bool((dropped == 0).any()), round(dropped.mean().item(), 3)
        (True, 1.0)

    Source: Ghiasi et al. 2018, equation 1; the rescaling is over the whole batch, as in the published ResNet12.
    """
    height, width = features.shape[-2:]
    block = min(block_size, height, width)
    room = (height - block + 1, width - block + 1)
    gamma = rate / block**2 * (height * width) / (room[0] * room[1])
    seeds = (torch.rand(*features.shape[:2], *room, device=features.device) < gamma).to(features.dtype)
    # Max pooling with full padding grows each seed, the upper left corner of a square, into the square.
    dropped = F.max_pool2d(F.pad(seeds, [block - 1] * 4), block, stride=1)
    keep = 1 - dropped
    return features * keep * (keep.numel() / keep.sum(dtype=torch.float32).clamp(min=1))
