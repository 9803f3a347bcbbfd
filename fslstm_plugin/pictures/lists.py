"""Files that list pictures: CSV with or without boxes, and the JSON of annotation tools and detectors."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..data.reading.walk import Report, class_name
from ..errors import DataError, printable
from ..storage.damage import naming_damage
from ..storage.files import require_regular, saying_why
from ..storage.tables import number_in, path_of, rows, unguarded
from .detections import Listed, detections
from .label_studio import labelled_in
from .picture import Box, Picture, boxed

_ADDRESS = re.compile("(https?|ftp|s3|gs|file):/", re.IGNORECASE)  # of its two slashes, a path keeps one
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_SIDES = ("x", "y", "width", "height")
# A corner or the centre of a box, as other programs name it, without underscores.
_ELSEWHERE = ({"x1", "y1"}, {"left", "top"}, {"xtl", "ytl"}, {"bboxx", "bboxy"}, {"xcenter", "ycenter"})


def in_csv(file: Path, *columns: str, group: str | None = None) -> Iterator[Picture]:
    """The pictures of a CSV file with the columns ``path``, ``label`` or not, and one of groups or not."""
    if not os.path.exists(file):
        raise DataError(f"There is no folder of pictures, CSV or JSON file at {file}.")
    if file.name.lower().endswith(_ARCHIVES):
        raise DataError(f"{file} is an archive, which is not opened: unpack it, and name the folder of its pictures.")
    sides: Sequence[str] | None = None
    for line, cells in rows(file, columns if group is None else (*columns, group), also=(_CORNERS, _SIDES)):
        sides = _columns_of_boxes([*cells], file) if sides is None else sides
        where = f"Line {line} of {file}"
        place, *label = (cells[name].strip() for name in columns)
        if not all((place, *label)):
            raise DataError(f"{where} must have {' and '.join(columns)}, but has an empty cell.")
        yield Picture(
            boxed(_place(file.parent, place, where), _box_of(cells, sides, where)),
            class_name(unguarded(label[0])) if label else None,
            printable(cells[group].strip()) if group else "",
        )


def _columns_of_boxes(names: Sequence[str], file: Path) -> Sequence[str]:
    """The columns of a table that have its boxes, if any; what is nearly so is refused."""
    mine = {name.lower(): name for name in names}
    columns = max((_CORNERS, _SIDES), key=lambda each: len(mine.keys() & {*each}))
    missing = [each for each in columns if each not in mine]
    if not missing:
        return [mine[each] for each in columns]
    both, plain = {*_CORNERS, *_SIDES}, {name.replace("_", "") for name in mine}
    near = dict.fromkeys(each for name in missing for each in _near(name, mine.keys() - both))
    few = len(missing) - len(near) >= len(columns) / 2 and len(plain & both) <= len(columns) / 2
    if few and not any(plain >= each for each in _ELSEWHERE):
        return ()
    hint = f" (did you mean that by {', '.join(mine[each] for each in near)}?)" if near else ""
    raise DataError(
        f"{file} has columns of boxes, but not {', '.join(missing)}{hint}: a box needs {', '.join(columns)}. Rename "
        "the columns, even if they describe no boxes."
    )


def _near(name: str, others: Collection[str]) -> list[str]:
    """What may be meant by a name: its first letter, or what is spelt nearly so."""
    return [name[0]] if name[0] in others else difflib.get_close_matches(name, others, n=1, cutoff=0.75)


def _box_of(cells: Mapping[str, str], columns: Sequence[str], where: str) -> Box | None:
    """The box of a row; None where it has none."""
    texts = [cells[name].strip() for name in columns]
    if not any(texts):
        return None
    try:
        first, second, third, fourth = map(number_in, texts)
    except ValueError:
        raise DataError(f"{where} must have a number in each of {', '.join(columns)}, or in none of them.") from None
    if not all(map(math.isfinite, (first, second, third, fourth))):
        raise DataError(f"{where} must have finite numbers in {', '.join(columns)}.")
    corners = columns[0].lower() in _CORNERS
    return Box(first, second, *((third - first, fourth - second) if corners else (third, fourth)))


def is_json(source: Path) -> bool:
    """Whether a source is a JSON file."""
    return source.suffix.lower() == ".json" and source.exists()


def in_json(file: Path, report: Report) -> list[Picture]:
    """The pictures of Label Studio's export, or of a detector's file."""
    # By Python's reader, as msgspec refuses half a surrogate pair: so Python writes a byte of a name that is no text.
    with saying_why(f"Cannot read {file}", DataError), naming_damage(require_regular(file)):
        content: Any = json.loads(file.read_bytes(), parse_constant=_refuse)
        found = detections(content)
    if found is not None:
        listed, left_out = found
        if left_out:
            report(left_out)
        return [_listed(file, each) for each in listed]
    if not isinstance(content, list):
        raise DataError(
            f"{file} must be Label Studio's export, COCO's annotations or MegaDetector's output, but has another form."
        )
    with naming_damage(file):
        tasks = [Picture(path, class_name(label)) for path, label in labelled_in(file, content)]
    if content and not tasks:
        raise DataError(f"No task in {file} is labelled: label some in Label Studio, and export them.")
    return tasks


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _listed(file: Path, listed: Listed) -> Picture:
    picture = boxed(_place(file.parent, listed.picture, f"A picture in {file}"), listed.box)
    return Picture(picture, None if listed.label is None else class_name(listed.label))


def refuse_address(text: str, what: str) -> None:
    """Refuse what is on the web."""
    if _ADDRESS.match(text):
        raise DataError(f"{what} is a web address, from which nothing is downloaded: download the pictures first.")


def _place(folder: Path, cell: str, what: str) -> Path:
    """Where the picture of a cell is: as the product writes a path, or else as it stands there, or else from Windows.

    A backslash separates folders on Windows and may be in a name elsewhere, so what is there decides.
    """
    refuse_address(cell, what)
    if "\\" not in cell:
        return folder / cell
    places = (folder / path_of(cell), folder / cell, folder / cell.replace("\\", "/"))
    return next(filter(os.path.lexists, places), folder / cell)
