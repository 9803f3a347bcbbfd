"""learn2learn's other image benchmarks, from its own files, from parquet files or class folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError, count_of
from ..prepared import RawSplit
from ..reading.decode import read_rgb
from ..reading.pickles import load_arrays, load_dict
from .mini import image_array, index_array
from .published import FiledDataset, OtherVersion


class FC100Benchmark(FiledDataset):
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
    train_files = ("FC100_train.pickle",)
    max_bytes = 1 << 29  # the pickles hold 184 MB

    def read_split(self, split: str, find: Callable[..., Path], source: Path | None) -> RawSplit:
        """One split from its pickle of ``data`` and ``labels``."""
        path = find(f"FC100_{split}.pickle")
        content = load_dict(path, "data", "labels")
        images = image_array(content["data"], self.image_size, path)
        return RawSplit(split, _by_label(content["labels"], len(images), path), images.__getitem__)


class TieredImageNet(FiledDataset):
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
    train_files = ("train_images_png.pkl", "train_labels.pkl")
    max_bytes = 16 << 30  # 779,165 PNG files of 84x84 hold about 13 GB

    def read_split(self, split: str, find: Callable[..., Path], source: Path | None) -> RawSplit:
        """One split from a pickled list of PNG files and a pickle of ``label_specific``."""
        images_path, labels_path = (find(f"{split}_{each}.pkl") for each in ("images_png", "labels"))
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
