"""ResNet12 with dropout and scheduled DropBlock, the backbone of MetaOptNet and of the paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..normalization import Normalization
from ..recipes import BackboneRecipe
from .base import Backbone, initialize_convolutions
from .convolution import Convolution
from .dropout import drop_block


class _ScheduledDropBlock(_DropoutNd):
    """DropBlock whose rate rises linearly over the training passes; the count is saved with the weights."""

    passes: Tensor

    def __init__(self, block_size: int, rate: float = 0.1, ramp: int = 40_000) -> None:
        super().__init__(rate)
        self.block_size, self.ramp = block_size, ramp
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        self.passes += 1
        rate = self.p * (self.passes / self.ramp).clamp(max=1)
        return drop_block(features, rate, self.block_size)


class _ResidualBlock(nn.Module):
    """Three 3x3 convolutions beside a 1x1 shortcut, then LeakyReLU(0.1), 2x2 max pooling and dropout."""

    def __init__(self, channels: int, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Convolution(channels, width),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1, inplace=True),
            Convolution(width, width),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1, inplace=True),
            Convolution(width, width),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))
        self.finish = nn.Sequential(nn.LeakyReLU(0.1, inplace=True), nn.MaxPool2d(2), dropout)

    def forward(self, features: Tensor, pooled: bool = True) -> Tensor:
        features = self.body(features) + self.shortcut(features)
        if pooled:
            return self.finish(features)
        activation, _, dropout = self.finish
        return dropout(activation(features))


class ResNet12(Backbone):
    """Four residual blocks of widths 64, 160, 320 and 640.

    Dropout of 0.1 follows the first two blocks, DropBlock the last two (squares of 5 at 84 pixels, of 2 at 32); its
    rate rises to 0.1 over 40,000 training passes.

    Args:
        image_size: Side of the square images in pixels (default 84). 32 gives 2560 features, 84 gives 5760.

    Example:
        >>> backbone = ResNet12(image_size=32).eval()
        >>> backbone(torch.zeros(2, 3, 32, 32)).shape, backbone.out_features
        (torch.Size([2, 2560]), 2560)

    Source: paper, section "Experimental Setting"; details from the authors' published setting.
    """

    widths = (64, 160, 320, 640)
    is_static = True
    recipe = BackboneRecipe(lr=0.0005, method_lr=0.005)
    normalization = Normalization(
        (129.37731888 / 255, 124.10583864 / 255, 112.47758569 / 255),
        (68.20947949 / 255, 65.43124043 / 255, 70.45866994 / 255),
    )

    def __init__(self, image_size: int = 84) -> None:
        super().__init__(image_size)
        block_size = 5 if image_size >= 84 else 2
        dropouts = (
            nn.Dropout(0.1),
            nn.Dropout(0.1),
            _ScheduledDropBlock(block_size),
            _ScheduledDropBlock(block_size),
        )
        inputs = (3, *self.widths[:-1])
        self.blocks = nn.Sequential(
            *(_ResidualBlock(*sizes) for sizes in zip(inputs, self.widths, dropouts, strict=True))
        )
        initialize_convolutions(self)

    def unpooled(self, block: _ResidualBlock, features: Tensor) -> Tensor:
        """See `Backbone.unpooled`."""
        return block(features, pooled=False)
