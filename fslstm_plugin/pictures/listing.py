"""Which pictures there are: in a folder of class folders, in any folder, or in a file that lists them."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..data.reading.walk import PassedOver, Report, class_folders, class_name, is_picture, on_case, walk
from ..errors import DataError, UsageError, printable
from ..storage.damage import naming_damage
from ..storage.files import read_json
from .boxes import Box, boxed
from .detections import Listed, detections
from .label_studio import labelled_in
from .tables import path_of, rows, unguarded

_ADDRESS = re.compile("(https?|ftp|s3|gs|file):/", re.IGNORECASE)  # of its two slashes, a path keeps one
_SIDES = ("x", "y", "width", "height")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")


class Picture(NamedTuple):
    """A picture's file.

    Args:
        path: Its place, with the box of a part behind it, see `boxes`.
        label: Its class as :func:`~fslstm_plugin.data.reading.walk.class_name` keeps it, None where it is not known.
        group: What it belongs together by with others, see `grouping`; empty where it is by itself.
    """

    path: Path
    label: str | None = None
    group: str = ""


def labelled(source: Path, report: Report = warnings.warn, column: str | None = None) -> list[Picture]:
    """Labelled pictures, in the order of their names or of the file.

    Args:
        source: A folder with a folder for each class, whose pictures may lie in folders within it; what lies beside
            the class folders is passed over, and so are hidden files and those of systems. Or a CSV file with the
            columns ``path``, from the folder of the file, and ``label``; the tables of predictions are such files. It
            may have boxes, in pixels from the left upper corner: ``x``, ``y``, ``width``, ``height``, or ``xmin``,
            ``ymin``, ``xmax``, ``ymax``; a row without them is of the whole picture. Or a ``.json`` file: Label
            Studio's export, COCO's annotations, or MegaDetector's output, see `detections`.
        report: Gets a sentence on what a user may not expect, see
            :func:`~fslstm_plugin.data.reading.walk.class_folders`. Default: it becomes a warning.
        column: The column of a CSV file that has the pictures' groups. Default None: each is by itself.

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
    if column is not None and (source.is_dir() or _is_json(source)):
        raise UsageError(f"{source} has no column {column}: groups are told by folder, time, picture, or a CSV file.")
    if source.is_dir():
        return _in_class_folders(source, report)
    found = _in_json(source, report) if _is_json(source) else list(_in_csv(source, "path", "label", group=column))
    if nameless := next((each.path for each in found if each.label is None), None):
        raise DataError(
            f"{source} does not say what {nameless} shows: put its pictures into a folder for each class before "
            "detection, or write a CSV file of path, label and boxes."
        )
    if not found:
        raise DataError(f"There are no pictures in {source}.")
    for sentence in on_case(class_names(found)):
        report(sentence)
    return found


def pictures_in(source: Path, report: Report = warnings.warn) -> list[Picture]:
    """Pictures without labels, in the order of their names or of the file.

    Args:
        source: A folder, whose pictures may lie in folders within it; one picture; a CSV file with the column
            ``path``, and boxes or not; or a ``.json`` file, see `labelled`.
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
    elif _is_json(source):
        found = [Picture(each.path) for each in _in_json(source, report)]
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


def _in_csv(file: Path, *columns: str, group: str | None = None) -> Iterator[Picture]:
    """The pictures of a CSV file.

    Args:
        file: The file.
        *columns: Those that it must have: ``path``, and ``label`` or not.
        group: One more, of which cells may be empty.
    """
    if not os.path.exists(file):
        raise DataError(f"There is no folder of pictures or CSV file at {file}.")
    for line, cells in rows(file, columns if group is None else (*columns, group)):
        place, *label = (cells[name].strip() for name in columns)
        if not all((place, *label)):
            raise DataError(f"Line {line} of {file} must have {' and '.join(columns)}, but has an empty cell.")
        _refuse_address(place, f"Line {line} of {file}")
        picture = _place(file.parent, place)
        box = _box_of(cells, f"Line {line} of {file}")
        yield Picture(
            picture if box is None else boxed(picture, box),
            class_name(unguarded(label[0])) if label else None,
            printable(cells[group].strip()) if group else "",
        )


def _box_of(cells: Mapping[str, str | None], where: str) -> Box | None:
    """The box of a row; None where it has none.

    Raises:
        DataError: If some of its numbers are missing, or are none.
    """
    numbers = {name.lower(): (cell or "").strip() for name, cell in cells.items()}
    columns = next((each for each in (_CORNERS, _SIDES) if numbers.keys() >= {*each}), ())
    texts = [numbers[name] for name in columns]
    if not any(texts):
        return None
    try:
        first, second, third, fourth = (float(each.replace(",", ".")) for each in texts)
    except ValueError:
        raise DataError(f"{where} must have a number in each of {', '.join(columns)}, or in none of them.") from None
    if not all(map(math.isfinite, (first, second, third, fourth))):
        raise DataError(f"{where} must have finite numbers in {', '.join(columns)}.")
    return Box(first, second, *((third - first, fourth - second) if columns is _CORNERS else (third, fourth)))


def _is_json(source: Path) -> bool:
    return source.suffix.lower() == ".json" and source.exists()


def _in_json(file: Path, report: Report) -> list[Picture]:
    """The pictures of Label Studio's export, or of a detector's file.

    Raises:
        DataError: If it cannot be read, or has another form.
    """
    content = read_json(file)
    with naming_damage(file):
        found = detections(content)
        if found is None and not isinstance(content, list):
            raise DataError(
                f"{file} must be Label Studio's export, COCO's annotations or MegaDetector's output, but has another "
                "form."
            )
        if found is None:
            return [Picture(path, class_name(label)) for path, label in labelled_in(file, content)]
    if found.left_out:
        report(found.left_out)
    return [_listed(file, each) for each in found.listed]


def _listed(file: Path, listed: Listed) -> Picture:
    _refuse_address(listed.picture, f"A picture in {file}")
    picture = _place(file.parent, listed.picture)
    label = None if listed.label is None else class_name(listed.label)
    return Picture(picture if listed.box is None else boxed(picture, listed.box), label)


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
