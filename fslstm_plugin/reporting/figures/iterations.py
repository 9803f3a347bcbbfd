"""The paper's figure "iterations": what PSM gains with its number of iterations k."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..tables import display_name
from .lines import Lines, Point

_ITERATIONS = re.compile(r"\+psm\(iterations=(\d+)\)$")


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Gain over the same method without PSM against k; rows are models, columns shots, lines methods."""
    points = []
    for each in measured:
        k = _ITERATIONS.search(each["method"])
        gain, ci95 = (each["gain"], each["gain_ci95"]) if k else (0.0, 0.0)
        series = f"{display_name(_ITERATIONS.sub('', each['method']))}+PSM"
        place = int(k[1]) if k else 0
        column = f"{each['shots']}-shot"
        points.append(Point(each["run"], column, series, place, gain, ci95, each["accuracy"], each["ci95"]))
    return Lines("iterations k of PSM", "the same method without PSM (k = 0)", points)
