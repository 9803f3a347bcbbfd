"""torchvision's classification networks by name, without their classifiers, with their weights' preprocessing."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ..errors import UnknownNameError
from ..storage.weights import load_into, load_network
from .backbone import PictureBackbone
from .download import downloading

PREFIX = "torchvision:"

_CLASSES = 1000  # of ImageNet


def open_torchvision(name: str, weights: Path | None) -> PictureBackbone:
    """A torchvision network, such as ``resnet18``, with its default weights or those of a file."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise UnknownNameError("torchvision network", name, known)
    published = models.get_model_weights(name).DEFAULT
    with downloading(PREFIX + name):
        network = models.get_model(name, weights=published if weights is None else None)
    classifier = _remove_classifier(network)
    notes: list[str] = []
    if weights is not None:
        state = load_network(weights, network.state_dict())
        kept = {key: value for key, value in state.tensors.items() if not key.startswith(f"{classifier}.")}
        load_into(network, kept, weights)
        notes = state.notes(weights)
    transform = published.transforms()
    size = transform.crop_size[0]
    return PictureBackbone(
        network, transform, PREFIX + name, (size, size), weights=weights, imagenet=weights is None, notes=notes
    )


def _remove_classifier(network: nn.Module) -> str:
    """Replace the last layer, which classifies ImageNet, by the identity, and return its name.

    torchvision gives it a different name in nearly every network.
    """
    layers = [
        name
        for name, layer in network.named_modules()
        if (isinstance(layer, nn.Linear) and layer.out_features == _CLASSES)
        or (isinstance(layer, nn.Conv2d) and layer.out_channels == _CLASSES)
    ]
    network.set_submodule(layers[-1], nn.Identity())
    return layers[-1]
