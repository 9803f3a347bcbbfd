"""Several backbones as one: their features side by side, each of one length, so that their Gram matrices add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ..errors import UsageError
from .backbone import PictureBackbone

JOINED = "+"  # Between the names of the parts.


def summed(parts: Sequence[PictureBackbone]) -> PictureBackbone:
    """Several backbones as one, whose inner products are the means of the parts' cosines.

    Each part sees a picture by its own preprocessing. Of a sum, one can neither name other views nor describe the
    preprocessing.

    Args:
        parts: Two at least.

    Example:
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> lite = open_backbone()
        >>> both = summed([lite, lite])
        >>> picture = both.preprocess(Image.new("L", (300, 200)))[None]
        >>> both.name, both.out_features, round(float(both(picture).square().sum()), 4)
        ('efficientnet-lite0+efficientnet-lite0', 2560, 1.0)
    """
    packing = _Packing(parts)
    found = _SummedBackbone(
        _Sum(parts, packing),
        packing,
        JOINED.join(part.name for part in parts),
        max(part.image_size for part in parts),
        imagenet=any(part.imagenet for part in parts),
        notes=[note for part in parts for note in part.notes],
    )
    found.views = parts[0].views
    return found


class _SummedBackbone(PictureBackbone):
    @property
    def preprocessing(self) -> NoReturn:
        raise UsageError(
            f"{self.name} is a sum of several backbones, of which no graph can be made: fit with one of them."
        )


class _Packing:
    """The pixels that each part sees, one after the other as ``(3, 1, N)``."""

    def __init__(self, parts: Sequence[PictureBackbone]) -> None:
        self.transforms = [part.transform for part in parts]
        blank = Image.new("RGB", (64, 64))
        self.shapes = [transform(blank).shape[-2:] for transform in self.transforms]

    def __call__(self, image: Image.Image) -> Tensor:
        pixels = [torch.as_tensor(transform(image)).flatten(1) for transform in self.transforms]
        return torch.cat(pixels, -1).unsqueeze(1)

    def unpacked(self, pixels: Tensor) -> list[Tensor]:
        """The parts' pixels ``(batch, 3, H, W)`` from packed ones ``(batch, 3, 1, N)``."""
        parts = pixels.flatten(2).split([height * width for height, width in self.shapes], -1)
        return [part.unflatten(-1, shape) for part, shape in zip(parts, self.shapes, strict=True)]


class _Sum(nn.Module):
    """The parts' features side by side, each of the length 1 over the root of their number."""

    def __init__(self, parts: Sequence[PictureBackbone], packing: _Packing) -> None:
        super().__init__()
        self.parts, self.packing = nn.ModuleList(parts), packing

    def forward(self, pixels: Tensor) -> Tensor:
        """Features ``(batch, d)`` of packed pixels."""
        seen = zip(self.parts, self.packing.unpacked(pixels), strict=True)
        return torch.cat([F.normalize(part(mine), dim=-1) for part, mine in seen], -1) / len(self.parts) ** 0.5
