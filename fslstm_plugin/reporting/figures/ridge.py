"""What a head's constant does, with features as they are and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lines import Lines, Point

_NAMES = {"lssvm": "LSSVM, ρ", "rr": "RR, λ", "svm": "SVM, C"}


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Accuracy against the constant; columns are heads, rows are models and shots.

    The ridge that the LSSVM chooses itself is a level line.
    """
    points = []
    for each in measured:
        if each["head"] not in _NAMES or not each["options"]:
            continue
        chosen = "loo" in each["options"].values()
        series = (
            f"{'chosen by leave-one-out, ' if chosen else ''}{'normalised' if each['normalize'] else 'as they are'}"
        )
        row = f"{each['run']}\n{each['shots']}-shot"
        for place in _constants(measured, each["head"]) if chosen else _constants([each], each["head"]):
            points.append(Point(row, _NAMES[each["head"]], series, place, each["accuracy"], each["ci95"]))
    return Lines("constant of the head", "accuracy, %", points, logarithmic=True)


def _constants(measured: Sequence[dict[str, Any]], head: str) -> list[float]:
    """The constants that a head was measured with."""
    values = {value for each in measured if each["head"] == head for value in each["options"].values()}
    return sorted(float(value) for value in values if not isinstance(value, str))
