"""The whole of the paper's Table 3: four heads, plain, with CAN and with PSM, 1- and 5-shot."""

from __future__ import annotations

import resource
import sys

from torch import Tensor, nn

from ..data.sampler import EpisodeSampler
from ..evaluation.engine import run_methods
from ..evaluation.experiment import cached_source
from ..evaluation.methods import HeadName, comparison
from ..evaluation.model import TrainedModel
from ..registry import HEADS
from .report import Figure
from .timing import clocked

TASKS = 10_000


def bench_table3(features: Tensor, labels: Tensor, episodes: int, seed: int) -> list[Figure]:
    """Time and memory of the table from given features.

    Args:
        features: Of a split ``(N, d)``.
        labels: Of its images ``(N,)``, int64.
        episodes: Episodes of each of the two settings.
        seed: What they follow from.

    Returns:
        Seconds for 10,000 episodes of both settings, scaled from ``episodes``, and the greatest memory that this
        process has had in use: an upper bound of the table's own.
    """
    model = TrainedModel(nn.Identity(), "lssvm", HEADS.get("lssvm")(), None)
    methods = comparison(model, [HeadName(name) for name in ("nn", "rr", "svm", "lssvm")])

    def table() -> None:
        for shots in (1, 5):
            run_methods(cached_source(features), EpisodeSampler(labels, 5, shots, 15, seed), methods, episodes)

    seconds = clocked(table)() * TASKS / episodes
    what = f"Table 3, {len(methods)} methods, 1- and 5-shot, {TASKS:,} episodes"
    scaled = "" if episodes == TASKS else f", scaled from {episodes:,}"
    return [
        Figure("heads", what + scaled, seconds, "s", at_most=90),
        Figure("heads", "greatest memory of this process", _peak_memory() / 2**30, "GiB", at_most=2),
    ]


def _peak_memory() -> float:
    """In bytes; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
