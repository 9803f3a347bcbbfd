"""What transductive methods gain on the same features, against the balance of the queries."""

from __future__ import annotations

from collections.abc import Sequence

from ...evaluation.rows import Row
from ...registry import METHODS
from .lines import BALANCE, Lines, NamedRow, balance, gains


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the plain method against the balance; columns are heads with modules, and methods by their prior."""
    wanted = [(model, row) for model, row in rows if row.modules or row.reference == "nn"]
    points = gains(wanted, _column, lambda row: "+".join([row.head, *row.modules]).upper(), balance)
    return Lines(BALANCE, "the plain method on the same queries", points)


def _column(row: Row) -> str:
    if row.modules:
        return "refitted head, over the head"
    equal = row.head in METHODS.names() and METHODS.get(row.head).fills_classes_equally
    return "equal shares, over NN" if equal else "weak or no prior, over NN"
