"""Features of any number of pictures in constant memory: threads decode while the backbone works."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import require
from ..data.reading.decode import read_picture
from ..errors import DataError
from ..pretrained.backbone import PictureBackbone
from .listing import Picture

_AHEAD = 2  # Batches that are decoded while the backbone works on another.
_MOST_WORKERS = 8

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
        workers: Threads that decode. Default None: one for each core that this process may use, 8 at most.

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
    workers = _cores() if workers is None else require("workers", workers, least=1, whole=True)
    remaining = iter(pictures)
    waiting: deque[tuple[list[Picture], list[Future[_Prepared]]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    try:
        while True:
            while len(waiting) <= _AHEAD and (chunk := list(islice(remaining, batch_size))):
                waiting.append((chunk, [pool.submit(_prepare, each, backbone) for each in chunk]))
            if not waiting:
                return
            chunk, futures = waiting.popleft()
            yield _embed(chunk, [future.result() for future in futures], backbone)
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _MOST_WORKERS)


class _Prepared(NamedTuple):
    """What the backbone sees of a picture, or why it cannot be read, and what is to be remarked."""

    pixels: Tensor | str
    remarks: list[str]


def _prepare(picture: Picture, backbone: PictureBackbone) -> _Prepared:
    remarks: list[str] = []
    try:
        image = read_picture(picture.path, remarks.append)
    except DataError as error:
        return _Prepared(str(error), [])
    if max(image.size) > _LONG * min(image.size) and backbone.sees_the_centre_only:
        remarks.append(CENTRE)
    return _Prepared(backbone.preprocess(image), remarks)


def _embed(pictures: list[Picture], found: list[_Prepared], backbone: PictureBackbone) -> Batch:
    remarks = [Remark(picture, how) for picture, each in zip(pictures, found, strict=True) for how in each.remarks]
    batch = Batch([], torch.zeros(0, backbone.out_features), [], remarks)
    pixels = []
    for picture, (each, _) in zip(pictures, found, strict=True):
        if isinstance(each, str):
            batch.problems.append(Problem(picture, each))
            continue
        batch.pictures.append(picture)
        pixels.append(each)
    if not pixels:
        return batch
    return batch._replace(features=backbone(torch.stack(pixels).to(backbone.device)).cpu())
