"""One way to every backbone: by the name of a network, of a run folder, or as a module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from ..backbones.base import build_backbone, normalization_of
from ..data.reading.preprocessing import centre_crop
from ..errors import RunError, UnknownNameError, UsageError
from ..registry import BACKBONES
from ..runs import builtin
from ..runs.folder import Run
from ..storage.weights import NetworkState, load_into, load_network, unwrapped
from .backbone import PictureBackbone
from .embedded import DEFAULT, open_embedded
from .open_clip_models import PREFIX as OPEN_CLIP
from .open_clip_models import open_clip_tower
from .summed import JOINED, summed
from .timm_models import PREFIX as TIMM
from .timm_models import open_timm
from .torchvision_models import PREFIX as TORCHVISION
from .torchvision_models import open_torchvision

MODULE = "module:"  # Prefix of the name of a module that can only be given in Python.

_REGISTERED_SIZE, _MODULE_SIZE = 84, 224  # Of images, where nothing specifies another.
_SCALE = "scale"  # Of a model's logits; every training starts it afresh.


def open_backbone(
    backbone: str | Path | nn.Module | None = None,
    weights: Path | str | None = None,
    pooling: str | None = None,
    image_size: int | None = None,
    views: str | None = None,
) -> PictureBackbone:
    """A frozen backbone with its preprocessing.

    Args:
        backbone: ``timm:NAME``, also ``timm:hf-hub:ORG/NAME`` or ``timm:local-dir:PATH``; ``torchvision:NAME``;
            ``open_clip:MODEL/TAG``, or ``open_clip:MODEL`` with ``weights``; a run folder; ``builtin:NAME``, a
            model of the package; a registered backbone such as ``conv4``, with ``weights``; a module from normalised
            images ``(batch, 3, H, W)`` to vectors, which is copied, with the plugin's preprocessing and its own
            ``normalization`` and ``image_size`` where it has some; a `PictureBackbone`, which is returned as it is; or
            several names with ``+`` between them, see `summed`. Default None: EfficientNet-Lite0, which is installed
            with the extra ``pictures`` and needs no network.
        weights: A safetensors file, or a file of PyTorch's that holds tensors only; see `weights.load_network` for what
            may be around them. Default None: those that timm, torchvision or OpenCLIP publish; each downloads and keeps
            its own.
        pooling: Of timm's networks and the default: ``avg``, ``max``, ``avgmax``, ``catavgmax``, or ``token`` where
            there is a class token, as in DINOv3. Default None: the network's own.
        image_size: Side of the images of a registered backbone or a module in pixels. Default None: 84 for a
            registered one, a module's own, or 224.
        views: ``"flip"`` for the mean feature of each picture and its mirror image. Default None: the picture alone.

    Returns:
        The backbone on the CPU; ``to(device)`` moves it.

    Raises:
        UnknownNameError: If nothing has that name; the message suggests the nearest.
        UsageError: If an option does not go with the backbone.
        RunError: If weights are missing, damaged or of another network, or cannot be downloaded.
        MissingExtraError: If the extra ``pictures`` or ``clip`` is needed and not installed.

    Example:
        >>> backbone = open_backbone()
        >>> backbone.name, backbone.out_features, backbone.image_size, backbone.digest[:8]
        ('efficientnet-lite0', 1280, (224, 224), '...')
    """
    if isinstance(backbone, PictureBackbone):
        _refuse(f"The {backbone!r}", weights=weights, pooling=pooling, image_size=image_size, views=views)
        return backbone
    if isinstance(backbone, str) and JOINED in backbone and not Path(backbone).is_dir():
        _refuse(f"The sum {backbone}", weights=weights, pooling=pooling, image_size=image_size)
        return summed([open_backbone(each, views=views) for each in backbone.split(JOINED)])
    opened = _opened(backbone, None if weights is None else Path(weights), pooling, image_size)
    return opened if views is None else opened.see(views)


def _opened(
    backbone: str | Path | nn.Module | None, weights: Path | None, pooling: str | None, image_size: int | None
) -> PictureBackbone:
    if isinstance(backbone, nn.Module):
        _refuse(f"The module {type(backbone).__name__}", weights=weights, pooling=pooling)
        return _of_module(backbone, image_size)
    name = DEFAULT if backbone is None else str(backbone)
    title = f"The backbone {name}"
    if name in BACKBONES.names():
        _refuse(title, pooling=pooling)
        return _registered(name, weights, image_size or _REGISTERED_SIZE)
    _refuse(title, image_size=image_size)
    if name.startswith(TIMM):
        return open_timm(name.removeprefix(TIMM), weights, pooling)
    for prefix, opened in ((TORCHVISION, open_torchvision), (OPEN_CLIP, open_clip_tower)):
        if name.startswith(prefix):
            _refuse(title, pooling=pooling)
            return opened(name.removeprefix(prefix), weights)
    _refuse(title, weights=weights)
    if name == DEFAULT:
        return open_embedded(pooling)
    _refuse(title, pooling=pooling)
    if name.startswith(builtin.PREFIX):
        return _of_run(builtin.packaged(name), name)
    if name and Path(name).is_dir():
        return _of_run(Path(name), name)
    raise _unknown(name)


def _refuse(title: str, **values: object) -> None:
    """Refuse options that would do nothing."""
    for option, value in values.items():
        if value is not None:
            raise UsageError(f"{title} has its own {option.replace('_', ' ')}: leave out `{option}`.")


def _unknown(name: str) -> UsageError | RunError:
    if name.startswith(MODULE):
        return UsageError(
            f"The backbone was the module {name.removeprefix(MODULE)}, which cannot be opened by name: "
            "give the module itself, in Python."
        )
    if "/" in name or "\\" in name:
        return RunError(f"There is no run folder at {name}.")
    packaged = (f"{builtin.PREFIX}{each}" for each in builtin.names())
    elsewhere = (f"{TIMM}NAME", f"{TORCHVISION}NAME", f"{OPEN_CLIP}MODEL/TAG")
    return UnknownNameError("backbone", name, [DEFAULT, *BACKBONES.names(), *packaged, *elsewhere])


def _registered(name: str, weights: Path | None, image_size: int) -> PictureBackbone:
    if weights is None:
        raise UsageError(
            f"The backbone {name} comes without weights: give it some with `weights`, or name a run folder."
        )
    network = build_backbone(name, image_size)
    notes = load_backbone(network, weights).notes(weights)
    return _own(network, name, image_size, weights, notes)


def load_backbone(backbone: nn.Module, source: Path) -> NetworkState:
    """Load a backbone's weights from a run folder, or from a weights file, see `load_network`."""
    own = backbone.state_dict()
    if source.is_dir():
        run = Run.open(source)
        found, origin = unwrapped(run.load_weights(), own), run.weights
    elif source.exists():
        found, origin = load_network(source, own), source
    else:
        raise RunError(f"There is no run folder or weights file at {source}.")
    # DropBlock's progress belongs to a training, and is not a weight.
    passes = {key: value for key, value in own.items() if key.endswith(".passes")}
    load_into(backbone, {**found.tensors, **passes}, origin)
    return found._replace(left_out=[name for name in found.left_out if name != _SCALE])


def _of_run(folder: Path, name: str) -> PictureBackbone:
    from ..model import FewShotModel

    run = Run.open(folder)
    return _own(FewShotModel.from_run(run).backbone, name, run.config.image_size)


def _of_module(module: nn.Module, image_size: int | None) -> PictureBackbone:
    size = getattr(module, "image_size", _MODULE_SIZE) if image_size is None else image_size
    if not isinstance(size, int):
        raise UsageError(f"image_size of {type(module).__name__} must be a whole number, but is {size!r}.")
    # A copy, since the module may be in training and shall not be frozen.
    return _own(copy.deepcopy(module), f"{MODULE}{type(module).__name__}", size)


def _own(
    network: nn.Module, name: str, image_size: int, weights: Path | None = None, notes: Sequence[str] = ()
) -> PictureBackbone:
    crop = centre_crop(image_size, normalization_of(network))
    return PictureBackbone(network, crop, name, (image_size, image_size), weights=weights, notes=notes)
