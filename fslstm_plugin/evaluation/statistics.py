"""Means with 95 % intervals: over episodes or over classes, of one method, or of all differences at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError

_DRAWS = 20_000  # With them the factor of simultaneous intervals is uncertain by less than 1 %.


class Estimate(NamedTuple):
    """A mean and the half width of its 95 % interval."""

    mean: float
    ci95: float


def estimate(values: Tensor, counted: int = 0) -> Estimate:
    """Mean and ``t sd / sqrt(n)``, t the 97.5 % point of Student's distribution with n - 1 degrees of freedom.

    The paper has 1.96 in place of t, which is too little for few episodes.

    A few episodes in which almost every query is right have almost no variance, and say little about how rare errors
    are. So a mean of percentages has at least the standard error of a share of all queries, with two right and two
    wrong ones added.

    Source: Agresti and Coull, "Approximate is better than 'exact' for interval estimation of binomial proportions",
    1998, for the four added ones.

    Args:
        values: One number per episode ``(n,)``.
        counted: Of how many queries each is the percentage. Default 0: of none, as differences.

    Returns:
        The estimate; the interval of a single episode is infinite.

    Example:
        >>> import torch
        >>> estimate(torch.tensor([60.0, 80.0] * 500))
        Estimate(mean=70.0, ci95=0.62085...)
        >>> estimate(torch.tensor([100.0] * 10), counted=75)
        Estimate(mean=100.0, ci95=0.42...)
    """
    values = values.double()
    if len(values) < 2:
        return Estimate(values.mean().item(), float("inf"))
    error = max(_standard_error(values), _least_error(values, counted))
    return Estimate(values.mean().item(), round(_student(len(values) - 1) * error, 12))


def _least_error(values: Tensor, counted: int) -> float:
    """See `estimate`; in percent."""
    if not counted:
        return 0.0
    share = _doubted_share(values, counted)
    return float(100 * (share * (1 - share) / (len(values) * counted + 4)) ** 0.5)


def _doubted_share(values: Tensor, counted: int) -> float:
    """The mean of percentages as a share of all queries, with two right and two wrong ones added."""
    queries = len(values) * counted
    return (queries * values.mean().item() / 100 + 2) / (queries + 4)


def together(
    accuracies: Tensor, tables: int = 1, classes: Tensor | None = None, counted: int = 0
) -> Callable[[Tensor], Estimate]:
    """How to estimate differences of methods so that all intervals hold at once.

    A table makes many comparisons, each of which may be wrong, and the method that all are compared with may be chosen
    by the same numbers. These intervals hold for the differences of all pairs of methods with 95 % probability
    together, whichever are looked at.

    Over episodes, the half width is the 95 % point of the largest standardised difference of a pair; fewer
    than two episodes for each method say too little about it, and over classes the jackknife does: there it is
    Bonferroni's bound over all pairs.

    Two or three episodes may all have the same difference, which would then seem certain. So a difference of
    percentages has at least the standard error of two queries, each of which another of the two methods has right.

    Source: Hothorn, Bretz and Westfall, "Simultaneous inference in general parametric models", 2008: the point under
    the normal distribution with the methods' covariance, which is drawn from a fixed seed; here with Student's
    distribution in place of the normal one for each difference, for few episodes. Bonett and Price, "Adjusted Wald
    confidence interval for a difference of binomial proportions based on paired data", 2012, who add such two queries.

    Args:
        accuracies: One number for each method and episode ``(methods, n)``, of the same episodes.
        tables: How many such tables are to hold at once, as of several numbers of shots. Default 1.
        classes: For intervals over classes, see `estimate_over_classes`. Default None: over episodes.
        counted: Of how many queries each number is the percentage. Default 0: of none.

    Returns:
        From the difference of two methods in each episode ``(n,)`` to its estimate.

    Example:
        >>> import torch
        >>> same = torch.arange(100.0)
        >>> better = same + torch.tensor([1.0, 3.0] * 50)
        >>> together(torch.stack([same, better]))(better - same)
        Estimate(mean=2.0, ci95=0.199...)
    """
    methods, episodes = accuracies.shape
    share = 0.05 / tables
    alone = 1 - share / max(2, methods * (methods - 1))
    if classes is not None:
        return partial(estimate_over_classes, classes=classes, share=alone)
    factor = _simultaneous_factor(accuracies.double(), share, alone) if methods > 1 and episodes > 1 else torch.inf
    least = 100 * 2**0.5 / (episodes * counted) if counted else 0.0

    def of_pair(difference: Tensor) -> Estimate:
        difference = difference.double()
        if not difference.any():  # methods that answer alike
            return Estimate(0.0, 0.0)
        error = max(_standard_error(difference), least) if episodes > 1 else 1.0
        return Estimate(difference.mean().item(), round(factor * error, 12))

    return of_pair


def estimate_to_the_best(accuracies: Tensor, compare: Callable[[Tensor], Estimate] | None = None) -> list[Estimate]:
    """Differences to the method with the highest mean, with intervals that hold all at once.

    Args:
        accuracies: One number for each method and episode ``(methods, n)``, of the same episodes.
        compare: How to estimate them. Default None: `together`, over episodes.

    Returns:
        For each method, its mean less the best one's: 0 with an interval of 0 for the best itself (the first, if
        several are equal), and for methods that were as good as it in every episode.

    Example:
        >>> import torch
        >>> same = torch.arange(100.0)
        >>> better = same + torch.tensor([1.0, 3.0] * 50)
        >>> [[round(number, 2) for number in each] for each in estimate_to_the_best(torch.stack([same, better]))]
        [[-2.0, 0.2], [0.0, 0.0]]
    """
    compare = compare or together(accuracies)
    accuracies = accuracies.double()
    return [compare(each - accuracies[accuracies.mean(-1).argmax()]) for each in accuracies]


def widened(ci95: float, episodes: int, comparisons: int) -> float:
    """The half width of one of several intervals that hold at once, by Bonferroni's bound, from that of it alone.

    Example:
        >>> round(widened(1.0, episodes=10_000, comparisons=12), 2)
        1.46
    """
    return ci95 * _student(episodes - 1, 1 - 0.025 / comparisons) / _student(episodes - 1)


def _simultaneous_factor(values: Tensor, share: float, alone: float) -> float:
    """How many standard errors the differences of all pairs of rows ``(methods, n)`` stay within together.

    ``share`` is how often one may not, ``alone`` the quantile by Bonferroni's bound.
    """
    methods, episodes = values.shape
    freedom = episodes - 1
    if episodes <= 2 * methods:
        return _student(freedom, alone)
    covariance = torch.cov(values - values[values.mean(-1).argmax()])
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    normal = torch.from_numpy(np.random.default_rng(0).standard_normal((_DRAWS, methods)))
    drawn = normal * eigenvalues.clamp(min=0).sqrt() @ vectors.mT
    variances = covariance.diagonal()
    largest = drawn.new_zeros(_DRAWS)
    for row in range(methods):
        variance = variances[row] + variances - 2 * covariance[row]
        # For equal methods rounding leaves a difference and a variance whose ratio would be meaningless.
        differ = variance > 1e-12 * (variances[row] + variances)
        if differ.any():
            standardised = (drawn[:, differ] - drawn[:, row, None]).abs() / variance[differ].sqrt()
            largest = torch.maximum(largest, standardised.amax(-1))
    # The point of one standard normal difference that is as likely, and its place in Student's distribution: the
    # standard errors are estimates too.
    found = torch.special.ndtr(largest.quantile(1 - share)).item()
    return _student(freedom, min(alone, max(1 - share / 2, found)))


def estimate_over_classes(values: Tensor, classes: Tensor, counted: int = 0, share: float = 0.975) -> Estimate:
    """The same mean with an interval for new classes, not only for new episodes of the same classes.

    Episodes draw from the same few test classes and images again and again, so that more of them make the usual
    interval arbitrarily narrow, and say nothing about other classes. The units of this interval are instead the
    classes with all their images, which are disjoint: it is the jackknife that leaves out one class, and every
    episode with it, at a time. The variance over episodes is added, so that the interval is never narrower than that,
    and shrinks to what the classes leave uncertain, not to zero. The jackknife contains the noise of the episodes
    once more, so that the interval is on the wide side where episodes are few or classes hardly differ.

    Where most classes are easy, a hard one lies far below the mean, and few classes may have none of it. So the half
    width of percentages is at least the distance to the farther end of the interval of their log odds.

    Source: Arvesen, "Jackknifing U-statistics", 1969, for the delete-one jackknife of a mean over subsets of classes;
    Student's t with one degree of freedom less than there are classes. Brown, Cai and DasGupta, "Interval estimation
    for a binomial proportion", 2001, for the interval of log odds.

    Args:
        values: One number per episode ``(n,)``.
        classes: The classes of each episode, int64 ``(n, ways)``.
        counted: See `estimate`.
        share: Of Student's distribution below the half width. Default 0.975: a 95 % interval.

    Returns:
        The estimate.

    Raises:
        UsageError: If a class is in every episode or in fewer than two, so that it cannot be left out or judged; see
            `require_left_out`.

    Example:
        >>> import torch
        >>> pairs = torch.combinations(torch.arange(4))
        >>> estimate_over_classes(pairs.sum(-1), pairs).mean
        3.0
    """
    values = values.double()
    inside = require_left_out(classes)
    # The change of the mean when one class is left out, of each.
    shifts = torch.stack([values[~column].mean() - values.mean() for column in inside.mT])
    count = len(shifts)
    between = (count - 1) / count * shifts.square().sum().item()
    deviation = (between + max(_standard_error(values), _least_error(values, counted)) ** 2) ** 0.5
    half = _student(count - 1, share) * deviation
    return Estimate(values.mean().item(), round(max(half, _farther_end(values, half, counted)), 12))


def _farther_end(values: Tensor, half: float, counted: int) -> float:
    """How far the farther end of the interval is that has this half width in log odds; 0 where nothing is counted."""
    if not counted:
        return 0.0
    share = _doubted_share(values, counted)
    odds, less = share / (1 - share), math.exp(-half / 100 / (share * (1 - share)))
    return 100 * max(share - odds * less / (1 + odds * less), odds / (odds + less) - share)


def require_left_out(classes: Tensor) -> Tensor:
    """Which classes are in which episodes, bool ``(n, classes)``; each can be left out, and judged.

    Args:
        classes: The classes of each episode, int64 ``(n, ways)``.

    Raises:
        UsageError: If a class is in fewer than two episodes, or in all but one or all.
    """
    inside = classes.new_zeros(len(classes), int(classes.max()) + 1, dtype=torch.bool).scatter_(1, classes, value=True)
    inside = inside[:, inside.any(0)]
    counts = inside.sum(0)
    if torch.minimum(counts, len(inside) - counts).min() < 2:
        raise UsageError(
            "An interval over classes needs a split with more classes than ways, and enough episodes that each class "
            f"is in some of them and absent from others, but got {len(inside)} episodes of {classes.shape[1]} "
            f"ways with {inside.shape[1]} classes in all: raise `episodes`, or lower `ways`."
        )
    return inside


def _standard_error(values: Tensor) -> float:
    return (values.std() / len(values) ** 0.5).item()


def _student(freedom: int, share: float = 0.975) -> float:
    """Quantile of Student's t distribution; 1.96 in the limit."""
    from scipy.special import stdtrit  # slow to import, and not always needed

    return float(stdtrit(freedom, share))
