"""The paper's figure "iterations": what PSM gains with its number of iterations k."""

from __future__ import annotations

from collections.abc import Sequence

from ..words import display_name
from .lines import Lines, NamedRow, Point


def lines(rows: Sequence[NamedRow]) -> Lines:
    """Gain over the same method without PSM against k: a row of panels per model, a line per method."""
    points = []
    for model, row in rows:
        method, k, gain, ci95 = row.method, 0, 0.0, 0.0
        if row.iterations is not None:
            if row.reference is None or row.gain is None or row.gain_ci95 is None:
                continue
            method, k, gain, ci95 = row.reference, row.iterations, row.gain, row.gain_ci95
        series = f"{display_name(method)}+PSM"
        points.append(Point(model, f"{row.shots}-shot", series, k, gain, ci95, row.accuracy, row.ci95))
    over = "the same method without PSM (k = 0)"
    return Lines("iterations k of PSM", over, points, own_scales=True)
