"""EfficientNet-Lite0 without its classifier; its weights have timm's names, and its features are timm's to the bit.

It is not taken from timm, whose import takes longer than labelling a picture: timm imports torchvision, and torchvision
PyTorch's compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of each stage: blocks, kernel, stride of the first block, factor by which a block widens its channels, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_FIRST, _LAST = 32, 1280  # Channels of the first and the last convolution.


def _mean(maps: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(maps, 1).flatten(1)


def _most(maps: Tensor) -> Tensor:
    return F.adaptive_max_pool2d(maps, 1).flatten(1)


POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "avg": _mean,
    "max": _most,
    "avgmax": lambda maps: 0.5 * (_mean(maps) + _most(maps)),
    "catavgmax": lambda maps: torch.cat((_mean(maps), _most(maps)), 1),
}


class EfficientNetLite0(nn.Module):
    """From normalised images ``(batch, 3, H, W)`` to features ``(batch, 1280)``; twice as many by ``catavgmax``.

    Args:
        pooling: One of `POOLINGS`.

    Example:
        >>> EfficientNetLite0()(torch.zeros(2, 3, 64, 48)).shape
        torch.Size([2, 1280])
    """

    pretrained_cfg: ClassVar = {"license": "apache-2.0"}  # where timm's networks have it, see `PictureBackbone.licence`

    def __init__(self, pooling: str = "avg") -> None:
        super().__init__()
        self.pooling = pooling
        self.conv_stem, self.bn1 = _convolution(3, _FIRST, 3, 2), _norm(_FIRST)
        stages, channels = [], _FIRST
        for blocks, kernel, stride, widening, width in _STAGES:
            stage: list[nn.Module] = []
            for place in range(blocks):
                first = stride if place == 0 else 1
                stage.append(
                    _Separable(channels, width, kernel)
                    if widening == 1
                    else _Inverted(channels, width, kernel, first, widening)
                )
                channels = width
            stages.append(nn.Sequential(*stage))
        self.blocks = nn.Sequential(*stages)
        self.conv_head, self.bn2 = _convolution(channels, _LAST), _norm(_LAST)

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(batch, d)``."""
        maps = self.blocks(_relu6(self.bn1(self.conv_stem(images))))
        return POOLINGS[self.pooling](_relu6(self.bn2(self.conv_head(maps))))


class _Separable(nn.Module):
    """A depthwise convolution and one of single pixels."""

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__()
        self.conv_dw, self.bn1 = _convolution(channels, channels, kernel, groups=channels), _norm(channels)
        self.conv_pw, self.bn2 = _convolution(channels, width), _norm(width)

    def forward(self, maps: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(_relu6(self.bn1(self.conv_dw(maps)))))


class _Inverted(nn.Module):
    """An inverted residual: the same on widened channels, added to what came in where it has that form."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int, widening: int) -> None:
        super().__init__()
        inner = widening * channels
        self.conv_pw, self.bn1 = _convolution(channels, inner), _norm(inner)
        self.conv_dw, self.bn2 = _convolution(inner, inner, kernel, stride, groups=inner), _norm(inner)
        self.conv_pwl, self.bn3 = _convolution(inner, width), _norm(width)
        self.is_added = stride == 1 and channels == width

    def forward(self, maps: Tensor) -> Tensor:
        inner = _relu6(self.bn2(self.conv_dw(_relu6(self.bn1(self.conv_pw(maps))))))
        change = self.bn3(self.conv_pwl(inner))
        return change + maps if self.is_added else change


class _Strided(nn.Conv2d):
    """Pads as TensorFlow does, where the weights are from: at the right and the bottom by one more, if it is odd."""

    def forward(self, input: Tensor) -> Tensor:
        padding, kernel, stride = [], self.kernel_size[0], self.stride[0]
        for size in (input.shape[-1], input.shape[-2]):
            missing = max(kernel - (size % stride or stride), 0)
            padding += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(input, padding))


def _convolution(channels: int, width: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    if stride > 1:
        return _Strided(channels, width, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(channels, width, kernel, padding=kernel // 2, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _relu6(maps: Tensor) -> Tensor:
    return F.relu6(maps, inplace=True)
