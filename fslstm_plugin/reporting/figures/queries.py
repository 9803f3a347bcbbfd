"""The effect of the number of queries on CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import Lines, NamedRow, gains_of_modules


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain of a module over its plain head against the queries; columns are heads, rows of panels models and shots."""
    points = gains_of_modules(rows, lambda row: row.queries)
    return Lines("queries per class", "the head alone", points, logarithmic=True)
