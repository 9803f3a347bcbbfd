"""What the plugin's backbones share: a feature map, its pooling, and the normalisation of their images."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..checks import require
from ..errors import UsageError
from ..normalization import IMAGENET_NORMALIZATION, Normalization
from ..recipes import SMALLEST_SIDE, BackboneRecipe
from ..registry import BACKBONES


class Backbone(nn.Module):
    """Base of the plugin's backbones; subclasses build ``self.blocks``.

    Any ``nn.Module`` that maps ``(batch, 3, H, W)`` images to ``(batch, d)`` vectors can take a backbone's place;
    one that has ``normalization`` also gets its own; pretraining pools the maps of this class's subclasses globally.

    Args:
        image_size: Side of the square images in pixels; 32 and 84 are the published sizes.

    Raises:
        UsageError: If the image is too small for four halvings.

    Attributes:
        normalization: Normalisation that the published weights and recipes expect.
        out_features: Length of the feature vector.
        map_shape: Shape (channels, height, width) of the pooled feature map, which the vector is made of.
        map_channels: Channels of the feature map before pooling.
        recipe: The paper's rates for training it from pretrained weights.
        is_static: Whether training takes the same operations for every batch of a shape, and waits for none of them,
            so that a GPU may record them. Default False.
    """

    normalization: ClassVar[Normalization] = IMAGENET_NORMALIZATION
    recipe: ClassVar[BackboneRecipe]
    widths: ClassVar[tuple[int, int, int, int]]
    is_static: ClassVar[bool] = False
    blocks: nn.Sequential

    def __init__(self, image_size: int = 84) -> None:
        super().__init__()
        require("image_size", image_size, least=SMALLEST_SIDE, whole=True)
        self.image_size = image_size
        self.map_channels = self.widths[-1]
        side = image_size // 16
        # At 84 x 84 the published models average the 5 x 5 map to 3 x 3; at 32 x 32 they keep it as it is.
        self.pool: nn.Module = nn.AvgPool2d(2, padding=1) if side > 2 else nn.Identity()
        pooled = side // 2 + 1 if side > 2 else side
        self.map_shape = (self.map_channels, pooled, pooled)
        self.out_features = self.map_channels * pooled * pooled

    def feature_map(self, images: Tensor) -> Tensor:
        """Feature map ``(batch, map_channels, h, w)`` of normalised images ``(batch, 3, H, W)``."""
        return self.blocks(_checked(images))

    def stages(self, images: Tensor) -> list[Tensor]:
        """The maps after each block, ``(batch, widths[i], h / 2**(i + 1), w / 2**(i + 1))``."""
        maps, images = [], _checked(images)
        for block in self.blocks:
            images = block(images)
            maps.append(images)
        return maps

    def wide_map(self, images: Tensor) -> Tensor:
        """The map ``(batch, map_channels, h / 4, w / 4)`` that the blocks give without the last two poolings."""
        features = self.blocks[:2](_checked(images))
        for block in self.blocks[2:]:
            features = self.unpooled(block, features)
        return features

    def unpooled(self, block: Any, features: Tensor) -> Tensor:
        """What a block gives without its pooling; a subclass says how, for `wide_map`."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Feature vectors ``(batch, out_features)`` of normalised images ``(batch, 3, H, W)``."""
        return self.pool(self.feature_map(images)).flatten(1)


def _checked(images: Tensor) -> Tensor:
    """The images, unless their type is that of pixels, or of no image."""
    if not images.is_floating_point():
        raise UsageError(
            f"Images must be normalised and floating point, but got {images.dtype}: divide pixels by 255, subtract the "
            "mean and divide by the standard deviation of the backbone's `normalization`."
        )
    return images


def initialize_convolutions(module: nn.Module) -> None:
    """Kaiming-normal weights (fan-out, leaky ReLU) for every convolution, as in the published models."""
    for child in module.modules():
        if isinstance(child, nn.Conv2d):
            with torch.no_grad():
                nn.init.kaiming_normal_(child.weight, mode="fan_out", nonlinearity="leaky_relu")


def build_backbone(name: str, image_size: int) -> nn.Module:
    """A registered backbone with fresh weights, for square images of this side in pixels."""
    try:
        return BACKBONES.get(name)(image_size=image_size)
    except TypeError as error:  # another package's
        raise UsageError(f"The backbone '{name}' cannot be made with image_size={image_size}: {error}") from error


def vectors_of(backbone: nn.Module, images: Tensor, size: int | None = None) -> Tensor:
    """What a backbone gives for images, if it is one vector for each, of its ``out_features`` where they are needed."""
    found = backbone(images)
    if found.dim() != 2 or found.shape[1] != (size or found.shape[1]):
        expected = "(batch, d)" if size is None else f"(batch, {size}), as out_features says,"
        raise UsageError(
            f"The backbone {type(backbone).__name__} must give vectors {expected} but gave {tuple(found.shape)}."
        )
    return found


def normalization_of(backbone: nn.Module) -> Normalization:
    """The backbone's own normalisation, or ImageNet's for one that names none."""
    return getattr(backbone, "normalization", IMAGENET_NORMALIZATION)
