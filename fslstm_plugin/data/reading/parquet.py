"""Parquet files of encoded images and labels, as hubs keep them: one row per image."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import DataError, listed
from ...extras import needs_extra
from ...storage.damage import naming_damage
from ...storage.files import require_regular
from .walk import class_name

_LABELS = ("label", "labels", "fine_label", "class", "class_name", "target")
_FAULT = "is damaged, or not a parquet file like the others"


class _Group(NamedTuple):
    first: int  # Number of its first row.
    path: Path
    number: int  # In its file.


class ParquetTable:
    """The parquet files of one split, in the order of their rows.

    Labels are read at once; encoded images by row groups, of which the last is kept, when one is asked for.

    Raises:
        DataError: If a file is damaged, or has no column of images or of labels.
        MissingExtraError: If pyarrow is not installed.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        with needs_extra(f"The parquet file {self.paths[0]}", "parquet"):
            import pyarrow.parquet as parquet
        self._parquet = parquet
        for path in self.paths:
            require_regular(path)
        with naming_damage(self.paths[0], _FAULT):
            schema = parquet.read_schema(self.paths[0])
        self._image = _image_column(schema, self.paths[0])
        self._label = next((name for name in _LABELS if name in schema.names), "")
        if not self._label:
            raise DataError(
                f"{self.paths[0]} has the columns {listed(schema.names, 10)}, expected labels in one named "
                f"{', '.join(_LABELS[:-1])} or {_LABELS[-1]}."
            )
        self._names = _class_names(schema, self._label)
        self._groups: list[_Group] = []
        rows = 0
        for path in self.paths:
            with naming_damage(path, _FAULT):
                metadata = parquet.read_metadata(path)
            for number in range(metadata.num_row_groups):
                self._groups.append(_Group(rows, path, number))
                rows += metadata.row_group(number).num_rows
        self._images = lru_cache(1)(self._read_images)

    def classes(self) -> dict[str, list[int]]:
        """The numbers of the rows of each class, by its name: that of the file's metadata, or else the label itself."""
        found: dict[str, list[int]] = {}
        for row, label in enumerate(self._labels()):
            if label is None:
                raise DataError(f"{self.paths[0]} has a row without a label (row {row}, counted from 0).")
            named = self._names and isinstance(label, int) and 0 <= label < len(self._names)
            name = class_name(self._names[label] if named else str(label))
            if not name:
                raise DataError(f"{self.paths[0]} has an empty label (row {row}, counted from 0).")
            found.setdefault(name, []).append(row)
        return found

    def _labels(self) -> list[Any]:
        import pyarrow

        chunks = []
        for path in self.paths:
            with naming_damage(path, _FAULT):
                chunks += self._parquet.read_table(path, columns=[self._label]).column(self._label).chunks
        with naming_damage(self.paths[-1], _FAULT):
            return pyarrow.chunked_array(chunks).to_pylist()  # which refuses labels of different types

    def image(self, row: int) -> bytes:
        """The encoded image of a row; a `DataError` if it has none."""
        group = self._groups[bisect_right(self._groups, row, key=lambda each: each.first) - 1]
        content = self._images(group)[row - group.first].as_py()
        content = content.get("bytes") if isinstance(content, dict) else content
        if not content:
            raise DataError(f"{self.paths[0]} has no image in row {row} (counted from 0).")
        return bytes(content)

    def _read_images(self, group: _Group) -> Any:
        with naming_damage(group.path, _FAULT), self._parquet.ParquetFile(group.path) as file:
            return file.read_row_group(group.number, [self._image]).column(self._image)


def _image_column(schema: Any, path: Path) -> str:
    """The first column of bytes, or of a structure with ``bytes`` in it."""
    import pyarrow.types as types

    for field in schema:
        kind = field.type
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind = kind.field("bytes").type
        if types.is_binary(kind) or types.is_large_binary(kind):
            return str(field.name)
    raise DataError(f"{path} has the columns {listed(schema.names, 10)}, expected encoded images (bytes) in one.")


def _class_names(schema: Any, label: str) -> list[str]:
    """The names of the numbered labels, where the metadata of the library ``datasets`` has them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in names]
