"""The whole of the paper's Table 3: four heads, plain, with CAN and with PSM, 1- and 5-shot."""

from __future__ import annotations

import importlib
import sys

from torch import Tensor

from ..data.sampler import EpisodeSampler
from ..evaluation.runner import indexed, run_methods
from ..naming import parse_method
from .report import Figure
from .timing import clocked

TASKS = 10_000
METHODS = tuple(head + module for head in ("nn", "rr", "svm", "lssvm") for module in ("", "+can", "+psm"))


def bench_table3(features: Tensor, labels: Tensor, episodes: int, seed: int) -> list[Figure]:
    """Time and memory of the table from features ``(N, d)`` and int64 labels ``(N,)`` of a split.

    Seconds are for 10,000 episodes of both settings, scaled from ``episodes`` of each. Where the system tells it, there
    is also the greatest memory that this process has had in use: an upper bound of the table's own.
    """
    methods = [parse_method(name) for name in METHODS]

    def table() -> None:
        for shots in (1, 5):
            run_methods(indexed(features), EpisodeSampler(labels, 5, shots, 15, seed), methods, episodes)

    seconds = clocked(table)() * TASKS / episodes
    what = f"Table 3, {len(methods)} methods, 1- and 5-shot, {TASKS:,} episodes"
    scaled = "" if episodes == TASKS else f", scaled from {episodes:,}"
    figures = [Figure("heads", what + scaled, seconds, "s", at_most=90)]
    memory = peak_memory()
    if memory is not None:
        figures.append(Figure("heads", "greatest memory of this process", memory / 2**30, "GiB", at_most=2))
    return figures


def peak_memory() -> float | None:
    """Greatest memory of this process so far, in bytes; None where Python cannot ask for it, as on Windows."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
