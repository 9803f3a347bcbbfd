"""What the balance of the queries does to CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lines import Lines, Point


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Accuracy against the Dirichlet parameter; columns are heads, rows are shots, lines are modules."""
    points = [
        Point(
            f"{each['shots']}-shot",
            each["head"].upper(),
            "+".join(each["modules"]).upper() or "plain",
            each["query_balance"].replace("dirichlet:", "A = ").replace("uniform", "balanced"),
            each["accuracy"],
            each["ci95"],
        )
        for each in measured
    ]
    return Lines("class proportions of the queries", "accuracy, %", points)
