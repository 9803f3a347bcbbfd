"""The episodes of one column of a table."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch import Tensor

from ..checks import one_of, require
from ..data.balance import QueryBalance
from ..data.base import Split
from ..data.sampler import EpisodeSampler
from .statistics import require_left_out


@dataclass(frozen=True)
class Setting:
    """Number and shape of episodes.

    Args:
        ways: Classes per episode.
        shots: Support images per class.
        queries: Query images per class.
        episodes: Number of episodes.
        seed: Seed of the episodes.
        query_balance: ``"uniform"`` or ``"dirichlet:A"``, see `QueryBalance`.
        interval: Sampling unit of the 95 % intervals: ``"episodes"``, or ``"classes"``, for unseen classes.
    """

    ways: int = 5
    shots: int = 5
    queries: int = 15
    episodes: int = 1000
    seed: int = 0
    query_balance: str = "uniform"
    interval: str = "episodes"

    def __post_init__(self) -> None:
        for name, least, most in (
            ("ways", 2, None),
            ("shots", 1, None),
            ("queries", 1, None),
            ("episodes", 2, 10**9),
            ("seed", 0, sys.maxsize),
        ):
            number = require(name, getattr(self, name), least=least, most=most, whole=True)
            object.__setattr__(self, name, number)  # NumPy's whole numbers cannot be written as JSON
        QueryBalance.parse(self.query_balance)
        one_of("interval", self.interval, ("episodes", "classes"))

    def sampler(self, split: Split) -> EpisodeSampler:
        """The episodes of a split.

        Raises:
            UsageError: If an episode needs more classes or images than there are.
        """
        balance = QueryBalance.parse(self.query_balance)
        return EpisodeSampler(split.labels, self.ways, self.shots, self.queries, self.seed, split.class_names, balance)

    def check(self, split: Split) -> None:
        """Refuse what cannot be measured on a split, before anything is computed.

        Raises:
            UsageError: If an episode needs more classes or images than there are, or the intervals cannot be taken.
        """
        self.sampler(split)
        if self.interval == "classes":
            require_left_out(self.classes(split))

    def classes(self, split: Split) -> Tensor:
        """The classes of each episode, int64 ``(episodes, ways)``."""
        sampler = self.sampler(split)
        first_shots = sampler.batch(0, self.episodes)[:, : sampler.num_support : self.shots]
        return split.labels[first_shots]
