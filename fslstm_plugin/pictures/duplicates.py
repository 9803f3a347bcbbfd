"""Pictures that are the same to a backbone, whatever their files' names and formats."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from torch import Tensor

from ..classifier.inspection import near_duplicates
from ..errors import DataError
from .boxes import read_boxed
from .picture import Picture

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
    earliest: dict[int, int] = {}
    for one, again in _same(pictures, features):
        earliest.setdefault(again, earliest.get(one, one))
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
    """Known pictures that are among the new ones with another label: by its place, the new picture.

    The features ``(n, d)`` are of the known and the new ones, in this order; a new one has one label only.

    Example:
        >>> import torch
        >>> from pathlib import Path
        >>> a, b = Picture(Path("a.png"), "cat"), Picture(Path("b.png"), "dog")
        >>> corrections([a], [b], torch.tensor([[1.0, 2.0], [1.0, 2.0]]))[0].label
        'dog'
    """
    pairs = ((one, other - len(known)) for one, other in _same([*known, *new], features) if one < len(known) <= other)
    return {one: new[other] for one, other in pairs if known[one].label != new[other].label}


def _same(pictures: Sequence[Picture], features: Tensor) -> Iterator[tuple[int, int]]:
    """Pairs that are the same to the backbone and, where their labels differ, in their pixels; the earlier first."""
    features = features.double()
    pixels = cache(_pixels)
    for one, other in near_duplicates(features, 1 - _SAME**2):
        if (features[one] - features[other]).norm() <= _SAME * features[one].norm():
            first, second = pictures[one], pictures[other]
            digests = {pixels(each.path) for each in (first, second) if first.label != second.label} - {None}
            if len(digests) < 2:
                yield one, other


def _pixels(path: Path) -> bytes | None:
    """Digest of a picture's pixels; None if it is no longer there, so that only its features can be compared."""
    try:
        image = read_boxed(path)
    except DataError:
        return None
    return hashlib.blake2b(repr(image.size).encode() + image.tobytes()).digest()
