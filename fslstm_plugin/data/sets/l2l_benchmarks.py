"""learn2learn's other image benchmarks, from its own files, from parquet files or class folders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError, count_of
from ..base import SPLITS
from ..prepared import RawSplit
from ..reading.archives import find_file, opened
from ..reading.decode import read_rgb
from ..reading.pickles import load_arrays, load_dict
from .mini import image_array, index_array
from .published import OtherVersion, PublishedDataset


class _PickledBenchmark(PublishedDataset):
    """A data set whose splits learn2learn keeps in pickles, their names with the split in them."""

    file_names: tuple[str, ...]
    max_bytes: int
    source_option = "--from DIR"

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits; without a source from where learn2learn keeps them. See `Dataset.read`."""
        with opened(source or root, self.archive_folder(root), self.max_bytes) as folder:
            if source and not any(find_file(folder, name.format(split="train")) for name in self.file_names):
                yield from self.read_source(folder, report)
                return
            for split in SPLITS:
                report(f"Reading the {split} images.")
                yield self.read_split(split, *(self._find(folder, name, split, root) for name in self.file_names))

    def _find(self, folder: Path, name: str, split: str, root: Path) -> Path:
        path = find_file(folder, name.format(split=split))
        if path is None:
            raise DataError(f"{folder} does not have {name.format(split=split)}: {self.remedy(root)}")
        return path

    @abstractmethod
    def read_split(self, split: str, *paths: Path) -> RawSplit:
        """One split from its files."""


class FC100Benchmark(_PickledBenchmark):
    """FC100 (Oreshkin et al. 2018): CIFAR-100 split by superclass, from learn2learn's ``fc100.zip`` or from CIFAR-100.

    The files of learn2learn have no class names; numbers stand for them.
    """

    name = "fc100"
    title = "FC100"
    image_size = 32
    classes: ClassVar = {"train": 60, "val": 20, "test": 20}
    images_per_class = 600
    lists = "fc100"
    name_form = "[a-z_]+"
    source_files = (
        "learn2learn's FC100_{train,val,test}.pickle (from its fc100.zip), or CIFAR-100 as cifar100.zip, class folders "
        "or parquet files,"
    )
    file_names = ("FC100_{split}.pickle",)
    max_bytes = 1 << 29  # the pickles hold 184 MB

    def read_split(self, split: str, *paths: Path) -> RawSplit:
        """One split from its pickle of ``data`` and ``labels``."""
        (path,) = paths
        content = load_dict(path, "data", "labels")
        images = image_array(content["data"], self.image_size, path)
        return RawSplit(split, _by_label(content["labels"], len(images), path), images.__getitem__)


class TieredImageNet(_PickledBenchmark):
    """tieredImageNet (Ren et al. 2018): 608 classes of ImageNet, split by category; from learn2learn's files, ImageNet.

    In learn2learn's files the numbers of the classes stand for their names; they need memory for the PNG files of one
    split, as in learn2learn itself.
    """

    name = "tiered"
    title = "tieredImageNet"
    image_size = 84
    classes: ClassVar = {"train": 351, "val": 97, "test": 160}
    images_per_class = None
    images_per_split: ClassVar = {"train": 448_695, "val": 124_261, "test": 206_209}
    lists = "tiered"
    name_form = r"n\d{8}"
    source_files = (
        "learn2learn's {train,val,test}_images_png.pkl and {train,val,test}_labels.pkl, or ImageNet's train folder or "
        "parquet files,"
    )
    file_names = ("{split}_images_png.pkl", "{split}_labels.pkl")
    max_bytes = 16 << 30  # 779,165 PNG files of 84x84 hold about 13 GB

    def read_split(self, split: str, *paths: Path) -> RawSplit:
        """One split from a pickled list of PNG files and a pickle of ``label_specific``."""
        images_path, labels_path = paths
        images = load_arrays(images_path)
        if not isinstance(images, list) or not all(isinstance(image, (np.ndarray, bytes)) for image in images):
            raise DataError(f"{images_path} is not a list of PNG images.")
        labels = load_dict(labels_path, "label_specific")["label_specific"]
        return RawSplit(
            split,
            _by_label(labels, len(images), labels_path),
            lambda index: read_rgb(bytes(images[index]), self.image_size),
        )


def _by_label(labels: Any, count: int, path: Path) -> dict[str, np.ndarray]:
    """Class number to the indices of its images."""
    numbers = index_array(labels, np.iinfo(np.int64).max, path)
    if len(numbers) != count:
        raise DataError(f"{path} has {count_of(len(numbers), 'label')} for {count_of(count, 'image')}.")
    return {str(label): np.flatnonzero(numbers == label) for label in np.unique(numbers)}


FC100 = FC100Benchmark()
FC100_OTHER = OtherVersion(FC100)
TIERED = TieredImageNet()
TIERED_OTHER = OtherVersion(TIERED)
