"""Conv4: four convolutional blocks with growing width."""

from __future__ import annotations

from torch import Tensor, nn

from ..recipes import BackboneRecipe
from .base import Backbone, initialize_convolutions
from .convolution import Convolution


class Conv4(Backbone):
    """Four blocks of 3x3 convolution, batch normalisation, 2x2 max pooling and LeakyReLU(0.2).

    The widths are 128, 192, 256 and 512; channel dropout of 0.4 and 0.5 follows the third and fourth block.

    Args:
        image_size: Side of the square images in pixels (default 84). 32 gives 2048 features, 84 gives 4608.

    Example:
        >>> import torch
        >>> backbone = Conv4(image_size=32).eval()
        >>> backbone(torch.zeros(2, 3, 32, 32)).shape, backbone.out_features
        (torch.Size([2, 2048]), 2048)

    Source: paper, section "Experimental Setting"; details from the authors' published setting.
    """

    widths = (128, 192, 256, 512)
    is_static = True
    recipe = BackboneRecipe(lr=0.005, method_lr=0.01, on_gpu={"epochs": 120, "weight_decay": 1e-3, "dropout": 0.1})

    def __init__(self, image_size: int = 84) -> None:
        super().__init__(image_size)
        dropouts = (nn.Identity(), nn.Identity(), nn.Dropout2d(0.4), nn.Dropout2d(0.5))
        blocks = []
        channels = 3
        for width, dropout in zip(self.widths, dropouts, strict=True):
            blocks.append(
                nn.Sequential(
                    Convolution(channels, width),
                    nn.BatchNorm2d(width),
                    nn.MaxPool2d(2),
                    nn.LeakyReLU(0.2, inplace=True),
                    dropout,
                )
            )
            channels = width
        self.blocks = nn.Sequential(*blocks)
        initialize_convolutions(self)

    def unpooled(self, block: nn.Sequential, features: Tensor) -> Tensor:
        """See `Backbone.unpooled`."""
        for layer in block:
            features = features if isinstance(layer, nn.MaxPool2d) else layer(features)
        return features
