r"""The one reader of CSV files, lists of a user's and tables of predictions, and how labels and paths stand in them.

A label that a spreadsheet would compute is guarded by ``'``, and a path with bytes that are no text is escaped.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from ..errors import DataError, listed, reason
from .files import require_regular

# Spreadsheets write the second where numbers have a comma, and the third as "text".
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
_BEFORE_HEADER = re.compile(r'[\s,;]*|"?sep=."?\s*', re.IGNORECASE)  # a blank row, and the separator as Excel takes it
_FORMULA = ("=", "+", "-", "@", "'")  # What a spreadsheet would compute, and the sign that tells it not to.
_LIKE_ESCAPE = re.compile(r"\\x[0-9a-f]{2}")
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+|\\\\")
# Control characters, bytes that are no UTF-8, and spaces that a table's reader takes off.
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]|^ +| +$")


def rows(
    file: Path, columns: Sequence[str], size: int | None = None, also: Sequence[Sequence[str]] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    r"""The rows of a CSV file in UTF-8, one at a time, however a spreadsheet wrote it: text by column.

    It may begin with a byte order mark or with ``sep=;``, and its cells be separated by commas, semicolons or tabs: by
    the first of these by which it has the columns. Names of the columns may be in capitals. Rows without any text are
    left out, cells that a row lacks at its end are empty, and empty ones that it has beyond its columns say nothing.
    Each comes with the number of the line in which it ends, from 1.

    Args:
        file: The file.
        columns: Columns that it must have, each once.
        size: Bytes of it that are read. Default None: all.
        also: Groups of columns that it may have; of a group that is whole, each once. Default none.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = file.write_text("\ufeffPath;Label\n1.png;cat\n", encoding="utf-8")
        >>> next(rows(file, ["path", "label"]))
        (2, {'path': '1.png', 'label': 'cat'})
    """
    form = f"a CSV file in UTF-8 with {'the columns' if len(columns) > 1 else 'the column'} {_and(columns)}"
    try:
        with require_regular(file).open("rb") as content:
            lines = _lines(content, size)
            above, line = 1, next(lines, "")
            while line and _BEFORE_HEADER.fullmatch(line):
                above, line = above + 1, next(lines, "")
            names, separator = header(line, columns, [*chain(*also)])
            if not set(columns) <= set(names):
                found = f"begins with: {listed(names, 10)}" if any(names) else "is empty"
                raise DataError(f"{file} must be {form}, separated by commas, semicolons or tabs, but {found}.")
            whole = (group for group in also if set(group) <= set(names))
            for name in chain(columns, *whole):
                if names.count(name) > 1:
                    raise DataError(f"{file} has the column {name} twice: leave one of them out.")
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
            least = 1 + max(map(names.index, columns))
            for cells in reader:
                if not any(map(str.strip, cells)):
                    continue
                if len(cells) < least or any(map(str.strip, cells[len(names) :])):
                    raise DataError(
                        f"Line {above + reader.line_num} of {file} must have {_and(columns)}, and no more cells than "
                        f"there are columns: put a name with a {_SEPARATORS[separator]} in quotes."
                    )
                yield above + reader.line_num, dict(zip_longest(names, cells[: len(names)], fillvalue=""))
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{file} must be {form}, but cannot be read as one ({reason(error)}).") from error


def _lines(content: io.BufferedReader, size: int | None) -> Iterator[str]:
    """The lines within the first bytes of a file, without a byte order mark."""
    position = len(codecs.BOM_UTF8) if content.peek(3).startswith(codecs.BOM_UTF8) else 0
    for line in io.TextIOWrapper(content, encoding="utf-8-sig", newline=""):
        position += len(line.encode())
        if size is not None and position > size:
            return
        yield line


def header(line: str, columns: Sequence[str], also: Sequence[str] = ()) -> tuple[list[str], str]:
    """Names of the columns in a table's first line, and what separates them; see `rows`."""
    found = [(_split(line, separator, (*columns, *also)), separator) for separator in _SEPARATORS]
    return next((each for each in found if set(columns) <= set(each[0])), found[0])


def _split(line: str, separator: str, columns: Sequence[str]) -> list[str]:
    cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    return [cell if cell in columns or cell.lower() not in columns else cell.lower() for cell in cells]


def number_in(cell: str) -> float:
    """The number in a cell, with a point or, as some spreadsheets write it, with a comma."""
    return float(cell.replace(",", "."))


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def guarded(text: str) -> str:
    """A label for a cell, which no spreadsheet computes.

    Example:
        >>> guarded("-1"), guarded("cat"), guarded("'tis")
        ("'-1", 'cat', "''tis")
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def unguarded(cell: str) -> str:
    """The label in a cell: what `guarded` gave it is taken away, and nothing else.

    Example:
        >>> unguarded("'-1"), unguarded("'tis"), unguarded("''tis")
        ('-1', "'tis", "'tis")
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def path_text(path: str | Path) -> str:
    r"""A path as text, from which `path_of` makes the same path again; no two paths have one text.

    Nearly every path is its own text. In one with bytes that are no UTF-8, as an old archive's names hold, or with
    control characters, or with spaces at an end, these become ``\xff``, and a backslash two.

    Example:
        >>> print(path_text(os.fsdecode(b"x\xff.png")), path_text("a\\b.png"), path_text("x\\xff.png"))
        x\xff.png a\b.png x\\xff.png
    """
    text = os.fspath(path)
    if not _LIKE_ESCAPE.search(text) and not _NO_TEXT.search(text):
        return text
    return _NO_TEXT.sub(_escaped, text.replace("\\", r"\\"))


def path_of(text: str) -> str:
    r"""The path of a `path_text`.

    Example:
        >>> path_of("x\\xff.png") == os.fsdecode(b"x\xff.png"), path_of("a\\b.png")
        (True, 'a\\b.png')
    """
    return _ESCAPED.sub(_unescaped, text) if _LIKE_ESCAPE.search(text) else text


def path_beside(file: Path, path: str) -> str:
    """A picture's name for a file that lists it: from its folder where the picture lies within, else from the root.

    So it is what was typed where both were named from one folder, and stays right when that folder is moved.

    Example:
        >>> path_beside(Path("/home/out.csv"), "/home/new/1.png"), path_beside(Path("/home/out.csv"), "/mnt/1.png")
        ('new/1.png', '/mnt/1.png')
        >>> path_beside(Path("/home/out.csv"), "/home/=1.png")  # which a spreadsheet would take for a formula
        './=1.png'
    """
    folder, place = os.path.join(os.path.abspath(file.parent), ""), path_of(path)
    if not place.startswith(folder):
        return path
    text = path_text(place.removeprefix(folder))
    return os.path.join(".", text) if guarded(text) != text else text


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(found[0]))


def _unescaped(found: re.Match[str]) -> str:
    return "\\" if found[0] == r"\\" else os.fsdecode(bytes.fromhex(found[0].replace("\\x", "")))
