"""CIFAR-FS: the 100 classes of CIFAR-100, 64/16/20, 600 images each (Bertinetto et al. 2019).

An archive is first brought into learn2learn's own folders, so that ``learn2learn.vision.datasets.CIFARFS(root)``
finds its data too, and the prepared form is made from these: both archives give identical arrays.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from ...errors import DataError
from ...storage.folders import partial_folder, scratch_folder, whole_folder
from ..base import SPLITS
from ..prepared import RawSplit
from ..reading.archives import extract
from ..reading.decode import read_rgb
from ..reading.pickles import load_dict
from .published import OtherVersion, PublishedDataset

MAX_BYTES = 1 << 30  # the original archive holds 178 MB, learn2learn's 134 MB


class CIFARFS(PublishedDataset):
    """CIFAR-FS from learn2learn's ``cifar100.zip``, the original ``cifar-100-python.tar.gz``, class folders or parquet.

    Without a source: what learn2learn left under the root, if it is complete, else, if there is nothing,
    torchvision's verified download. An archive replaces what is there.

    Example:
        >>> CIFAR_FS.is_prepared(Path("nowhere")), CIFAR_FS.split_classes("val")[:3]
        (False, ['beaver', 'beetle', 'butterfly'])
    """

    name = "cifar-fs"
    title = "CIFAR-FS"
    image_size = 32
    classes: ClassVar = {"train": 64, "val": 16, "test": 20}
    images_per_class = 600
    lists = "cifarfs"
    name_form = "[a-z_]+"
    source_option = "--archive cifar100.zip"
    source_files = "learn2learn's cifar100.zip (or the original cifar-100-python.tar.gz, class folders, parquet files)"

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits, the images of a class ordered by file name; see `Dataset.read`."""
        if source and (source.is_dir() or source.suffix.lower() == ".parquet"):
            yield from self.read_source(source, report)
            return
        folder = self._images_folder(root)
        if source is None and folder.exists():
            report(f"Using the images in {folder}.")
            self._check_found(folder, root)
        else:
            self._fill(folder, root, source, report)
        self._link_processed(self._links_folder(root), report)
        for split in SPLITS:
            report(f"Reading the {split} images.")
            yield self._raw_split(folder / "data", split)

    def partial_folders(self, root: Path) -> list[Path]:
        """Those of learn2learn's folders too; see `Dataset.partial_folders`."""
        own = [partial_folder(self._images_folder(root)), partial_folder(self._links_folder(root))]
        return [*super().partial_folders(root), *own]

    def remedy(self, root: Path) -> str:
        """The download first; see `Dataset.remedy`."""
        command = f"fslstm data prepare {self.name} --data-root {shlex.quote(str(root))}"
        return f"run `{command}`, which downloads it, or {super().remedy(root)}"

    def archive_folder(self, root: Path) -> Path:
        """On the same disk as learn2learn's folders, into which its content is moved."""
        return partial_folder(root / "cifarfs" / "archive")

    def _images_folder(self, root: Path) -> Path:
        return root / "cifarfs" / "cifar100"

    def _links_folder(self, root: Path) -> Path:
        return root / "cifarfs" / "processed"

    def _check_found(self, folder: Path, root: Path) -> None:
        """Refuse a folder that an interrupted download or extraction left."""
        try:
            for split in SPLITS:
                self._checked(self._raw_split(folder / "data", split))
                path = _split_list(folder, split)
                if not path.is_file() or sorted(path.read_text(encoding="utf-8").split()) != self.split_classes(split):
                    raise DataError(f"{path} does not list the {split} classes.")
        except (DataError, UnicodeDecodeError) as error:
            raise DataError(
                f"{folder} is incomplete ({str(error).rstrip('.')}): remove it to download {self.title} anew, "
                f"or {super().remedy(root)}"
            ) from error

    def _fill(self, folder: Path, root: Path, source: Path | None, report: Callable[[str], None]) -> None:
        """Make learn2learn's folder from an archive, whole or not at all."""
        with whole_folder(folder) as partial, scratch_folder(self.archive_folder(root)) as scratch:
            archive = source or self._download(scratch, root, report)
            report(f"Extracting {archive}.")
            extract(archive, scratch, MAX_BYTES)
            if (scratch / "cifar100" / "data").is_dir():
                (scratch / "cifar100" / "data").rename(partial / "data")
            elif (scratch / "cifar-100-python").is_dir():
                report("Writing the images as PNG files, as learn2learn has them.")
                self._write_pngs(scratch / "cifar-100-python", partial / "data")
            else:
                raise DataError(
                    f"{archive} holds neither cifar100/data (as learn2learn's cifar100.zip) nor "
                    "cifar-100-python (as the original archive): it is not CIFAR-100."
                )
            for split in SPLITS:
                self._checked(self._raw_split(partial / "data", split))
                path = _split_list(partial, split)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f"{name}\n" for name in self.split_classes(split)), encoding="utf-8")

    def _link_processed(self, folder: Path, report: Callable[[str], None]) -> None:
        """learn2learn's second copy of the images, by split, as links; learn2learn itself may leave it incomplete."""
        if folder.exists():
            if all(self._is_whole(folder / split, split) for split in SPLITS):
                return
            report(f"{folder}, learn2learn's copy of the images, is incomplete or has other classes: making it again.")
        with whole_folder(folder) as partial:
            for split in SPLITS:
                (partial / split).mkdir()
                for name in self.split_classes(split):
                    (partial / split / name).symlink_to(Path("..", "..", "cifar100", "data", name), True)

    def _is_whole(self, folder: Path, split: str) -> bool:
        """Whether a folder has the classes of the split, every image of each, and no other class."""
        found = {path.name for path in folder.glob("*") if path.is_dir()}
        counts = self._raw_split(folder, split).counts().values()
        return found == set(self.split_classes(split)) and set(counts) == {self.images_per_class}

    def _download(self, folder: Path, root: Path, report: Callable[[str], None]) -> Path:
        from torchvision.datasets import CIFAR100
        from torchvision.datasets.utils import download_url

        report(f"Downloading {CIFAR100.url}.")
        try:
            download_url(CIFAR100.url, str(folder), CIFAR100.filename, CIFAR100.tgz_md5)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{self.title} is not in {root} and could not be downloaded ({error}): {super().remedy(root)}"
            ) from error
        return folder / CIFAR100.filename

    def _raw_split(self, folder: Path, split: str) -> RawSplit:
        pngs = {
            name: sorted((folder / name).glob("*.png"), key=lambda path: path.name)
            for name in self.split_classes(split)
        }
        return RawSplit(split, pngs, read_rgb)

    def _write_pngs(self, source: Path, target: Path) -> None:
        """The original archive's images as files; their names are in it, and learn2learn's archive keeps them."""
        classes = load_dict(source / "meta", "fine_label_names")["fine_label_names"]
        if set(classes) != {name for split in SPLITS for name in self.split_classes(split)}:
            raise DataError(f"{source / 'meta'} does not have the class names of CIFAR-100.")
        for name in classes:
            (target / name).mkdir(parents=True)
        for part in ("train", "test"):
            batch = load_dict(source / part, "data", "fine_labels", "filenames")
            images = _images(batch["data"], source / part)
            labels, names = batch["fine_labels"], batch["filenames"]
            if not (len(images) == len(labels) == len(names)) or not set(labels) <= set(range(len(classes))):
                raise DataError(
                    f"{source / part} has {len(images)} images, {len(labels)} labels and {len(names)} file names, "
                    f"expected as many of each, and labels from 0 to {len(classes) - 1}."
                )
            for image, label, name in zip(images, labels, names, strict=True):
                if Path(name).name != name:
                    raise DataError(f"{source / part} names an image {name!r}, expected a plain file name.")
                Image.fromarray(image).save(target / classes[label] / name, "png", compress_level=1)


def _images(data: np.ndarray, path: Path) -> np.ndarray:
    """Rows of 3072 bytes, one colour plane after another, to uint8 ``(N, 32, 32, 3)``."""
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise DataError(f"{path} does not hold uint8 rows of 3072, as CIFAR-100 does.")
    return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _split_list(folder: Path, split: str) -> Path:
    return folder / "splits" / "bertinetto" / f"{split}.txt"


CIFAR_FS = CIFARFS()
CIFAR_FS_OTHER = OtherVersion(CIFAR_FS)
