"""miniImageNet: 100 classes of ImageNet, 64/16/20 (Ravi and Larochelle 2017), 600 images of 84x84 each."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...errors import DataError
from ...recipes import DatasetRecipe
from ...storage.tables import rows
from ..prepared import RawSplit
from ..reading.decode import read_rgb
from ..reading.pickles import load_dict
from .published import FiledDataset, OtherVersion

# learn2learn's names of the splits
_MODES = {"train": "train", "val": "validation", "test": "test"}


class MiniImageNet(FiledDataset):
    """miniImageNet from learn2learn's three pickles, a folder of images, ImageNet or parquet files.

    The source is a folder or an archive with one of

    * ``mini-imagenet-cache-{train,validation,test}.pkl``;
    * the split lists ``{train,val,test}.csv`` (columns ``filename`` and ``label``) and the images, as
      ``<label>/<filename>``, ``images/<filename>``, ``images/<label>/<filename>`` or
      ``<split>/<label>/<filename>`` beside the lists, or as ImageNet's own files, ``<label>/<label>_<number>.JPEG`` or
      ``train/<label>/<label>_<number>.JPEG``: ``n0153282900000005.jpg`` is the fifth of its class by number;
    * what `PublishedDataset.read_source` reads; classes are named by their WordNet ids.

    Images of another size have their shorter side resized to 84 pixels (bicubic) and the centre of the longer one kept.
    """

    name = "mini"
    title = "miniImageNet"
    image_size = 84
    classes: ClassVar = {"train": 64, "val": 16, "test": 20}
    images_per_class = 600
    lists = "mini"
    name_form = r"n\d{8}"
    train_files = ("mini-imagenet-cache-train.pkl", "train.csv")
    max_bytes = 10 << 30  # the pickles hold 1.3 GB, the original photographs about 7
    recipe = DatasetRecipe(many_shots=15, iam_reduction=16)
    source_files = (
        "learn2learn's mini-imagenet-cache-{train,validation,test}.pkl (or parquet files, class folders, or ImageNet's "
        "train folder with the lists {train,val,test}.csv of Ravi and Larochelle)"
    )

    def read_split(self, split: str, find: Callable[..., Path], source: Path | None) -> RawSplit:
        """One split from its pickle or its list."""
        lists = [f"{split}.csv"] if source else []  # of those under the root, some may be another data set's
        found = find(f"mini-imagenet-cache-{_MODES[split]}.pkl", *lists)
        return (_from_list if found.suffix == ".csv" else _from_pickle)(split, found, self.image_size)


def _from_pickle(split: str, path: Path, image_size: int) -> RawSplit:
    """``image_data`` holds the images, ``class_dict`` the indices of those of each class."""
    content = load_dict(path, "image_data", "class_dict")
    images = image_array(content["image_data"], image_size, path)
    members = content["class_dict"]
    if not isinstance(members, dict):
        raise DataError(f"class_dict in {path} is no dictionary of class names.")
    indices = {str(name): index_array(values, len(images), path) for name, values in members.items()}
    return RawSplit(split, indices, images.__getitem__)


def image_array(value: Any, image_size: int, path: Path) -> np.ndarray:
    """The images of a pickle; a `DataError` if they are not uint8 ``(N, image_size, image_size, 3)``."""
    shape = (image_size, image_size, 3)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.shape[1:] != shape:
        found = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DataError(f"The images in {path} are {found}, expected uint8 (N, {image_size}, {image_size}, 3).")
    return value.view(np.ndarray)


def index_array(values: Any, count: int, path: Path) -> np.ndarray:
    """Indices or labels of a pickle as int64; a `DataError` if they are not integers from 0 to ``count - 1``."""
    try:
        indices = np.asarray(values)
    except ValueError:  # a ragged list
        indices = np.empty(0)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or np.any((indices < 0) | (indices >= count)):
        raise DataError(f"{path} has indices that are not integers from 0 to {count - 1}.")
    return indices.astype(np.int64)


def _from_list(split: str, path: Path, image_size: int) -> RawSplit:
    classes: dict[str, list[Path]] = {}
    for _, cells in rows(path, ("filename", "label")):
        name, label = cells["filename"], cells["label"]
        image = _image_path(path.parent, split, label, name)
        if image is None:
            raise DataError(f"{path} lists the image '{name}' of class '{label}', which is not there.")
        classes.setdefault(label, []).append(image)
    return RawSplit(split, classes, partial(read_rgb, image_size=image_size))


def _image_path(folder: Path, split: str, label: str, name: str) -> Path | None:
    if Path(name).name != name or Path(label).name != label:
        return None
    places = (Path(label), Path("images"), Path("images", label), Path(split, label))
    found = next((folder / place / name for place in places if (folder / place / name).is_file()), None)
    return found or _of_imagenet(folder, label, name)


def _of_imagenet(folder: Path, label: str, name: str) -> Path | None:
    """ImageNet's file for a name of the lists, which has the position among its class's files, by number."""
    position = Path(name).stem.removeprefix(label)
    if not position.isdecimal():
        return None
    files = _by_number(folder / label, label) or _by_number(folder / "train" / label, label)
    return files[int(position) - 1] if 0 < int(position) <= len(files) else None


@lru_cache(maxsize=2)  # the lists have the images of one class after another, which is in one of two folders
def _by_number(folder: Path, label: str) -> list[Path]:
    numbered = {path: path.stem.removeprefix(f"{label}_") for path in folder.glob(f"{label}_*")}
    return sorted((path for path in numbered if numbered[path].isdecimal()), key=lambda path: int(numbered[path]))


MINI = MiniImageNet()
MINI_OTHER = OtherVersion(MINI)
