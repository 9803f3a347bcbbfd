"""How the queries of an episode are shared among its classes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from ..errors import UsageError


@dataclass(frozen=True)
class QueryBalance:
    """Equal numbers of queries, or class proportions drawn for each episode from a symmetric Dirichlet distribution.

    The total stays ``ways * queries``. A class may get no query at all: it then keeps its support, so that the task
    still has all its ways and queries can be given to that class, but only wrongly.

    Raises:
        UsageError: If the concentration is outside its range.

    Source: Veilleux et al., "Realistic evaluation of transductive few-shot learning", 2021, section 3, who use A = 2.

    Example:
        >>> QueryBalance.parse("dirichlet:2").counts(ways=5, queries=15, seed=0, episode=0)
        [9, 31, 22, 4, 9]
        >>> QueryBalance().counts(ways=5, queries=15, seed=0, episode=0)
        [15, 15, 15, 15, 15]
    """

    # The Dirichlet parameter A in (0, 1e6]; the smaller, the less balanced. None is balanced.
    concentration: float | None = None

    def __post_init__(self) -> None:
        if self.concentration is not None and not 0 < self.concentration <= 1e6:
            raise UsageError(f"The Dirichlet parameter must be above 0 and at most 1e6, but got {self.concentration}.")

    @classmethod
    def parse(cls, text: str) -> QueryBalance:
        """Read ``uniform`` or ``dirichlet:A``."""
        text = str(text)
        if text == "uniform":
            return cls()
        kind, _, number = text.partition(":")
        try:
            concentration = float(number) if kind == "dirichlet" else None
        except ValueError:
            concentration = None
        if concentration is None:
            raise UsageError(f"The query balance must be uniform or dirichlet:A with a number A, but got '{text}'.")
        return cls(concentration)

    def most(self, ways: int, queries: int) -> int:
        """The most queries that one class can get."""
        return queries if self.concentration is None else ways * queries

    def counts(self, ways: int, queries: int, seed: int, episode: int) -> list[int]:
        """Queries of each class of an episode, ``queries`` on average; they depend on seed and episode alone."""
        if self.concentration is None:
            return [queries] * ways
        # Its own generator: learn2learn's choice of classes and images stays as it is.
        generator = random.Random(f"{seed}/{episode}/balance")
        logarithms = [_log_gamma(generator, self.concentration) for _ in range(ways)]
        most = max(logarithms)
        return _share(ways * queries, [math.exp(logarithm - most) for logarithm in logarithms])


BALANCED = QueryBalance()


def _log_gamma(generator: random.Random, shape: float) -> float:
    """Logarithm of a gamma variable, which itself underflows to 0 when the shape is small."""
    if shape >= 0.1:
        return math.log(generator.gammavariate(shape, 1.0) or math.ulp(0.0))
    # A gamma variable of this shape is one of the shape plus 1, times a uniform one to the power of 1 / shape.
    # The bound keeps the logarithm finite; one class takes everything long before that.
    return math.log(generator.gammavariate(shape + 1, 1.0)) + math.log(1 - generator.random()) / max(shape, 1e-100)


def _share(total: int, weights: list[float]) -> list[int]:
    """Whole numbers with that total, in proportion to the weights, by largest remainder."""
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [int(number) for number in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts
