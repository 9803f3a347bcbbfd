"""What every data set offers: it is prepared once; opening a split then only compares its checksum."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import torch

from ..checks import one_of
from ..errors import DataError, StorageError, count_of, reason
from ..recipes import DatasetRecipe
from ..storage.files import exclusive
from ..storage.folders import partial_folder, remove_folder, whole_folder
from .prepared import SPLITS, PreparedSplit, RawSplit, open_images, read_index, write_prepared


@dataclass(frozen=True)
class Split:
    """The images of one split, ready for episodes.

    Args:
        dataset: Name of the data set, for example ``"cifar-fs"``.
        name: ``"train"``, ``"val"`` or ``"test"``.
        images: uint8 ``(N, H, W, 3)``, memory-mapped; writing to it never reaches the prepared file.
        labels: int64 ``(N,)``, 0 to classes - 1, images of one class together.
        class_names: Name of each class, by label.
        digest: Identifies prepared images and their classes; empty if they were not prepared.
    """

    dataset: str
    name: str
    images: torch.Tensor
    labels: torch.Tensor
    class_names: tuple[str, ...]
    digest: str = ""

    def to(self, device: torch.device | str) -> Split:
        """The split with its images and labels on a device.

        Args:
            device: The device, for example ``"cuda"``.

        Returns:
            A split whose images and labels are there.

        Example:
            >>> split = Split("toy", "train", torch.zeros(1, 8, 8, 3, dtype=torch.uint8), torch.tensor([0]), ("a",))
            >>> split.to("meta").images.device
            device(type='meta')
        """
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


def silent(*_: object) -> None:
    """Tell nobody."""


class Dataset(ABC):
    """A data set with train, val and test classes, kept under ``<root>/fslstm/<name>``.

    A subclass sets the attributes and writes `read`; the registry holds one instance of it.

    Attributes:
        name: As typed on the command line.
        title: As written in sentences.
        image_size: Height and width of the prepared images.
        classes: Number of classes of each split.
        images_per_class: Number of images of every class, or None if it varies.
        source_option: What ``fslstm data prepare NAME`` needs in addition, such as ``--archive cifar100.zip``.
        source_files: Files that the user must obtain for it, for error messages.
        recipe: What meta-training must know about it.
        version: Increased when `read` gives other images than before, so that older ones are prepared again.
    """

    name: str
    title: str
    image_size: int
    classes: ClassVar[Mapping[str, int]]
    images_per_class: int | None
    source_option: str = ""
    source_files: str = ""
    recipe: DatasetRecipe = DatasetRecipe()
    version: int = 1

    @abstractmethod
    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The three splits from the source, or, without one, from where it usually is.

        Args:
            root: The data root.
            source: An archive or folder, or None.
            report: Called with a sentence on the current step.

        Yields:
            Each split; its images are decoded while the prepared files are written.

        Raises:
            DataError: If the source is missing, damaged or not this data set.
        """

    def folder(self, root: Path) -> Path:
        """Where the prepared form is."""
        return root / "fslstm" / self.name

    def prepare(self, root: Path, source: Path | None = None, report: Callable[[str], None] = silent) -> None:
        """Make the prepared form, unless it is there. Several processes may do so at once.

        Args:
            root: The data root; made if absent.
            source: An archive or folder; None looks under the root, then downloads if the data set can.
            report: Called with a sentence on the current step; says nothing by default.

        Raises:
            DataError: If the source is missing, damaged or not this data set, or the root cannot be written.
        """
        folder = self.folder(root)
        if source is not None and not source.exists():
            raise DataError(f"The source {source} of {self.title} is not there.")
        if self.is_prepared(root):
            self.clean(root)
            anew = f" Remove that folder to prepare it from {source}." if source else ""
            report(f"{self.title} is already prepared in {folder}.{anew}")
            return
        try:
            with exclusive(folder):
                self._remove_leftovers(root)
                if self.is_prepared(root):  # another process made it while this one waited
                    return
                with whole_folder(folder) as partial, closing(self.read(root, source, report)) as splits:
                    write_prepared(partial, self._header(), self.image_size, map(self._checked, splits))
        except DataError as error:
            if source is None:
                raise
            raise type(error)(str(error).replace(str(self.extracted(root)), str(source))) from error
        except OSError as error:
            place = f" ({error.filename})" if error.filename else ""
            raise DataError(f"{self.title} could not be prepared in {folder}: {reason(error)}{place}.") from error
        report(f"{self.title} is prepared in {folder}.")

    def clean(self, root: Path) -> None:
        """Remove what killed preparations left, unless one is running."""
        if any(path.exists() for path in self.partial_folders(root)):
            with suppress(OSError, StorageError), exclusive(self.folder(root), seconds=0):
                self._remove_leftovers(root)

    def partial_folders(self, root: Path) -> list[Path]:
        """The folders that a preparation fills for a while; a killed one leaves them."""
        return [partial_folder(self.folder(root)), self.archive_folder(root)]

    def archive_folder(self, root: Path) -> Path:
        """Where an archive is extracted for a while."""
        return partial_folder(self.folder(root).with_name(f"{self.name}.archive"))

    def extracted(self, root: Path) -> Path:
        """The folder that errors of `read` name, where it extracted an archive; it is removed by then."""
        return self.archive_folder(root)

    def _remove_leftovers(self, root: Path) -> None:
        for path in self.partial_folders(root):
            remove_folder(path)

    def index(self, root: Path) -> dict[str, PreparedSplit]:
        """What is prepared, by split, without reading the images.

        Raises:
            DataError: If the data set is not prepared, of another version or damaged; the message says what to do.
        """
        folder = self.folder(root)
        if not folder.exists():
            raise DataError(f"{self.title} is not prepared in {folder}: {self.remedy(root)}")
        with self._with_remedy(root):
            index = read_index(folder, self._header())
        if index is None:
            raise DataError(f"{self.title} is of another version in {folder}: {self.remedy(root)}")
        return index

    @contextmanager
    def _with_remedy(self, root: Path) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise DataError(f"{str(error).rstrip('.')}: {self.remedy(root)}") from error

    def is_prepared(self, root: Path) -> bool:
        """Whether the prepared form is there, of this version, and every image is as it was written."""
        try:
            for split in self.index(root).values():
                open_images(split)
        except DataError:
            return False
        return True

    def load(self, root: Path, split: str) -> Split:
        """Open one split.

        Args:
            root: The data root.
            split: ``"train"``, ``"val"`` or ``"test"``.

        Returns:
            The split, its images memory-mapped.

        Raises:
            UnknownNameError: If there is no such split.
            DataError: If the data set is not prepared, or damaged; the message has the command that fixes it.
        """
        one_of("split", split, SPLITS)
        prepared = self.index(root)[split]
        with self._with_remedy(root):
            images = torch.from_numpy(open_images(prepared))
        sizes = torch.tensor(list(prepared.classes.values()), device="cpu")
        labels = torch.repeat_interleave(sizes)
        return Split(self.name, split, images, labels, tuple(prepared.classes), prepared.digest)

    def remedy(self, root: Path) -> str:
        """What to do when the data is missing, with the exact command, to end an error message."""
        get = f"get {self.source_files} and " if self.source_files else ""
        option = f" {self.source_option}" if self.source_option else ""
        return f"{get}run `fslstm data prepare {self.name}{option} --data-root {shlex.quote(str(root))}`."

    def _header(self) -> dict[str, str | int]:
        return {"dataset": self.name, "version": self.version}

    def _require_disjoint(self, splits: Mapping[str, Collection[str]]) -> None:
        """Refuse a class that would be both trained on and tested."""
        for (one, names), (other, others) in combinations(splits.items(), 2):
            if shared := [name for name in names if name in others]:
                raise DataError(
                    f"{self.title} has the class '{shared[0]}' in {one} and in {other}: the splits must not share a "
                    "class."
                )

    def _checked(self, split: RawSplit) -> RawSplit:
        """The same split, if it has as many classes and images as it should."""
        expected = self.classes.get(split.name, len(split.classes))  # of another version any number
        if len(split.classes) != expected:
            raise DataError(
                f"{self.title} has {expected} {split.name} classes, but the source has {len(split.classes)}."
            )
        for name, count in split.counts().items():
            if count == 0 or (self.images_per_class is not None and count != self.images_per_class):
                wanted = self.images_per_class or "at least 1"
                raise DataError(
                    f"Class '{name}' ({split.name}) of {self.title} has {count_of(count, 'image')}, expected {wanted}."
                )
        return split
