"""Pictures decoded and prepared by threads, a little ahead of what uses them, each file once for all its boxes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Generic, NamedTuple, TypeVar

from PIL import Image

from ..data.reading.decode import read_picture
from ..errors import DataError
from .picture import Picture, cropped, unboxed

_MOST_WORKERS = 8
_AHEAD = 3  # Batches that are decoded ahead.
_LONG = 2  # Times the shorter side: from there, the centre square is less than half of a picture.
CENTRE = "Of pictures more than twice as long as wide, only the centre square is seen"

Pixels = TypeVar("Pixels")
Values = TypeVar("Values")
_Seen = tuple[Picture, Pixels | str, list[str]]  # With what was prepared of it or why it cannot be read, and remarks.


class Remark(NamedTuple):
    """A picture, and why it cannot be read; or how it is seen, in another way than a user may expect."""

    picture: Picture
    text: str  # A sentence; on how it is seen, the beginning of one.


@dataclass(frozen=True)
class Batch(Generic[Values]):
    """Pictures that could be read, and what was made of them: pixels, features, predictions; and those that could not.

    Predictions can be those of pictures of earlier batches, or come later.
    """

    pictures: list[Picture]
    values: Values
    problems: Sequence[Remark] = ()
    remarks: Sequence[Remark] = ()

    @property
    def looked_at(self) -> int:
        """How many pictures these are."""
        return len(self.pictures) + len(self.problems)


def decoded(
    pictures: Iterable[Picture], prepare: Callable[[Image.Image], Pixels], batch_size: int, centre_only: bool
) -> Iterator[Batch[list[Pixels]]]:
    """Batches of pictures, in their order; boxes of a file that follow each other share its decoding.

    Args:
        pictures: The pictures; an iterator is read only a little ahead.
        prepare: Called in the threads with an upright RGB picture.
        batch_size: Pictures in a batch.
        centre_only: Whether they are for a backbone that sees the centre only, so that long ones get a remark.

    Example:
        >>> from pathlib import Path
        >>> [batch] = decoded([Picture(Path("missing.png"))], lambda image: image.size, 1, centre_only=False)
        >>> batch.problems[0].text
        'Cannot read the image missing.png: No such file or directory.'
    """
    seen = _one_by_one(pictures, partial(_look_at, prepare, centre_only), _AHEAD * batch_size)
    while batch := list(islice(seen, batch_size)):
        read = [(picture, pixels) for picture, pixels, _ in batch if not isinstance(pixels, str)]
        yield Batch(
            [picture for picture, _ in read],
            [pixels for _, pixels in read],
            [Remark(picture, reason) for picture, reason, _ in batch if isinstance(reason, str)],
            [Remark(picture, how) for picture, _, remarks in batch for how in remarks],
        )


def _one_by_one(
    pictures: Iterable[Picture], look_at: Callable[[list[Picture]], list[_Seen[Pixels]]], ahead: int
) -> Iterator[_Seen[Pixels]]:
    """Each picture, so many files decoded ahead."""
    files = (list(each) for _, each in groupby(pictures, _shared))
    waiting: deque[Future[list[_Seen[Pixels]]]] = deque()
    pool = ThreadPoolExecutor(_workers(), thread_name_prefix="decode")
    try:
        while True:
            waiting.extend(pool.submit(look_at, each) for each in islice(files, ahead - len(waiting)))
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


def _look_at(
    prepare: Callable[[Image.Image], Pixels], centre_only: bool, pictures: list[Picture]
) -> list[_Seen[Pixels]]:
    """All pictures of a file."""
    file, _ = unboxed(pictures[0].path)
    remarks: list[str] = []
    try:
        image = read_picture(file, remarks.append)
    except DataError as error:
        return [(each, str(error), []) for each in pictures]
    found: list[_Seen[Pixels]] = []
    for each in pictures:
        (_, box), own = unboxed(each.path), [*remarks]
        try:
            part = image if box is None else cropped(image, box, file)
            if centre_only and max(part.size) > _LONG * min(part.size):
                own.append(CENTRE)
            found.append((each, prepare(part), own))
        except DataError as error:
            found.append((each, str(error), []))
    return found
