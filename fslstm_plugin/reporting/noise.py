"""Which methods the episodes cannot tell from the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from ..evaluation.rows import Row


def by_shots(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """The rows of each number of shots, which are of the same episodes."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.shots, []).append(row)
    return groups


def to_best_ci95(row: Row, group: Sequence[Row]) -> float:
    """Half width of a 95 % interval for the difference to the best that knows that the best was chosen.

    Of twelve equal methods, one is nearly always best by more than the usual interval of a single difference. This one
    holds for all pairs of methods at once (Bonferroni); of two methods it is the usual one.

    Args:
        row: A row.
        group: The rows of the same episodes.

    Example:
        >>> [round(_widening(methods), 2) for methods in (2, 12)]
        [1.0, 1.72]
    """
    return row.difference_ci95 * _widening(len(group))


def _widening(methods: int) -> float:
    pairs = max(1, methods * (methods - 1) // 2)
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / pairs) / normal.inv_cdf(0.975)


def is_among_best(row: Row, group: Sequence[Row]) -> bool:
    """Whether a row is the best of those of the same episodes, or within noise of it."""
    return abs(row.difference) <= to_best_ci95(row, group)
