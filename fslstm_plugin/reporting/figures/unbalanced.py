"""What the balance of the queries does to CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lines import Lines, Point, model_and_shots


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Gain of a module over its plain head against the balance; columns are heads, rows models and shots."""
    points = [
        Point(
            model_and_shots(each),
            each["head"].upper(),
            "+".join(each["modules"]).upper(),
            each["query_balance"].replace("dirichlet:", "A = ").replace("uniform", "balanced"),
            each["gain"],
            each["gain_ci95"],
            each["accuracy"],
            each["ci95"],
        )
        for each in measured
        if each["modules"]
    ]
    return Lines("class balance (Dirichlet A)", "the head alone on the same queries", points)
