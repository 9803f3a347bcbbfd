"""The convolution of the backbones, which a processor trains faster on small maps as a product of matrices."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Convolution(nn.Conv2d):
    """3x3 convolution with padding 1, without a bias: `torch.nn.Conv2d` with the same weights and results.

    For maps of a few pixels oneDNN takes several times as long for the gradient of the weights as for the convolution.
    There, while gradients are wanted, the nine neighbours of each pixel are laid side by side and multiplied by the
    weights, whose gradient is such a product too. Evaluation is left as it is.

    Example:
        >>> Convolution(3, 8)(torch.zeros(2, 3, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, width, 3, padding=1, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Maps ``(batch, width, h, w)`` of maps ``(batch, channels, h, w)``."""
        if torch.is_grad_enabled() and max(input.shape[-2:]) <= _largest_side(input.device.type, input.dtype):
            return _as_product(input, self.weight, self.bias)
        return super().forward(input)


@cache
def _largest_side(device: str, dtype: torch.dtype) -> int:
    """Up to which side of a map the product is the faster, as measured on processors with and without AMX."""
    if device != "cpu":
        return 0
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return 2 if dtype == torch.bfloat16 and not has_amx() else 4


def _as_product(maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    height, width = maps.shape[-2:]
    around = F.pad(maps, (1, 1, 1, 1)).permute(0, 2, 3, 1)
    neighbours = [around[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    rows = weight.permute(0, 2, 3, 1).flatten(1)
    return F.linear(torch.cat(neighbours, -1), rows, bias).permute(0, 3, 1, 2)
