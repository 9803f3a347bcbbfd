"""What the number of queries does to CAN and PSM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lines import Lines, Point, model_and_shots


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Gain of a module over its plain head against the queries a class; columns are heads, rows models and shots."""
    points = [
        Point(
            model_and_shots(each),
            each["head"].upper(),
            "+".join(each["modules"]).upper(),
            each["queries"],
            each["gain"],
            each["gain_ci95"],
            each["accuracy"],
            each["ci95"],
        )
        for each in measured
        if each["modules"]
    ]
    return Lines("queries a class", "the head alone", points, logarithmic=True)
