"""What a head's constant does, with features as they are and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lines import Lines, Point

_NAMES = {"lssvm": "LSSVM, ρ", "rr": "RR, λ", "svm": "SVM, C"}


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Accuracy against the constant; columns are heads, rows are models and shots.

    A head without a constant to vary, or with the ridge that it chooses itself, is a level line.
    """
    places = sorted({_constant(each) for each in measured} - {None})  # type: ignore[type-var]
    points = []
    for each in measured:
        column = _NAMES.get(each["head"])
        if column is None or not each["options"]:
            continue
        chosen = "loo" in each["options"].values()
        series = (
            f"{'chosen by leave-one-out, ' if chosen else ''}{'normalised' if each['normalize'] else 'as they are'}"
        )
        row = f"{each['run']}\n{each['shots']}-shot"
        for place in (places[0], places[-1]) if chosen else (_constant(each),):
            assert place is not None
            points.append(Point(row, column, series, place, each["accuracy"], each["ci95"]))
    return Lines("constant of the head", "accuracy, %", points, logarithmic=True)


def _constant(each: dict[str, Any]) -> float | None:
    """The constant of a measurement, or None if it has none or chooses it itself."""
    numbers = [float(value) for value in each["options"].values() if not isinstance(value, str)]
    return numbers[0] if numbers else None
