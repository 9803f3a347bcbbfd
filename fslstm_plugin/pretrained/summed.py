"""Several backbones as one: their features side by side, each of one length, so that their Gram matrices add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

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
    found = _SummedBackbone(
        nn.ModuleDict({"parts": nn.ModuleList(parts)}),
        partial(_packed, parts),
        JOINED.join(part.name for part in parts),
        max(part.image_size for part in parts),
        imagenet=any(part.imagenet for part in parts),
        notes=[note for part in parts for note in part.notes],
    )
    found.views = parts[0].views
    return found


def _packed(parts: Sequence[PictureBackbone], image: Image.Image) -> Tensor:
    """The pixels that each part sees, one after the other as ``(3, 1, N)``."""
    return torch.cat([torch.as_tensor(part.transform(image)).flatten(1) for part in parts], -1).unsqueeze(1)


class _SummedBackbone(PictureBackbone):
    """The parts' features side by side, each of the length 1 over the root of their number."""

    @property
    def preprocessing(self) -> NoReturn:
        raise UsageError(
            f"{self.name} is a sum of several backbones, which cannot be exported as a graph: fit with one of them."
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(batch, d)`` of packed pixels ``(batch, 3, 1, N)``."""
        parts: Any = self.network.get_submodule("parts")
        seen = images.flatten(2).split([math.prod(part.image_size) for part in parts], -1)
        features = [part(mine.unflatten(-1, part.image_size)) for part, mine in zip(parts, seen, strict=True)]
        return torch.cat([F.normalize(each, dim=-1) for each in features], -1) / len(parts) ** 0.5
