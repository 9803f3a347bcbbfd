"""The prepared form of a data set: one ``.npy`` file per split and an index, written whole or not at all.

``<folder>/{train,val,test}.npy`` hold the images, uint8 ``(N, size, size, 3)``, class after class;
``<folder>/index.json``, written last, says how many images each class has and the checksum of each split's images, and
ends with a checksum of its own. All checksums are compared whenever a file is opened.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..storage.damage import naming_damage
from ..storage.files import require_regular, sync

FORMAT = 2
INDEX = "index.json"
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class RawSplit:
    """The images of one split as a source offers them, not yet decoded."""

    name: str  # ``"train"``, ``"val"`` or ``"test"``.
    # Class name to the images of that class, in any form that ``decode`` understands.
    classes: Mapping[str, Sequence[Any] | np.ndarray]
    decode: Callable[[Any], np.ndarray]  # One such image to uint8 ``(size, size, 3)``.
    # Where one such image is in the source, which is read in this order. Default: class after class.
    place: Callable[[Any], int] = lambda _: 0

    def counts(self) -> dict[str, int]:
        """How many images each class has."""
        return {name: len(images) for name, images in self.classes.items()}


@dataclass(frozen=True)
class PreparedSplit:
    """What the index says about one split.

    The file of images, its length and checksum; height and width of every image; and how many each class has, in the
    order of the labels.
    """

    file: Path
    bytes: int
    crc32: int
    image_size: int
    classes: Mapping[str, int]

    def __post_init__(self) -> None:
        if not all(type(count) is int and count > 0 for count in self.classes.values()):
            raise DataError(f"The index of {self.file} does not count images in whole numbers above 0.")

    @property
    def digest(self) -> str:
        """Digest of the images and their classes, as 32 hexadecimal digits."""
        return _digest([self.crc32, self.image_size, list(self.classes.items())])


def write_prepared(folder: Path, header: Mapping[str, Any], image_size: int, splits: Iterable[RawSplit]) -> None:
    """Write the splits into an empty folder, one image at a time, with a header that `read_index` compares.

    Raises:
        DataError: If an image has another shape, or the splits are not train, val and test.
    """
    written = {}
    for split in splits:
        path = folder / f"{split.name}.npy"
        checksum = _write_images(path, split, image_size)
        written[split.name] = {"bytes": path.stat().st_size, "crc32": checksum, "classes": split.counts()}
    if sorted(written) != sorted(SPLITS):
        raise DataError(f"The splits must be {', '.join(SPLITS)}, but the source has {', '.join(written) or 'none'}.")
    index = {**header, "format": FORMAT, "image_size": image_size, "splits": written}
    (folder / INDEX).write_text(json.dumps({**index, "checksum": _digest(index)}, indent=1), encoding="utf-8")
    sync(folder / INDEX)


def _digest(content: Any) -> str:
    """Of plain data, in its own order: the order of the classes gives the labels their meaning."""
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _write_images(path: Path, split: RawSplit, image_size: int) -> int:
    """Write the images; return their checksum. Plain writes raise on a full disk; a memory map kills the process."""
    shape = (image_size, image_size, 3)
    items = [(name, item) for name, images in split.classes.items() for item in images]
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(items), *shape)}
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        for number in sorted(range(len(items)), key=lambda number: split.place(items[number][1])):
            name, item = items[number]
            image = split.decode(item)
            if image.shape != shape or image.dtype != np.uint8:
                source = f" ({item})" if isinstance(item, Path) else ""
                raise DataError(
                    f"An image of class '{name}'{source} is {image.dtype} {image.shape}, expected uint8 {shape}."
                )
            file.seek(begin + number * image.nbytes)
            file.write(image.tobytes())
    sync(path)
    return zlib.crc32(np.memmap(path, mode="r").data)


def read_index(folder: Path, header: Mapping[str, Any]) -> dict[str, PreparedSplit] | None:
    """What is prepared in a folder, by split; None if it is of another version, of this code or of the data set.

    Raises:
        DataError: If the index is missing or not as it was written, or a file of images has another length; the message
            names the file.
    """
    path = folder / INDEX
    try:
        with naming_damage(path):
            index = json.loads(require_regular(path).read_text(encoding="utf-8"))
            if any(index.get(key) != value for key, value in {**header, "format": FORMAT}.items()):
                return None
            if index.pop("checksum", None) != _digest(index):
                raise DataError(f"{path} is damaged: its checksum is not the one that was written.")
            splits = {
                name: PreparedSplit(folder / f"{name}.npy", image_size=index["image_size"], **index["splits"][name])
                for name in SPLITS
            }
            for split in splits.values():
                size = split.file.stat().st_size
                if size != split.bytes:
                    raise DataError(f"{split.file} is damaged: it has {size:,} bytes, expected {split.bytes:,}.")
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read ({error.strerror}).") from error
    return splits


def open_images(split: PreparedSplit) -> np.ndarray:
    """The images of a split, uint8 ``(N, size, size, 3)``, memory-mapped; writing changes the copy in memory only.

    Raises:
        DataError: If they are not those that were written; the message names the file.
    """
    with naming_damage(split.file):
        images = np.load(split.file, mmap_mode="c", allow_pickle=False)
        if zlib.crc32(np.memmap(split.file, mode="r").data) != split.crc32:
            raise DataError(f"{split.file} is damaged: its checksum is not the one that was written.")
    shape = (sum(split.classes.values()), split.image_size, split.image_size, 3)
    if images.dtype != np.uint8 or images.shape != shape:
        found = f"{images.dtype} {images.shape}"
        raise DataError(f"{split.file} is damaged: it holds {found}, but its index says uint8 {shape}.")
    return images
