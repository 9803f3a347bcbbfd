"""Which pictures there are: in a folder of class folders, in a CSV file, or in any folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..data.reading.walk import PassedOver, Report, class_folders, class_name, is_picture, on_case, walk
from ..errors import DataError
from .label_studio import labelled_in
from .tables import path_of, rows, unguarded

_ADDRESS = re.compile("(https?|ftp|s3|gs|file):/", re.IGNORECASE)  # of its two slashes, a path keeps one


class Picture(NamedTuple):
    """A picture's file.

    Args:
        path: Its place.
        label: Its class as :func:`~fslstm_plugin.data.reading.walk.class_name` keeps it, None where it is not known.
    """

    path: Path
    label: str | None = None


def labelled(source: Path, report: Report = warnings.warn) -> list[Picture]:
    """Labelled pictures, in the order of their names or of the file.

    Args:
        source: A folder with a folder for each class, whose pictures may lie in folders within it; what lies beside
            the class folders is passed over, and so are hidden files and those of systems. Or a CSV file with the
            columns ``path``, from the folder of the file, and ``label``; the tables of predictions are such files. Or
            Label Studio's export, a ``.json`` file.
        report: Gets a sentence on what a user may not expect, see
            :func:`~fslstm_plugin.data.reading.walk.class_folders`. Default: it becomes a warning.

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
    _refuse_address(str(source), str(source))
    if source.is_dir():
        return _in_class_folders(source, report)
    if source.suffix.lower() == ".json" and source.exists():
        found = [Picture(path, class_name(label)) for path, label in labelled_in(source)]
    else:
        found = list(_in_csv(source, "path", "label"))
    if not found:
        raise DataError(f"There are no pictures in {source}.")
    for sentence in on_case(class_names(found)):
        report(sentence)
    return found


def pictures_in(source: Path, report: Report = warnings.warn) -> list[Picture]:
    """Pictures without labels, in the order of their names or of the file.

    Args:
        source: A folder, whose pictures may lie in folders within it; one picture; or a CSV file with the column
            ``path``.
        report: Gets a sentence on what is passed over. Default: it becomes a warning.

    Raises:
        DataError: If it cannot be read, or holds no pictures.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "1.PNG").touch()
        >>> [picture.path.name for picture in pictures_in(folder)]
        ['1.PNG']
    """
    _refuse_address(str(source), str(source))
    passed = PassedOver()
    if source.is_dir():
        found = [Picture(path) for path in walk(source, passed)]
    elif is_picture(source):
        found = [Picture(source)]
    else:
        found = list(_in_csv(source, "path"))
    if not found:
        raise DataError(f"There are no pictures in {source}. {passed}".rstrip())
    if said := str(passed):
        report(said)
    return found


def class_names(pictures: Iterable[Picture]) -> list[str]:
    """The classes of labelled pictures, sorted.

    Example:
        >>> class_names([Picture(Path("1.png"), "dog"), Picture(Path("2.png"), "cat"), Picture(Path("3.png"), "dog")])
        ['cat', 'dog']
    """
    return sorted({picture.label for picture in pictures if picture.label is not None})


def _in_class_folders(source: Path, report: Report) -> list[Picture]:
    found = class_folders(source, report)
    if not found:
        raise DataError(f"{source} must hold a folder of pictures for each class, or be a CSV file of path and label.")
    return [Picture(path, name) for name, pictures in found.items() for path in pictures]


def _in_csv(file: Path, *columns: str) -> Iterator[Picture]:
    """The pictures of a CSV file.

    Args:
        file: The file.
        *columns: Those that it must have: ``path``, and ``label`` or not.
    """
    if not os.path.exists(file):
        raise DataError(f"There is no folder of pictures or CSV file at {file}.")
    for line, cells in rows(file, columns):
        place, *label = (cells[name].strip() for name in columns)
        if not all((place, *label)):
            raise DataError(f"Line {line} of {file} must have {' and '.join(columns)}, but has an empty cell.")
        _refuse_address(place, f"Line {line} of {file}")
        yield Picture(_place(file.parent, place), *(class_name(unguarded(each)) for each in label))


def _refuse_address(text: str, what: str) -> None:
    if _ADDRESS.match(text):
        raise DataError(f"{what} is a web address, from which nothing is downloaded: download the pictures first.")


def _place(folder: Path, cell: str) -> Path:
    """Where the picture of a cell is: as the product writes a path, or else as it stands there, or else from Windows.

    A backslash separates folders on Windows and may be in a name elsewhere, so what is there decides.
    """
    if "\\" not in cell:
        return folder / cell
    places = (folder / path_of(cell), folder / cell, folder / cell.replace("\\", "/"))
    return next(filter(os.path.lexists, places), folder / cell)
