"""What transductive methods gain on the same features, against the balance of the queries."""

from __future__ import annotations

from collections.abc import Sequence

from ...evaluation.rows import Row
from ...registry import METHODS
from .lines import BALANCE, Lines, NamedRow, Point, balance


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the plain method against the balance; columns are heads with modules, and methods by their prior."""
    points = [
        Point(
            f"{model}, {row.shots}-shot",
            _column(row),
            "+".join([row.head, *row.modules]).upper(),
            balance(row),
            row.gain,
            row.gain_ci95,
            row.accuracy,
            row.ci95,
            row.share_error,
        )
        for model, row in rows
        if (row.modules or row.reference == "nn") and row.gain is not None and row.gain_ci95 is not None
    ]
    return Lines(BALANCE, "the plain method on the same queries", points)


def _column(row: Row) -> str:
    if row.modules:
        return "refitted head, over the head"
    equal = row.head in METHODS.names() and METHODS.get(row.head).fills_classes_equally
    return "equal shares, over NN" if equal else "weak or no prior, over NN"
