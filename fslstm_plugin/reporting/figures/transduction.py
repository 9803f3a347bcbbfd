"""What transductive methods gain on the same features, against the balance of the queries."""

from __future__ import annotations

from collections.abc import Sequence

from .lines import Lines, NamedRow, Point

_REFITTED, _OWN = "heads refitted, over the head alone", "methods of their own, over NN"


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the plain method against the balance; columns are heads with modules and methods of their own."""
    points = [
        Point(
            f"{model}, {row.shots}-shot",
            _REFITTED if row.modules else _OWN,
            "+".join([row.head, *row.modules]).upper(),
            row.query_balance.replace("dirichlet:", "A = ").replace("uniform", "balanced"),
            row.gain,
            row.gain_ci95,
            row.accuracy,
            row.ci95,
        )
        for model, row in rows
        if (row.modules or row.reference == "nn") and row.gain is not None and row.gain_ci95 is not None
    ]
    return Lines("class balance (Dirichlet A)", "the plain method on the same queries", points)
