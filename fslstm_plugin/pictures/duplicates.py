"""Pictures that are the same to a backbone, whatever their files' names and formats."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from torch import Tensor

from ..classifier.inspection import near_duplicates
from ..errors import DataError
from .picture import Picture, read_boxed

# Distance of their features over their length. Rounding leaves none on a processor and little between devices; with
# EfficientNet-Lite0 a scratch of 10 x 1 pixels makes 0.035, saving again as JPEG of quality 98 makes 0.015, and of 2400
# pictures of CIFAR-FS two are 0.2 apart or more.
_SAME = 0.005


def duplicates(pictures: Sequence[Picture], features: Tensor) -> list[list[Picture]]:
    """Groups of two or more pictures of a class whose features ``(n, d)`` are the same but for rounding, in order.

    Where such two are in different classes, their pixels are compared: other pictures may look the same to a backbone,
    such as long ones, of which it sees the centre. From the same picture with two labels no method can learn.

    Example:
        >>> import torch
        >>> from pathlib import Path
        >>> pictures = [Picture(Path(name), "cat") for name in ("a.png", "b.png", "c.png")]
        >>> found = duplicates(pictures, torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
        >>> [[picture.path.name for picture in group] for group in found]
        [['a.png', 'c.png']]
    """
    same = _comparison(pictures)
    earliest: dict[int, int] = {}
    for one, others in near_duplicates(features.double(), _SAME):
        for again in others:
            if again not in earliest and same(one, again):
                earliest[again] = earliest.get(one, one)
    groups: dict[int, list[Picture]] = defaultdict(list)
    for place, picture in enumerate(pictures):
        groups[earliest.get(place, place)].append(picture)
    found = [group for group in groups.values() if len(group) > 1]
    for kept, *copies in found:
        if other := next((copy for copy in copies if copy.label != kept.label), None):
            raise DataError(
                f"The same picture is in two classes: {kept.path} as '{kept.label}' and {other.path} as "
                f"'{other.label}'. Remove it from one of them."
            )
    return found


def corrections(known: Sequence[Picture], new: Sequence[Picture], features: Tensor) -> dict[int, Picture]:
    """Known pictures that are among the new ones with another label: by its place, the first such new picture.

    The features ``(n, d)`` are of the known and the new ones, in this order; a new one has one label only.

    Example:
        >>> import torch
        >>> from pathlib import Path
        >>> a, b = Picture(Path("a.png"), "cat"), Picture(Path("b.png"), "dog")
        >>> corrections([a], [b], torch.tensor([[1.0, 2.0], [1.0, 2.0]]))[0].label
        'dog'
    """
    pictures = [*known, *new]
    same = _comparison(pictures)
    found = {}
    for one, others in near_duplicates(features.double(), _SAME):
        for other in others:
            if one < len(known) <= other and known[one].label != pictures[other].label and same(one, other):
                found[one] = pictures[other]
                break
    return found


def _comparison(pictures: Sequence[Picture]) -> Callable[[int, int], bool]:
    """Whether two pictures that are the same to the backbone are so in their pixels, where their labels differ."""
    pixels = cache(_pixels)

    def same(one: int, other: int) -> bool:
        first, second = pictures[one], pictures[other]
        return first.label == second.label or len({pixels(first.path), pixels(second.path)} - {None}) < 2

    return same


def _pixels(path: Path) -> bytes | None:
    """Digest of a picture's pixels; None if it is no longer there, so that only its features can be compared."""
    try:
        image = read_boxed(path)
    except DataError:
        return None
    return hashlib.blake2b(repr(image.size).encode() + image.tobytes()).digest()
