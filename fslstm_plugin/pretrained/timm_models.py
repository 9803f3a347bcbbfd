"""timm's networks by name, without their classifiers, with the preprocessing that timm keeps for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import RunError, UnknownNameError, UsageError
from ..extras import needs_extra
from ..storage.weights import load_into, load_network
from .backbone import PictureBackbone
from .download import downloading, no_retries_without_network

PREFIX = "timm:"
_COPIES = ("local-dir", "local_dir")
_ELSEWHERE = tuple(f"{kind}:" for kind in ("hf-hub", "hf_hub", *_COPIES))  # timm's prefixes
_WHERE = " Or copy the model's folder here, and name it as timm:local-dir:PATH."


def open_timm(name: str, weights: Path | None, pooling: str | None) -> PictureBackbone:
    """A timm network.

    Args:
        name: timm's name, with or without the tag of its weights: ``resnet18``, ``resnet18.a1_in1k``; or a model on
            Hugging Face's hub, ``hf-hub:ORG/NAME``, or a copy of its folder, ``local-dir:PATH``.
        weights: A file of weights; None for those that timm publishes.
        pooling: See `open_backbone`.
    """
    with needs_extra(f"The backbone {PREFIX}{name}", "pictures"):
        import timm
        from timm.data import create_transform, resolve_model_data_config

    elsewhere = name.startswith(_ELSEWHERE)
    kind, _, place = name.partition(":")
    if kind in _COPIES:
        name = f"{kind}:{Path(place).absolute()}"
    known = [] if elsewhere else timm.list_models()
    if not elsewhere and name not in known and name not in timm.list_models(pretrained=True):
        tagged = timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
        raise UnknownNameError("timm network", name, tagged or known)
    if weights is None and not elsewhere and not timm.is_model_pretrained(name):
        raise UsageError(f"timm has no weights for {name}: give it some with `weights`.")
    with _read_from(name), no_retries_without_network():
        network: Any = timm.create_model(name, pretrained=weights is None, num_classes=0)
    notes: list[str] = []
    if weights is not None:
        state = load_network(weights, network.state_dict())
        load_into(network, _fitting(state.tensors, network, name, weights), weights)
        notes = state.notes(weights)
    if pooling is not None:
        try:
            # Not when it is created: some networks then have other layers, for which there are no weights.
            network.reset_classifier(0, global_pool=pooling)
        except Exception as error:  # each network raises errors of its own
            raise UsageError(f"{PREFIX}{name} has no pooling '{pooling}': {error}") from error
    config = resolve_model_data_config(network)
    _, height, width = config["input_size"]
    return PictureBackbone(
        network,
        create_transform(**config, is_training=False),
        PREFIX + name,
        (height, width),
        weights=weights,
        pooling=pooling,
        imagenet=weights is None and not elsewhere,  # of others it is not known what they have seen
        notes=notes,
    )


def _fitting(tensors: dict[str, Tensor], network: Any, name: str, file: Path) -> dict[str, Tensor]:
    """A checkpoint's tensors under the network's current names, without those of its classifier.

    timm's own loader does the same, but ignores tensors that do not fit.
    """
    import timm

    architecture = network.pretrained_cfg.get("architecture") or name
    module = sys.modules[timm.model_entrypoint(architecture).__module__]
    try:
        tensors = getattr(module, "checkpoint_filter_fn", lambda state, _: state)(tensors, network)
    except Exception as error:  # of a checkpoint of another network
        raise RunError(f"The weights in {file} are not those of {PREFIX}{name} ({error}).") from error
    classifiers = network.pretrained_cfg.get("classifier") or ()
    names = (classifiers,) if isinstance(classifiers, str) else classifiers
    return {key: value for key, value in tensors.items() if key.rpartition(".")[0] not in names}


@contextmanager
def _read_from(name: str) -> Iterator[None]:
    """Say where a model is looked for that cannot be read."""
    kind, _, place = name.partition(":")
    if kind not in _COPIES:
        with downloading(PREFIX + name, _WHERE if place else ""):
            yield
        return
    if not Path(place).is_dir():
        raise RunError(f"There is no folder with config.json and model.safetensors at {place}.")
    try:
        yield
    except Exception as error:  # of whatever is in the folder
        raise RunError(f"The folder {place} does not hold a timm model ({error}).") from error
