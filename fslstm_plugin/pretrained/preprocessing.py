"""What the libraries of networks do to a picture, as data that another program can follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..data.reading.preprocessing import RESIZE_FIRST, Preprocessing
from ..errors import UsageError

Transform = Callable[[Image.Image], Tensor | np.ndarray]  # From an RGB picture to normalised pixels ``(3, H, W)``.


def described(transform: Transform, name: str) -> Preprocessing:
    """What a transform of timm, torchvision, OpenCLIP or this package does, for the backbone of a name.

    Example:
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> found = open_backbone().preprocessing
        >>> found.resize, found.interpolation, found.crop, found.mean
        (256, 'bicubic', (224, 224), (0.5, 0.5, 0.5))
    """
    if isinstance(transform, Preprocessing):
        return transform
    steps: dict[str, Any] = {type(step).__name__: step for step in getattr(transform, "transforms", [transform])}
    if list(steps) == ["ImageClassification"]:
        (whole,) = steps.values()
        (shorter,), crop, how = whole.resize_size, _pair(whole.crop_size * 2), whole.interpolation.value
        return Preprocessing(crop, RESIZE_FIRST, shorter, how, crop, tuple(whole.mean), tuple(whole.std))
    steps.pop("MaybeConvertMode", None)  # to RGB, which pictures are in already
    if list(steps) != ["Resize", "CenterCrop", "MaybeToTensor", "Normalize"]:
        raise UsageError(
            f"What the backbone {name} does to a picture ({', '.join(steps)}) cannot be described to other programs: "
            "use another backbone."
        )
    resize, crop, _, normalize = steps.values()
    return Preprocessing(
        _pair(crop.size),
        RESIZE_FIRST,
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
