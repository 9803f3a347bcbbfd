"""Data sets that are folders of pictures, one per class."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from ...errors import DataError
from ..base import Dataset
from ..prepared import SPLITS, RawSplit
from ..reading.archives import opened
from ..reading.decode import read_rgb
from ..reading.walk import PassedOver, class_folders, entries


class FolderDataset(Dataset):
    """Pictures of any size as ``{train,val,test}/<class>/<picture>``, in a folder or an archive.

    Their shorter side is resized to `image_size` (bicubic) and the centre of the longer one kept. A subclass sets
    the attributes, and an entry point of the group ``fslstm_plugin.datasets`` names an instance of it:
    ``fslstm data prepare birds --from DIR`` then prepares it. Classes and pictures are ordered by name.

    Attributes:
        max_bytes: The most that the files of an archive may hold together.

    Example:
        >>> class Birds(FolderDataset):
        ...     name = "birds"
        ...     title = "Birds"
        ...     image_size = 84
        ...     classes = {"train": 100, "val": 50, "test": 50}
        >>> Birds().is_prepared(Path("nowhere"))
        False
    """

    images_per_class = None
    source_option = "--from DIR"
    source_files = "a folder with train, val and test, each with a folder of pictures for every class,"
    max_bytes: int = 32 << 30

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits; without a source from ``<root>/<name>``. See `Dataset.read`."""
        source = source or root / self.name
        if not source.exists():
            raise DataError(f"{source} is not there: {self.remedy(root)}")
        with opened(source, self.archive_folder(root), self.max_bytes) as folder:
            found = {split: class_folders(self._find(folder, split, root), report) for split in SPLITS}
            self._require_disjoint(found)
            for split, classes in found.items():
                report(f"Reading the {split} images.")
                yield RawSplit(split, classes, partial(read_rgb, image_size=self.image_size))

    def _find(self, folder: Path, split: str, root: Path) -> Path:
        """The folder of a split, or one folder below, where archives often have it."""
        below = [Path(entry.path) / split for entry in entries(folder, PassedOver())]
        for path in (folder / split, *below):
            if path.is_dir():
                return path
        raise DataError(f"{folder} does not have the folder {split}: {self.remedy(root)}")
