"""A data set's images where people keep them: parquet files, or folders of classes, with splits or without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...errors import DataError
from .decode import read_rgb
from .parquet import ParquetTable
from .walk import SPLIT_OF, PassedOver, Report, class_folders, entries

# An image that is not yet decoded: its file, or what gives its bytes from the row of a table.
Encoded: TypeAlias = "Path | partial[bytes]"

# Images by split and class; the split is "" where the source has none.
Images: TypeAlias = "dict[str, Mapping[str, Sequence[Encoded]]]"

_DEPTH = 3  # ILSVRC/Data/CLS-LOC/train


def pixels(image: Encoded, image_size: int) -> np.ndarray:
    """An image decoded by `read_rgb`."""
    return read_rgb(image if isinstance(image, Path) else image(), image_size)


def place(image: Encoded) -> int:
    """The row of an image in its table; 0 for a file."""
    return 0 if isinstance(image, Path) else image.args[0]


def read_images(source: Path, known: Collection[str], report: Report) -> Images:
    """The images of a folder or parquet file, by split and class, not yet decoded.

    The source is a parquet file; or a folder with parquet files, with ``train``, ``val`` and ``test``, or with folders
    named as known classes are, in it or up to three folders below. Where the splits, if any, share classes, classes
    that are not known are passed over. On what is passed over there is a report.

    Raises:
        DataError: If there is nothing of the kind, or it is damaged.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / "data" / name).mkdir(parents=True)
        ...     (folder / "data" / name / "1.png").touch()
        >>> [(split, list(classes)) for split, classes in read_images(folder, {"cat"}, print).items()]
        [('', ['cat'])]
    """
    if files := _parquet_files(source):
        return _of_parquet(files)
    for place in _places(source) if source.is_dir() else ():
        if splits := _splits_in(place):
            names = {split: {each.name for each in _folders(folder)} for split, folder in splits.items()}
            only = None if are_disjoint(names) else known
            return {split: class_folders(folder, report, only) for split, folder in splits.items()}
        if any(each.name in known for each in _folders(place)):
            return {"": class_folders(place, report, known)}
    raise DataError(
        f"{source} holds neither parquet files, nor train, val and test folders with a folder per class, nor folders "
        f"named as the classes are ({', '.join(sorted(known)[:3])}, ...)."
    )


def are_disjoint(splits: Mapping[str, Collection[str]]) -> bool:
    """Whether there are several splits, and no class is in two of them.

    Example:
        >>> are_disjoint({"train": ["cat"], "test": ["dog"]}), are_disjoint({"": ["cat"]})
        (True, False)
    """
    return len(splits) > 1 and len(set().union(*splits.values())) == sum(map(len, splits.values()))


def _places(source: Path) -> Iterator[Path]:
    """The folder, and those below, nearest first."""
    places = [source]
    for _ in range(_DEPTH + 1):
        yield from places
        places = [below for place in places for below in _folders(place)]


def _splits_in(place: Path) -> dict[str, Path]:
    """The folders of splits, which have folders in them."""
    found: dict[str, Path] = {}
    for folder in _folders(place):
        split = SPLIT_OF.get(folder.name.lower())
        if split is None or not _folders(folder):
            continue
        if split in found:
            raise DataError(f"Two folders hold {split} images, {found[split]} and {folder}: put them into one.")
        found[split] = folder
    return found


def _folders(place: Path) -> list[Path]:
    return [Path(entry.path) for entry in entries(place, PassedOver()) if entry.is_dir()]


def _parquet_files(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(source.rglob("*.parquet"))
    return [source] if source.suffix.lower() == ".parquet" else []


def _of_parquet(files: list[Path]) -> Images:
    by_split: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        by_split[_split_of(path)].append(path)
    return {split: _rows(ParquetTable(paths)) for split, paths in sorted(by_split.items())}


def _rows(table: ParquetTable) -> dict[str, list[Encoded]]:
    return {name: [partial(table.image, row) for row in rows] for name, rows in sorted(table.classes().items())}


def _split_of(path: Path) -> str:
    """From its name or that of its folder: ``data/train-00000-of-00002.parquet``, ``validation/0.parquet``."""
    words = (path.stem.lower().replace("_", "-").split("-")[0], path.parent.name.lower())
    return next((SPLIT_OF[word] for word in words if word in SPLIT_OF), "")
