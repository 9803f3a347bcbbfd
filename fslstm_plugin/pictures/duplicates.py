"""Pictures that are the same, pixel by pixel, whatever their files' names and formats."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from PIL import Image

from ..errors import DataError
from .listing import Picture


def digest_of(image: Image.Image) -> str:
    """Digest of a decoded picture's size and pixels, blake2b of 16 bytes in hexadecimal.

    Example:
        >>> digest_of(Image.new("RGB", (4, 6))) == digest_of(Image.new("RGB", (6, 4)))
        False
    """
    digest = hashlib.blake2b(f"{image.mode} {image.size} ".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def duplicates(pictures: Sequence[Picture], digests: Sequence[str]) -> list[list[Picture]]:
    """Groups of two or more pictures that are the same.

    Args:
        pictures: The pictures.
        digests: Theirs, from `features_of`.

    Returns:
        The groups, each in the order of the pictures, in the order of their first ones.

    Raises:
        DataError: If the same picture has two labels: no method can learn from it.

    Example:
        >>> from pathlib import Path
        >>> pictures = [Picture(Path(name), "cat") for name in ("a.png", "b.png", "c.png")]
        >>> [[picture.path.name for picture in group] for group in duplicates(pictures, ["1", "2", "1"])]
        [['a.png', 'c.png']]
    """
    groups: dict[str, list[Picture]] = defaultdict(list)
    for picture, digest in zip(pictures, digests, strict=True):
        groups[digest].append(picture)
    found = [group for group in groups.values() if len(group) > 1]
    for first, *others in found:
        for other in others:
            if other.label != first.label:
                raise DataError(
                    f"The same picture is in two classes: {first.path} as '{first.label}' and {other.path} as "
                    f"'{other.label}'. Remove it from one of them."
                )
    return found
