"""Which labels can be taken unchecked, so that few of all pictures get a wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..checks import require

_ROUNDING = 1e-9  # A share times a number is not exactly whole.


def cautious(probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Probabilities for a promise: their logarithms divided by ``s / (s - 1)``, s the labelled points of a class.

    The temperature is fitted to points that were left out, whose class had ``s - 1``. With s its logits are larger, and
    the probabilities may be too certain, most of all where the classes are many and their points few. They are
    by no more than that factor.

    Args:
        probabilities: ``(..., ways)``.
        counts: Labelled points of each class, int64 ``(ways,)``. The factor is the mean over the points that are not
            the only one of their class.

    Returns:
        ``(..., ways)``, float64, in the same order; all equal where no class has two points.

    Example:
        >>> cautious(np.array([0.9, 0.1]), np.array([2, 2]))
        array([0.75, 0.25])
    """
    several = counts[counts > 1].astype(np.float64)
    factor = (several * several / (several - 1)).sum() / several.sum() if len(several) else math.inf
    smallest = np.finfo(np.float64).tiny
    shares = np.maximum(probabilities.astype(np.float64), smallest) ** (1 / factor)
    return shares / shares.sum(-1, keepdims=True)


class LeftOut(NamedTuple):
    """How the labelled points are predicted by the method fitted without them.

    Attributes:
        wrong: Cautious probabilities of the labels of those that are predicted wrongly.
        points: How many there are.
    """

    wrong: Sequence[float]
    points: int

    @classmethod
    def of(cls, probabilities: np.ndarray, labels: np.ndarray) -> LeftOut:
        """From cautious probabilities ``(n, ways)`` of points that were left out, and their labels ``(n,)``.

        Example:
            >>> LeftOut.of(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]))
            LeftOut(wrong=[0.6], points=2)
        """
        return cls(probabilities.max(-1)[probabilities.argmax(-1) != labels].tolist(), len(labels))

    def least(self, share: float) -> float:
        """The probability above which at most this share of the points is predicted, and wrongly."""
        allowed = math.floor(share * self.points + _ROUNDING)
        ordered = sorted(self.wrong, reverse=True)
        return np.nextafter(ordered[allowed], 2.0) if len(ordered) > allowed else 0.0


def least_probability(
    probabilities: np.ndarray, pictures: int, wrong_at_most: float, left_out: LeftOut | None = None
) -> float:
    """The least probability of a label to take, so that at most a share of all pictures is expected to get a wrong one.

    The labels of the greatest probabilities p are taken as long as the sum of ``1 - p`` over them, the number of wrong
    ones that is expected, is at most that share of all pictures, and as long as no greater share of the labelled points
    would be taken and be wrong, each left out. It holds as far as the probabilities do: for pictures of the classes,
    drawn as the labelled ones of each class are and, where these differ in number, in their proportions.

    Args:
        probabilities: Of the labels that may be taken ``(k,)``.
        pictures: How many pictures there are, with those whose labels may not be taken.
        wrong_at_most: The share, above 0 and below 1.
        left_out: The labelled points. Default None: not known.

    Returns:
        The least probability; infinity where no label can be taken.

    Raises:
        UsageError: If the share is outside its range.

    Example:
        >>> least_probability(np.array([0.5, 0.9, 0.99, 0.8]), pictures=5, wrong_at_most=0.07)
        0.8
    """
    require("wrong_at_most", wrong_at_most, above=0, below=1)
    least = 0.0 if left_out is None else left_out.least(wrong_at_most)
    ordered = np.sort(probabilities[probabilities >= least].astype(np.float64))[::-1]
    expected = np.cumsum(1 - ordered)
    taken = int((expected <= wrong_at_most * pictures).sum())
    while 0 < taken < len(ordered) and ordered[taken] == ordered[taken - 1]:  # equal ones are taken together
        taken -= 1
    return float(ordered[taken - 1]) if taken else math.inf
