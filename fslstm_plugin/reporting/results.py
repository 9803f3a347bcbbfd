"""Rows in a file, as JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ..evaluation.calibration import CalibrationRow
from ..evaluation.coverage import CoverageRow
from ..evaluation.open_set import OpenRow
from ..evaluation.rows import Row
from ..grammar import value_text
from ..storage.files import csv_lines
from ..storage.plain import to_plain
from .provenance import made_now
from .statements import statements


class Results(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a JSON file of results holds."""

    command: str  # As typed.
    version: str  # Of the plugin.
    date: str  # As ISO 8601.
    rows: Annotated[list[Row], Meta(min_length=1)]
    statements: list[str]  # Paired differences in words.
    notes: list[str] = []
    # Quality of the probabilities, coverage and size of prediction sets, detection of unknown classes; if requested.
    calibration: list[CalibrationRow] | UnsetType = UNSET
    coverage: list[CoverageRow] | UnsetType = UNSET
    open: list[OpenRow] | UnsetType = UNSET


def json_content(rows: Sequence[Row], notes: Sequence[str] = (), **further: Any) -> dict[str, Any]:
    """Content of a JSON file of results, as plain data, see `Results`, whose last fields are the further ones."""
    said: dict[str, Any] = {**made_now(), "statements": statements(rows), "notes": list(notes), **further}
    return dict(to_plain(Results(rows=list(rows), **said)))


def csv_text(rows: Sequence[Row]) -> str:
    """Every field of every row as CSV; lists are joined by ``+``, options are as typed."""
    return csv_lines([{name: _csv_cell(value) for name, value in to_plain(row).items()} for row in rows])


def _csv_cell(value: Any) -> Any:
    if isinstance(value, dict):
        return ",".join(f"{name}={value_text(each)}" for name, each in value.items())
    return "+".join(value) if isinstance(value, list) else value
