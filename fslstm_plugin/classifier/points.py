"""What a user gives as the points of a classifier: features, or pictures, in any of the usual forms."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..checks import require_unmasked
from ..data.reading.decode import decode_picture, read_picture
from ..errors import UsageError
from ..pretrained import PictureBackbone

Picture = str | Path | Image.Image


def as_array(values: Any) -> Any:
    """PyTorch's tensors, and a list of vectors of them, as NumPy's arrays; anything else as it is.

    A tensor may need gradients, lie on another device, or have a type that NumPy does not know. Masked values of
    NumPy's arrays are refused.

    Example:
        >>> as_array(torch.ones(2, dtype=torch.bfloat16, requires_grad=True))
        array([1., 1.], dtype=float32)
    """
    if isinstance(values, (list, tuple)) and any(isinstance(each, Tensor) for each in values):
        return [as_array(each) for each in values]
    if not isinstance(values, Tensor):
        require_unmasked("This array", values)
        return values
    try:
        values = values.detach().cpu()
        if values.is_floating_point() and values.dtype not in (torch.float16, torch.float32, torch.float64):
            values = values.float()
        return values.numpy()
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"This tensor cannot become an array ({str(error).splitlines()[0].rstrip('.')}): give a dense one of "
            "numbers."
        ) from error


def pictures_in(X: Any) -> list[Picture] | None:
    """The pictures that are given, None if these are features.

    They are paths, images, or arrays of pixels: uint8 ``(H, W, 3)`` or ``(H, W)``, of PyTorch ``(3, H, W)``.
    """
    if isinstance(X, (str, Path, Image.Image)):
        name = X if isinstance(X, (str, Path)) else "an image"
        raise UsageError(f"X must be a list of pictures, but is one ({name}): put it in a list, [X].")
    if not hasattr(X, "__len__") or isinstance(X, dict) or not _may_be_pictures(X):
        return None
    found = [_picture(each) for each in X]
    if all(each is None for each in found):
        return None
    if None in found:
        other = type(X[found.index(None)]).__name__
        raise UsageError(f"X holds pictures, but also an object of type {other}: give only pictures, or only features.")
    return found  # type: ignore[return-value]


def features_of(pictures: Iterable[Picture], backbone: PictureBackbone) -> np.ndarray:
    """The backbone's features ``(n, d)`` of what `pictures_in` found."""

    def pixels(picture: Picture) -> Tensor:
        image = picture if isinstance(picture, Image.Image) else read_picture(Path(picture))
        return backbone.preprocess(image).to(backbone.device)

    # An image that is open is decoded here, not in threads, two of which may have the same.
    decoded = (decode_picture(each) if isinstance(each, Image.Image) else each for each in pictures)
    found = []
    with ThreadPoolExecutor() as pool, torch.inference_mode():
        while batch := list(islice(decoded, backbone.batch_size)):
            found.append(backbone(torch.stack(list(pool.map(pixels, batch)))))
    return torch.cat(found).cpu().numpy()


def _may_be_pictures(X: Any) -> bool:
    """Whether to look at each: a list, a vector of any library, or pixels in one array."""
    dimensions = getattr(X, "ndim", 1)
    return dimensions == 1 or (dimensions == 4 and str(X.dtype).endswith("uint8"))


def _picture(value: Any) -> Picture | None:
    if isinstance(value, (str, Path, Image.Image)):
        return value
    if isinstance(value, Tensor) and value.dtype == torch.uint8 and value.ndim == 3:
        value = value.permute(1, 2, 0)
        value = (value.expand(-1, -1, 3) if value.shape[-1] == 1 else value).cpu().numpy()
    if isinstance(value, np.ndarray) and value.ndim in (2, 3):
        require_unmasked("A picture", value)
        if value.dtype == np.uint8 and 0 not in value.shape and (value.ndim == 2 or value.shape[2] == 3):
            return Image.fromarray(np.ascontiguousarray(value))
        raise UsageError(
            f"A picture as an array must be uint8 of shape (H, W, 3) or (H, W), but got {value.dtype} of shape "
            f"{value.shape}."
        )
    return None
