"""What transductive methods gain on the same features, against the balance of the queries."""

from __future__ import annotations

from collections.abc import Sequence

from ...evaluation.rows import Row
from ...grammar import parse
from ...registry import HEADS, METHODS
from .lines import BALANCE, Lines, NamedRow, balance, gains


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the plain method against the balance; columns are heads with ``bpa`` or modules, methods by prior."""
    wanted = [(model, row) for model, row in rows if row.modules or row.reference == "nn" or _has_affinities(row)]
    points = gains(wanted, _column, _name, balance)
    return Lines(BALANCE, "the plain method on the same queries", points)


def _name(row: Row) -> str:
    head = f"{row.head}(bpa)" if _has_affinities(row) else row.head
    return "+".join([head, *row.modules]).upper()


def _has_affinities(row: Row) -> bool:
    return any(parse(adapter)[0].name == "bpa" for adapter in row.adapters)


def _column(row: Row) -> str:
    if row.modules:
        return "refitted head, over the head"
    if row.head in HEADS.names():
        return "head with bpa, over the head"
    equal = row.head in METHODS.names() and METHODS.get(row.head).fills_classes_equally
    return "equal shares, over NN" if equal else "weak or no prior, over NN"
