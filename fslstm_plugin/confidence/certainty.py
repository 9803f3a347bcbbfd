"""Which labels can be taken without a look, so that few of all pictures get a wrong one."""

from __future__ import annotations

import math

import numpy as np

from ..checks import require


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


def least_probability(probabilities: np.ndarray, pictures: int, wrong_at_most: float) -> float:
    """From which probability on labels are taken, so that a share of all pictures is expected to get a wrong one.

    The labels of the greatest probabilities p are taken as long as the sum of ``1 - p`` over them, the number of wrong
    ones that is expected, is at most that share of all pictures. It holds as far as the probabilities do: for pictures
    of the classes, drawn as the labelled ones of each class are.

    Args:
        probabilities: Of the labels that may be taken ``(k,)``.
        pictures: How many pictures there are, with those whose labels may not be taken.
        wrong_at_most: The share, above 0 and below 1.

    Returns:
        The least probability; infinity where no label can be taken.

    Raises:
        UsageError: If the share is outside its range.

    Example:
        >>> least_probability(np.array([0.5, 0.9, 0.99, 0.8]), pictures=5, wrong_at_most=0.07)
        0.8
    """
    require("wrong_at_most", wrong_at_most, above=0, below=1)
    ordered = np.sort(probabilities.astype(np.float64))[::-1]
    expected = np.cumsum(1 - ordered)
    taken = int((expected <= wrong_at_most * pictures).sum())
    while 0 < taken < len(ordered) and ordered[taken] == ordered[taken - 1]:  # equal ones are taken together
        taken -= 1
    return float(ordered[taken - 1]) if taken else math.inf
