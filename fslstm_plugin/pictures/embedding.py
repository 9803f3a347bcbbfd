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
from .decoding import Decoded, Remark, decoded, remarks_on, report_long
from .picture import Picture

_AHEAD = 3  # Batches that are decoded ahead.


class Problem(NamedTuple):
    """A picture that cannot be read, and why, in a sentence."""

    picture: Picture
    reason: str


class Batch(NamedTuple):
    """Pictures that could be read, with their features, float32 ``(b, d)`` on the CPU; and those that could not."""

    pictures: list[Picture]
    features: Tensor
    problems: list[Problem]
    remarks: Sequence[Remark] = ()


def features_of(
    pictures: Iterable[Picture], backbone: PictureBackbone, batch_size: int | None = None
) -> Iterator[Batch]:
    """Features in the order of the pictures, a batch for each ``batch_size`` of them.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        backbone: On the device where it shall compute.
        batch_size: Pictures at a time. Default None: `PictureBackbone.batch_size`.

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
        if backbone.sees_the_centre_only:
            report_long(image, report)
        return backbone.preprocess(image)

    found = decoded(pictures, prepare, _AHEAD * batch_size)
    while chunk := list(islice(found, batch_size)):
        yield _embed(chunk, backbone)


def _embed(found: list[Decoded[Tensor]], backbone: PictureBackbone) -> Batch:
    problems = [Problem(each.picture, each.pixels) for each in found if isinstance(each.pixels, str)]
    remarks = remarks_on(found)
    pictures = [each.picture for each in found if not isinstance(each.pixels, str)]
    pixels = [each.pixels for each in found if not isinstance(each.pixels, str)]
    if not pixels:
        return Batch([], torch.zeros(0, backbone.out_features), problems, remarks)
    return Batch(pictures, backbone(torch.stack(pixels).to(backbone.device)).cpu(), problems, remarks)
