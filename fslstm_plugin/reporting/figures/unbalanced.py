"""The effect of the balance of the queries on CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import BALANCE, Lines, NamedRow, balance, gains_of_modules


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain of a module over its plain head against the balance; columns are heads, rows of panels models and shots."""
    return Lines(BALANCE, "the head alone on the same queries", gains_of_modules(rows, balance))
