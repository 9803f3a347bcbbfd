"""Which pictures there are: in a folder of class folders, in any folder, or in a file that lists them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from ..data.reading.walk import PassedOver, Report, class_folders, is_picture, on_case, walk
from ..errors import DataError, UsageError
from .lists import in_csv, in_json, is_json, refuse_address
from .picture import Picture


def labelled(source: Path, report: Report = warnings.warn, column: str | None = None) -> list[Picture]:
    """Labelled pictures, in the order of their names or of the file.

    Args:
        source: A folder with a folder for each class, whose pictures may lie in folders within it; what lies beside
            the class folders is passed over, and so are hidden files and those of systems. Or a CSV file with the
            columns ``path``, from the folder of the file, and ``label``; the tables of predictions are such files. It
            may have boxes, in pixels from the left upper corner: ``x``, ``y``, ``width``, ``height``, or ``xmin``,
            ``ymin``, ``xmax``, ``ymax``; a row without them is of the whole picture. Or a ``.json`` file: Label
            Studio's export, COCO's annotations, or MegaDetector's output, see `detections`.
        report: Gets a sentence on what a user may not expect, see `class_folders`. Default: it becomes a warning.
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
    refuse_address(str(source), str(source))
    if column is not None and (source.is_dir() or is_json(source)):
        raise UsageError(f"{source} has no column {column}: group by folder, time, picture, or a column of a CSV file.")
    if source.is_dir():
        classes = class_folders(source, report)
        if not classes:
            raise DataError(
                f"{source} must hold a folder of pictures for each class, or be a CSV file of path and label."
            )
        return [Picture(path, name) for name, pictures in classes.items() for path in pictures]
    found = in_json(source, report) if is_json(source) else list(in_csv(source, "path", "label", group=column))
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
    refuse_address(str(source), str(source))
    passed = PassedOver()
    if source.is_dir():
        found = [Picture(path) for path in walk(source, passed)]
    elif is_picture(source):
        found = [Picture(source)]
    elif is_json(source):
        found = [Picture(each.path) for each in in_json(source, report)]
    else:
        found = list(in_csv(source, "path"))
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
