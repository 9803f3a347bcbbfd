"""Prediction sets of many classes: what a query costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from ..classifier.estimator import FewShotClassifier
from .report import Figure, Result

# Of each method, classes, and milliseconds a set that it should not exceed, or None.
CASES = (("lssvm", 50, None), ("lssvm", 200, 5.0), ("lssvm", 400, None), ("lssvm(ridge=loo)", 50, None))
SHOTS, QUERIES = 5, 64


def bench_sets(dim: int, rounds: int, seed: int, report: Callable[[str], None]) -> list[Result]:
    """CPU time of the prediction sets of 64 queries, after a fit to 5 points of each class, the median of some rounds.

    There is a figure for each method and number of classes, and no comparison.
    """
    figures: list[Result] = []
    for method, classes, at_most in CASES:
        report(f"sets: {method}, {classes} classes")
        generator = np.random.default_rng(seed)
        centres = generator.standard_normal((classes, dim))
        labels = np.arange(classes * SHOTS) % classes
        points = centres[labels] + generator.standard_normal((len(labels), dim))
        queries = centres[np.arange(QUERIES) % classes] + generator.standard_normal((QUERIES, dim))
        seconds = []
        for _ in range(rounds):
            classifier = FewShotClassifier(method).fit(points, labels)
            began = time.process_time()
            classifier.predict_set(queries, coverage=0.8)
            seconds.append(time.process_time() - began)
        what = f"{method}, {classes} classes of {SHOTS}"
        figures.append(Figure("sets", what, 1e3 * median(seconds) / QUERIES, "ms a set, one core", at_most))
    return figures
