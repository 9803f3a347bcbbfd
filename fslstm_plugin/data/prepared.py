"""The prepared form of a data set: one ``.npy`` file a split and an index, written whole or not at all.

``<folder>/{train,val,test}.npy`` hold the images, uint8 ``(N, size, size, 3)``, class after class;
``<folder>/index.json``, written last, says how many images each class has, how long each file must be, and its
checksum, which is compared whenever a file is opened: about a second for a gigabyte.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..files import sync_folder

FORMAT = 1
INDEX = "index.json"


@dataclass(frozen=True)
class RawSplit:
    """The images of one split as a source offers them, not yet decoded.

    Args:
        name: ``"train"``, ``"val"`` or ``"test"``.
        classes: Class name to the images of that class, in any form that ``decode`` understands.
        decode: One such image to uint8 ``(size, size, 3)``.
    """

    name: str
    classes: Mapping[str, Sequence[Any] | np.ndarray]
    decode: Callable[[Any], np.ndarray]

    def counts(self) -> dict[str, int]:
        """How many images each class has."""
        return {name: len(images) for name, images in self.classes.items()}


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder that is removed afterwards, and with it the folder around it if that is empty then.

    The caller holds :func:`exclusive`, so the name can be fixed: what a killed process left under it is
    removed by the next one.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # an empty <root>/cifarfs would keep learn2learn from downloading
            path.parent.rmdir()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A :func:`scratch_folder` to fill, which becomes ``folder`` only if the block succeeds.

    Args:
        folder: Where the filled folder shall be; one that is there is replaced.

    Yields:
        An empty folder beside it.
    """
    with scratch_folder(folder.parent / f".{folder.name}.partial") as partial:
        yield partial
        sync_folder(partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
        sync_folder(folder.parent)


def write_prepared(folder: Path, header: Mapping[str, Any], image_size: int, splits: Iterable[RawSplit]) -> None:
    """Write the splits into ``folder``, which :func:`whole_folder` gave.

    Args:
        folder: An empty folder.
        header: What the index says about the data set; :func:`read_index` compares it.
        image_size: Height and width of every image.
        splits: The splits, decoded one image at a time.

    Raises:
        DataError: If an image has another shape.
    """
    index: dict[str, Any] = {**header, "format": FORMAT, "image_size": image_size, "splits": {}}
    for split in splits:
        path = folder / f"{split.name}.npy"
        checksum = _write_images(path, split, image_size)
        index["splits"][split.name] = {
            "bytes": path.stat().st_size, "crc32": checksum, "classes": split.counts()
        }  # fmt: skip
    with (folder / INDEX).open("w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)
        _flush(file)


def _write_images(path: Path, split: RawSplit, image_size: int) -> int:
    """The checksum of what was written, in plain writes: on a full disk these raise, a memory map kills the process."""
    checksum = 0
    shape = (image_size, image_size, 3)
    total = sum(split.counts().values())
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (total, *shape)})
        for name, images in split.classes.items():
            for item in images:
                image = split.decode(item)
                if image.shape != shape or image.dtype != np.uint8:
                    source = f" ({item})" if isinstance(item, Path) else ""
                    raise DataError(
                        f"An image of class '{name}'{source} is {image.dtype} {image.shape}, expected uint8 {shape}."
                    )
                content = image.tobytes()
                checksum = zlib.crc32(content, checksum)
                file.write(content)
        _flush(file)
    return checksum


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def read_index(folder: Path, header: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """The classes of each split, or None if the folder is absent, of another version or damaged.

    Args:
        folder: The prepared folder.
        header: As given to :func:`write_prepared`.

    Returns:
        Split name to class name to number of images.
    """
    try:
        index = _index(folder)
        if any(index[key] != value for key, value in {**header, "format": FORMAT}.items()):
            return None
        for name, split in index["splits"].items():
            if (folder / f"{name}.npy").stat().st_size != split["bytes"]:
                return None
        return {name: split["classes"] for name, split in index["splits"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _index(folder: Path) -> Any:
    return json.loads((folder / INDEX).read_text(encoding="utf-8"))


def open_images(folder: Path, split: str) -> np.ndarray:
    """The images of a split, memory-mapped; writing to them changes the copy in memory only.

    Raises:
        DataError: If they are not those that were written.
    """
    path = folder / f"{split}.npy"
    try:
        images = np.load(path, mmap_mode="c", allow_pickle=False)
        expected = _index(folder)["splits"][split].get("crc32")  # earlier versions wrote none
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}).") from error
    if expected is not None and zlib.crc32(images) != expected:
        raise DataError(f"{path} is damaged: its checksum is not the one that was written.")
    return images
