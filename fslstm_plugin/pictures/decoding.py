"""Pictures decoded and prepared by threads, a little ahead of what uses them, each file once for all its boxes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Generic, NamedTuple, TypeVar

from PIL import Image

from ..data.reading.decode import read_picture
from ..errors import DataError
from .boxes import cropped, unboxed
from .picture import Picture

_MOST_WORKERS = 8
_LONG = 2  # Times the shorter side: from there, the centre square is less than half of a picture.
CENTRE = "Of pictures more than twice as long as wide, only the centre square is seen"

Pixels = TypeVar("Pixels")
Prepare = Callable[[Image.Image, Callable[[str], object]], Pixels]


@dataclass(frozen=True)
class Decoded(Generic[Pixels]):
    """A picture that was looked at."""

    picture: Picture
    pixels: Pixels | str  # What was prepared of it, or why it cannot be read, in a sentence.
    remarks: list[str] = field(default_factory=list)  # How it is seen in another way than a user may expect.


class Remark(NamedTuple):
    """A picture that is seen in another way than a user may expect, and how, as the beginning of a sentence."""

    picture: Picture
    how: str


def remarks_on(found: Iterable[Decoded[Pixels]]) -> list[Remark]:
    """The remarks on all pictures."""
    return [Remark(each.picture, how) for each in found for how in each.remarks]


def report_long(image: Image.Image, report: Callable[[str], object]) -> None:
    """Report a long picture, for a backbone that sees the centre only."""
    if max(image.size) > _LONG * min(image.size):
        report(CENTRE)


def decoded(pictures: Iterable[Picture], prepare: Prepare[Pixels], ahead: int) -> Iterator[Decoded[Pixels]]:
    """Each picture, in their order; boxes of a file that follow each other share its decoding.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        prepare: Called in the threads with an upright RGB picture and a function that takes remarks.
        ahead: How many files are decoded ahead.

    Example:
        >>> from pathlib import Path
        >>> [each] = decoded([Picture(Path("missing.png"))], lambda image, _: image.size, ahead=1)
        >>> each.pixels
        'Cannot read the image missing.png: No such file or directory.'
    """
    files = (list(each) for _, each in groupby(pictures, _shared))
    waiting: deque[Future[list[Decoded[Pixels]]]] = deque()
    pool = ThreadPoolExecutor(_workers(), thread_name_prefix="decode")
    try:
        while True:
            waiting.extend(pool.submit(_look_at, each, prepare) for each in islice(files, ahead - len(waiting)))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _workers() -> int:
    """A thread for each core that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _MOST_WORKERS)


def _shared(picture: Picture) -> object:
    """What only the boxes of one file have in common."""
    file, box = unboxed(picture.path)
    return object() if box is None else file


def _look_at(pictures: list[Picture], prepare: Prepare[Pixels]) -> list[Decoded[Pixels]]:
    """All pictures of a file."""
    file, _ = unboxed(pictures[0].path)
    remarks: list[str] = []
    try:
        image = read_picture(file, remarks.append)
    except DataError as error:
        return [Decoded(each, str(error)) for each in pictures]
    found = []
    for each in pictures:
        (_, box), own = unboxed(each.path), [*remarks]
        try:
            part = image if box is None else cropped(image, box, file)
            found.append(Decoded(each, prepare(part, own.append), own))
        except DataError as error:
            found.append(Decoded(each, str(error)))
    return found
