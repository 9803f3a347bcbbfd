"""The paper's figure "iterations": what PSM gains with its number of iterations k."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..tables import display_name
from .lines import Lines, Point

_ITERATIONS = re.compile(r"\+psm\(iterations=(\d+)\)$")


def lines(measured: Sequence[dict[str, Any]]) -> Lines:
    """Gain over the same method without PSM against k; one panel a model, one line for a method and shots."""
    points = []
    for each in measured:
        k = _ITERATIONS.search(each["method"])
        gain, ci95 = (each["gain"], each["gain_ci95"]) if k else (0.0, 0.0)
        method = display_name(_ITERATIONS.sub("", each["method"]))
        column = f"{each['dataset']}, {each['backbone']}, {each['run']}"
        points.append(Point("", column, f"{method}+PSM, {each['shots']}-shot", int(k[1]) if k else 0, gain, ci95))
    return Lines("iterations k of PSM", "gain in accuracy, points", points)
