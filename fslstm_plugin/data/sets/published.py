"""Data sets whose classes are published, and what their images become where a source has another split of them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from ...errors import DataError, listed
from ...storage.files import exclusive
from ..base import Dataset, silent
from ..prepared import SPLITS, RawSplit
from ..reading.archives import find_file, opened
from ..reading.sources import Images, are_disjoint, pixels, place, read_images


class AnotherVersion(DataError):
    """The source is sound, but has other classes or images than the published data set."""


class PublishedDataset(Dataset):
    """A data set with published classes per split, and another name for every other split or choice of images."""

    lists: str  # The files ``splits/<lists>_{train,val,test}.txt`` name the classes.
    # Regular expression of the published names. A split in which no name has this form, as where classes are numbered,
    # is compared by its numbers of classes and images alone.
    name_form: str
    # Number of images of each split, where it is published and classes have unequal numbers.
    images_per_split: ClassVar[Mapping[str, int]] = {}

    def prepare(self, root: Path, source: Path | None = None, report: Callable[[str], None] = silent) -> None:
        """Make the prepared form, or, of another split or choice of images, that of its `OtherVersion`.

        See `Dataset.prepare`.
        """
        try:
            super().prepare(root, source, report)
        except AnotherVersion as error:
            other = OtherVersion(self)
            report(f"{error} It becomes the data set {other.name}, so that no table mixes the two.")
            other.prepare(root, source, report)

    def split_classes(self, split: str) -> list[str]:
        """The published classes of a split, sorted."""
        return (Path(__file__).parent / "splits" / f"{self.lists}_{split}.txt").read_text(encoding="utf-8").split()

    def read_source(self, source: Path, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits of parquet files or class folders, see `read_images`.

        Splits that share no class stay as they are. Otherwise the published classes are picked from them together: from
        the ones that hold as many images as were published, if there are such, or else from the training split, as
        ImageNet's validation images belong to no few-shot data set. If one is missing, it is a `DataError`.
        """
        published = {split: self.split_classes(split) for split in SPLITS}
        images = read_images(source, {name for names in published.values() for name in names}, report)
        if not are_disjoint(images):
            images = self._picked(images, published, source)
        elif missing := [split for split in SPLITS if split not in images]:
            raise DataError(f"{source} has the splits {', '.join(images)}, but not {' and '.join(missing)}.")
        if not any(re.fullmatch(self.name_form, name) for name in images["train"]):
            names = ", ".join(list(images["train"])[:3])
            report(f"The classes have names such as {names}: only their numbers are compared with {self.title}'s.")
        for split in SPLITS:
            report(f"Reading the {split} images.")
            yield RawSplit(split, images[split], partial(pixels, image_size=self.image_size), place)

    def _picked(self, images: Images, published: Mapping[str, Sequence[str]], source: Path) -> Images:
        every = {name for names in published.values() for name in names}
        found = set().union(*images.values())
        if missing := sorted(every - found):
            raise DataError(
                f"{source} has {len(every) - len(missing)} of the {len(every)} classes of {self.title}; missing: "
                f"{listed(missing, 10)}. The names of its classes are such as {', '.join(sorted(found)[:3])}."
            )
        choices: list[Images] = [
            {
                split: {name: [each for part in parts for each in images[part].get(name, [])] for name in names}
                for split, names in published.items()
            }
            for parts in (tuple(images), ("train", "val"), ("train",))
            if set(parts) <= set(images)
        ]
        return next((each for each in choices if self._is_published(each)), choices[-1])

    def _is_published(self, images: Images) -> bool:
        counts = {split: [len(each) for each in classes.values()] for split, classes in images.items()}
        if self.images_per_class is None:
            return all(sum(counts[split]) == number for split, number in self.images_per_split.items())
        return all(set(each) == {self.images_per_class} for each in counts.values())

    def _checked(self, split: RawSplit) -> RawSplit:
        """The same split, if its classes and the numbers of their images are the published ones."""
        counts = split.counts()
        named = any(re.fullmatch(self.name_form, name) for name in counts)
        names = set(self.split_classes(split.name)) if named else set()
        if names and not set(counts) <= names:
            strange = sorted(set(counts) - names)
            raise AnotherVersion(
                f"The source has {split.name} classes that are not {self.title}'s ({listed(strange, 3)})."
            )
        if names and (missing := sorted(names - set(counts))):
            raise DataError(f"The source lacks {split.name} classes of {self.title}: {listed(missing, 10)}.")
        total, published = sum(counts.values()), self.images_per_split.get(split.name) if names else None
        most = max(counts.values(), default=0)
        if self.images_per_class and most > self.images_per_class and min(counts.values()) >= self.images_per_class:
            raise AnotherVersion(
                f"The source has up to {most:,} {split.name} images per class, {self.title} {self.images_per_class:,}."
            )
        if published and total > published:
            raise AnotherVersion(f"The source has {total:,} {split.name} images, {self.title} {published:,}.")
        if published and total < published:
            raise DataError(f"{self.title} has {published:,} {split.name} images, but the source has {total:,}.")
        return super()._checked(split)


class FiledDataset(PublishedDataset):
    """A published data set with a form of its own: files with the name of the split in theirs."""

    train_files: tuple[str, ...]  # The files of the training split, of which a source in this form has one at least.
    max_bytes: int  # The most that the files of an archive may hold together.
    source_option = "--from DIR"

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits; without a source from where learn2learn keeps them. See `Dataset.read`."""
        with opened(source or root, self.archive_folder(root), self.max_bytes) as folder:
            if source and not any(find_file(folder, name) for name in self.train_files):
                yield from self.read_source(folder, report)
                return
            for split in SPLITS:
                report(f"Reading the {split} images.")
                yield self.read_split(split, partial(self._find, folder, root), source)

    def _find(self, folder: Path, root: Path, *names: str) -> Path:
        for name in names:
            if found := find_file(folder, name):
                return found
        raise DataError(f"{folder} does not have {' or '.join(names)}: {self.remedy(root)}")

    @abstractmethod
    def read_split(self, split: str, find: Callable[..., Path], source: Path | None) -> RawSplit:
        """One split from its files; the function finds the first there is of some names."""


class OtherVersion(Dataset):
    """The images of a published data set in another split or number, or images of other classes."""

    classes: ClassVar = {}
    images_per_class = None
    source_option = "--from DIR"

    def __init__(self, of: PublishedDataset) -> None:
        self.of = of
        self.name, self.title = f"{of.name}-other", f"Another version of {of.title}"
        self.image_size, self.recipe = of.image_size, of.recipe

    def prepare(self, root: Path, source: Path | None = None, report: Callable[[str], None] = silent) -> None:
        """Make the prepared form while nothing else extracts an archive for `of`. See `Dataset.prepare`."""
        with exclusive(self.of.folder(root)):
            super().prepare(root, source, report)

    def extracted(self, root: Path) -> Path:
        """That of the published data set, which reads the archive; see `Dataset.extracted`."""
        return self.of.archive_folder(root)

    def read(self, root: Path, source: Path | None, report: Callable[[str], None]) -> Generator[RawSplit, None, None]:
        """The splits as the source has them. See `Dataset.read`."""
        if source is None:
            raise DataError(f"{self.title} has no default source: name its files with `source`.")
        seen: dict[str, Collection[str]] = {}
        for split in self.of.read(root, source, report):
            seen[split.name] = split.classes
            self._require_disjoint(seen)
            yield split
