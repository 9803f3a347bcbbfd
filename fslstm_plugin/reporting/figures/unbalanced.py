"""What the balance of the queries does to CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import Lines, NamedRow, gain_of_modules


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain of a module over its plain head against the balance; columns are heads, rows of panels models and shots."""
    points = gain_of_modules(
        rows, lambda row: row.query_balance.replace("dirichlet:", "A = ").replace("uniform", "balanced")
    )
    return Lines("class balance (Dirichlet A)", "the head alone on the same queries", points)
