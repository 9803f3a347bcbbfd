"""How many queries of the classes are taken for none of them; PyTorch is not imported."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ROUNDING = 1e-9  # A share times a number is not exactly whole.


def refused_share(counts: Sequence[int], rank: float, *, equally: bool = False) -> tuple[float, float]:
    """The least and the greatest share of the queries of the classes that has at most this rank.

    Were all n + 1 points alike, each rank would have the chance 1 / (n + 1). But the points of some classes may be so
    much less familiar than those of the others that only they have low ranks. And the distances of k points to their
    means are worth k - 1, as the deviations of k numbers are; those of the query's class, of which it is one, k + 1.
    So if a classes matter, with k_1, ..., k_a points, the share of the r lowest ranks among their queries is

        ``r / (2 + sum_i (k_i - 1))``.

    Of classes of one point no point is ranked, so that where only these matter it may be all of their queries.
    Which classes matter is not known: at the least any one, at the most any number of the smallest or the largest.

    This assumes points that are drawn as the queries are. Points that `suggestions.suggest` chose are less alike, and
    the share is smaller.

    Args:
        counts: Points of each class.
        rank: See `familiarity.familiarity_rank`.
        equally: Whether as many queries are of each class. Default False: they come in the proportions of the points.

    Example:
        >>> for counts in ([5] * 5, [2] * 10, [2, 2, 2, 2, 20]):
        ...     found = refused_share(counts, 0.05), refused_share(counts, 0.05, equally=True)
        ...     print(*(f"{low:.3f} to {high:.3f}" for low, high in found))
        0.033 to 0.045 0.033 to 0.045
        0.033 to 0.083 0.033 to 0.083
        0.024 to 0.048 0.010 to 0.133
    """
    sizes = sorted(counts)
    points = sum(each for each in sizes if each > 1)
    lowest = math.floor(rank * (points + 1) + _ROUNDING)

    def share(matter: Sequence[int]) -> float:
        queries = len(matter) / len(sizes) if equally else sum(matter) / sum(sizes)
        return queries * min(1.0, lowest / (2 + sum(matter) - len(matter) if max(matter) > 1 else 1))

    least = min((share([each]) for each in sizes if each > 1), default=0.0)
    several = [part for place in range(len(sizes)) for part in (sizes[: place + 1], sizes[place:])]
    return least, max(map(share, several))
