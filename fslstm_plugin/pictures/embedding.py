"""Features of any number of pictures in constant memory: threads decode while the backbone works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from ..checks import require
from ..pretrained.backbone import PictureBackbone
from .decoding import Decoded, decoded
from .picture import Picture

_AHEAD = 3  # Batches that are decoded ahead.

_LONG = 2  # Times the shorter side: from there, the centre square is less than half of a picture.
CENTRE = "Of pictures more than twice as long as wide, only the centre square is seen"


class Problem(NamedTuple):
    """A picture that cannot be read, and why, in a sentence."""

    picture: Picture
    reason: str


class Remark(NamedTuple):
    """A picture that is seen in another way than a user may expect, and how, as the beginning of a sentence."""

    picture: Picture
    how: str


class Batch(NamedTuple):
    """Features of some pictures.

    Args:
        pictures: Those that could be read.
        features: Theirs, float32 ``(b, d)`` on the CPU; b may be 0.
        problems: Those that could not.
        remarks: On those that could.
    """

    pictures: list[Picture]
    features: Tensor
    problems: list[Problem]
    remarks: Sequence[Remark] = ()


def features_of(
    pictures: Iterable[Picture],
    backbone: PictureBackbone,
    batch_size: int | None = None,
    workers: int | None = None,
) -> Iterator[Batch]:
    """Features in the order of the pictures.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        backbone: On the device where it shall compute.
        batch_size: Pictures at a time. Default None: `PictureBackbone.batch_size`.
        workers: See `decoded`. Default None.

    Yields:
        A batch for each ``batch_size`` pictures, in which unreadable ones are told apart.

    Raises:
        UsageError: If ``batch_size`` or ``workers`` is not positive.

    Example:
        >>> from pathlib import Path
        >>> from fslstm_plugin.pretrained import open_backbone
        >>> for batch in features_of([Picture(Path("missing.png"))], open_backbone()):
        ...     print(len(batch.pictures), tuple(batch.features.shape), batch.problems[0].reason)
        0 (0, 1280) Cannot read the image missing.png: No such file or directory.
    """
    if batch_size is None:
        batch_size = backbone.batch_size
    require("batch_size", batch_size, least=1, whole=True)

    def prepare(image: Image.Image, report: Callable[[str], object]) -> Tensor:
        if max(image.size) > _LONG * min(image.size) and backbone.sees_the_centre_only:
            report(CENTRE)
        return backbone.preprocess(image)

    found = decoded(pictures, prepare, _AHEAD * batch_size, workers)
    while chunk := list(islice(found, batch_size)):
        yield _embed(chunk, backbone)


def _embed(found: list[Decoded[Tensor]], backbone: PictureBackbone) -> Batch:
    remarks = [Remark(each.picture, how) for each in found for how in each.remarks]
    batch = Batch([], torch.zeros(0, backbone.out_features), [], remarks)
    pixels = []
    for each in found:
        if isinstance(each.pixels, str):
            batch.problems.append(Problem(each.picture, each.pixels))
            continue
        batch.pictures.append(each.picture)
        pixels.append(each.pixels)
    if not pixels:
        return batch
    return batch._replace(features=backbone(torch.stack(pixels).to(backbone.device)).cpu())
