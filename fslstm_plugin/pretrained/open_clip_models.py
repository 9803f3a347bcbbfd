"""OpenCLIP's image towers by name, with the preprocessing that belongs to their weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UnknownNameError, UsageError
from ..extras import needs_extra
from ..storage.weights import load_into, load_network
from .backbone import PictureBackbone
from .download import downloading, no_retries_without_network

PREFIX = "open_clip:"
_IMAGE = "visual."  # begins the names of the image tower's tensors


def open_clip_tower(name: str, weights: Path | None) -> PictureBackbone:
    """The image tower of a CLIP model; its features are what the model compares with text.

    Args:
        name: ``MODEL/TAG`` as OpenCLIP lists them, for example ``ViT-B-32/laion2b_s34b_b79k``; with ``weights``,
            ``MODEL``.
        weights: A file of the whole model's weights; None for those that OpenCLIP publishes under the name.
    """
    with needs_extra(f"The backbone {PREFIX}{name}", "clip"):
        import open_clip
    model, _, tag = name.partition("/")
    if model not in open_clip.list_models():
        raise UnknownNameError("model of OpenCLIP's", model, open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(model)
    if (weights is None) != bool(tag):
        raise UsageError(
            f"{PREFIX}{name} must name weights of its own, as {PREFIX}{model}/{tags[0] if tags else 'PRETRAINED'}, or "
            "come with a file of `weights`, but not both."
        )
    if tag and tag not in tags:
        raise UnknownNameError(f"set of weights of OpenCLIP's {model}", tag, tags)
    notes: list[str] = []
    with (
        _quietly(),
        downloading(PREFIX + name, f" With a file, the name is {PREFIX}{model}."),
        no_retries_without_network(),
    ):
        whole, _, transform = open_clip.create_model_and_transforms(model, tag or None)
    if weights is not None:
        state = load_network(weights, whole.state_dict())
        mine = {key.removeprefix(_IMAGE): value for key, value in state.tensors.items() if key.startswith(_IMAGE)}
        load_into(whole.visual, mine, weights)
        notes = state.notes(weights)
    whole.visual.output_tokens = False  # which those of CoCa give beside the features
    size = whole.visual.image_size
    height, width = (size, size) if isinstance(size, int) else size
    return PictureBackbone(whole.visual, transform, PREFIX + name, (height, width), weights=weights, notes=notes)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what OpenCLIP logs of weights that it has not, which errors say too."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
