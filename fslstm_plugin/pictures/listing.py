"""Which pictures there are: in a folder of class folders, in a CSV file, or in any folder."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..data.decode import picture_suffixes
from ..errors import DataError, printable


class Picture(NamedTuple):
    """A picture's file.

    Args:
        path: Its place.
        label: Its class, None where it is not known. Characters that a terminal could obey, or that no text file can
            hold, are escaped.
    """

    path: Path
    label: str | None = None


def labelled(source: Path) -> list[Picture]:
    """Labelled pictures, in the order of their names or of the file.

    Args:
        source: A folder with a folder for each class, whose pictures may lie in folders within it; what lies beside
            the class folders is passed over, and so are hidden files. Or a CSV file with the columns ``path``, from the
            folder of the file, and ``label``.

    Raises:
        DataError: If it cannot be read or is of another form, a class has no pictures, or a row no label.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("dog", "cat"):
        ...     (folder / name).mkdir()
        ...     (folder / name / "1.png").touch()
        >>> [(picture.path.name, picture.label) for picture in labelled(folder)]
        [('1.png', 'cat'), ('1.png', 'dog')]
    """
    found = _in_class_folders(source) if source.is_dir() else _in_csv(source, "path", "label")
    return _not_empty(found, source)


def pictures_in(source: Path) -> list[Picture]:
    """Pictures without labels, in the order of their names or of the file.

    Args:
        source: A folder, whose pictures may lie in folders within it; one picture; or a CSV file with the column
            ``path``.

    Raises:
        DataError: If it cannot be read, or holds no pictures.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "1.PNG").touch()
        >>> [picture.path.name for picture in pictures_in(folder)]
        ['1.PNG']
    """
    if source.is_dir():
        return _not_empty(map(Picture, _walk(source, set())), source)
    if source.suffix.lower() in picture_suffixes():
        return [Picture(source)]
    return _not_empty(_in_csv(source, "path"), source)


def class_names(pictures: Iterable[Picture]) -> list[str]:
    """The classes of labelled pictures, sorted.

    Example:
        >>> class_names([Picture(Path("1.png"), "dog"), Picture(Path("2.png"), "cat"), Picture(Path("3.png"), "dog")])
        ['cat', 'dog']
    """
    return sorted({picture.label for picture in pictures if picture.label is not None})


def _not_empty(found: Iterable[Picture], source: Path) -> list[Picture]:
    pictures = list(found)
    if not pictures:
        raise DataError(f"There are no pictures in {source}.")
    return pictures


def _in_class_folders(source: Path) -> Iterator[Picture]:
    folders = [Path(entry.path) for entry in _entries(source) if os.path.isdir(entry)]
    if not folders:
        raise DataError(f"{source} must hold a folder of pictures for each class, or be a CSV file of path and label.")
    for folder in folders:
        pictures = [Picture(path, printable(folder.name)) for path in _walk(folder, {_identity(source)})]
        if not pictures:
            raise DataError(f"The class folder {folder} holds no pictures: add some, or remove it.")
        yield from pictures


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """The pictures in a folder and the folders within it, each folder once, so that links in a circle end.

    Args:
        folder: Where to begin.
        seen: Folders that are not entered.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        identity = _identity(here)
        if identity in seen:
            continue
        seen.add(identity)
        entries = _entries(here)
        yield from (Path(entry.path) for entry in entries if _is_picture(entry))
        waiting += [Path(entry.path) for entry in reversed(entries) if os.path.isdir(entry)]


def _identity(folder: Path) -> tuple[int, int]:
    with _readable(folder):
        status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder and not hidden, in the same order on every system."""
    with _readable(folder), os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"Cannot read the folder {folder}: {error.strerror or error}.") from error


def _is_picture(entry: os.DirEntry[str]) -> bool:
    """By its name; a link that leads nowhere is one too, which is told when it is read, but no pipe or device."""
    if os.path.splitext(entry.name)[1].lower() not in picture_suffixes():
        return False
    # os.path answers for a link to itself, for which the entry raises.
    return os.path.isfile(entry) or not os.path.exists(entry)


def _in_csv(file: Path, *columns: str) -> Iterator[Picture]:
    """The pictures of a CSV file.

    Args:
        file: The file.
        *columns: Those that it must have: ``path``, and ``label`` or not.
    """
    if not file.is_file():
        raise DataError(f"There is no folder of pictures or CSV file at {file}.")
    form = f"a CSV file in UTF-8 with {'the columns' if len(columns) > 1 else 'the column'} {' and '.join(columns)}"
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, skipinitialspace=True, strict=True)
            reader.fieldnames = [(name or "").strip().lower() for name in reader.fieldnames or ()]
            if not set(columns) <= set(reader.fieldnames):
                found = f"begins with: {', '.join(reader.fieldnames)}" if reader.fieldnames else "is empty"
                raise DataError(f"{file} must be {form}, separated by commas, but {found}.")
            for name in columns:
                if reader.fieldnames.count(name) > 1:
                    raise DataError(f"{file} has the column {name} twice: leave one of them out.")
            for row in reader:
                cells = [(row[name] or "").strip() for name in columns]
                if None in row or not all(cells):
                    raise DataError(
                        f"Line {reader.line_num} of {file} must have {' and '.join(columns)}, and no more cells than "
                        "there are columns: put a name with a comma in quotes."
                    )
                yield Picture(file.parent / cells[0], printable(cells[1]) if len(cells) > 1 else None)
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{file} must be {form}, but cannot be read as one ({error}).") from error
