"""DropBlock, dropout of whole squares of a feature map; and weaker dropout than a backbone's own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd


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


def scale_dropout(module: nn.Module, factor: float) -> None:
    """Multiply the rate of every dropout layer within a module, DropBlock's too, for a training too short to need it.

    Its state dict does not change.

    Example:
        >>> module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        >>> scale_dropout(module, 0.2)
        >>> module[1]
        Dropout(p=0.1, inplace=False)
    """
    for layer in module.modules():
        if isinstance(layer, _DropoutNd):
            layer.p *= factor
