"""How a picture becomes a network's input, as data that another program can follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from PIL import Image
from torch import Tensor

from ..data.reading.decode import LONGEST, fitted, resized_and_cropped
from ..errors import UsageError
from ..normalization import Normalization

_RESIZE_FIRST = ("resize", "crop", "scale", "normalize")
_CROP_FIRST = ("crop", "resize", "scale", "normalize")


@dataclass(frozen=True)
class CentreCrop:
    """Preprocessing of the plugin's own backbones, the same as that of prepared data sets.

    Example:
        >>> crop = CentreCrop(32, Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
        >>> crop(Image.new("RGB", (80, 60), "white")).shape
        torch.Size([3, 32, 32])
    """

    image_size: int  # The shorter side is resized to it (bicubic), and the centre of the longer one kept.
    normalization: Normalization  # Of the pixels.

    def __call__(self, image: Image.Image) -> Tensor:
        """Normalised pixels, float32 ``(3, image_size, image_size)``, of an RGB picture."""
        return _normalized(fitted(image, (self.image_size, self.image_size)), self.normalization)


@dataclass(frozen=True)
class ShorterSide:
    """Preprocessing as timm and torchvision do it: the shorter side is resized, and a square from the middle kept.

    Example:
        >>> crop = ShorterSide(40, 32, Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
        >>> crop(Image.new("RGB", (80, 60), "white")).shape
        torch.Size([3, 32, 32])
    """

    resize: int  # To which the shorter side is resized (bicubic), in pixels.
    image_size: int  # Side of the square, at most as long.
    normalization: Normalization  # Of the pixels.

    def __call__(self, image: Image.Image) -> Tensor:
        """Normalised pixels, float32 ``(3, image_size, image_size)``, of an RGB picture."""
        seen = resized_and_cropped(image, self.resize, (self.image_size, self.image_size))
        return _normalized(seen, self.normalization)


def _normalized(image: Image.Image, normalization: Normalization) -> Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    mean, std = torch.tensor((normalization.mean, normalization.std), device="cpu")[..., None, None]
    return (pixels.float() / 255 - mean) / std


class Preprocessing(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done to an upright RGB picture; heights come before widths, in pixels."""

    size: tuple[int, int]  # Of the input.
    order: tuple[str, ...]  # Of the steps "resize", "crop", "scale" and "normalize".
    resize: int | tuple[int, int]  # Of the shorter side, the longer one in proportion, rounded down; or of both.
    interpolation: str  # Of the resizing, with antialiasing: "bilinear" or "bicubic".
    crop: tuple[int, int] | None  # Of the part that is kept, from the middle; None for the largest square.
    mean: tuple[float, float, float]  # Of red, green and blue, which is subtracted.
    std: tuple[float, float, float]  # By which is divided then.
    scale: float = 1 / 255  # Factor of the pixels, which are 0 to 255.
    channels: str = "RGB"
    max_aspect_ratio: float = LONGEST  # Of a picture that is longer in proportion, the middle is taken first.


def described(transform: Callable[[Image.Image], Tensor], name: str) -> Preprocessing:
    """What a transform of timm, torchvision, OpenCLIP or this package does, for the backbone of a name.

    Example:
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> found = open_backbone().preprocessing
        >>> found.resize, found.interpolation, found.crop, found.mean
        (256, 'bicubic', (224, 224), (0.5, 0.5, 0.5))
    """
    if isinstance(transform, CentreCrop):
        size, pixels = transform.image_size, transform.normalization
        return Preprocessing((size, size), _CROP_FIRST, (size, size), "bicubic", None, pixels.mean, pixels.std)
    if isinstance(transform, ShorterSide):
        size, pixels = transform.image_size, transform.normalization
        return Preprocessing(
            (size, size), _RESIZE_FIRST, transform.resize, "bicubic", (size, size), pixels.mean, pixels.std
        )
    steps: dict[str, Any] = {type(step).__name__: step for step in getattr(transform, "transforms", [transform])}
    if list(steps) == ["ImageClassification"]:
        (whole,) = steps.values()
        (shorter,), crop, how = whole.resize_size, _pair(whole.crop_size * 2), whole.interpolation.value
        return Preprocessing(crop, _RESIZE_FIRST, shorter, how, crop, tuple(whole.mean), tuple(whole.std))
    steps.pop("MaybeConvertMode", None)  # to RGB, which pictures are in already
    if list(steps) != ["Resize", "CenterCrop", "MaybeToTensor", "Normalize"]:
        raise UsageError(
            f"What the backbone {name} does to a picture ({', '.join(steps)}) cannot be described to other programs: "
            "use another backbone."
        )
    resize, crop, _, normalize = steps.values()
    return Preprocessing(
        _pair(crop.size),
        _RESIZE_FIRST,
        resize.size if isinstance(resize.size, int) else _pair(resize.size),
        resize.interpolation.value,
        _pair(crop.size),
        _triple(normalize.mean),
        _triple(normalize.std),
    )


def _pair(size: Any) -> tuple[int, int]:
    height, width = size
    return int(height), int(width)


def _triple(numbers: Any) -> tuple[float, float, float]:
    """Of red, green and blue; what is of single precision is rounded to what was meant."""
    red, green, blue = (round(float(each), 7) for each in numbers)
    return red, green, blue
