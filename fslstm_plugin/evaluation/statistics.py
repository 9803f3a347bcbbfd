"""Means with 95 % intervals, over episodes or over classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.special import stdtrit
from torch import Tensor

from ..errors import UsageError


class Estimate(NamedTuple):
    """A mean and the half width of its 95 % interval."""

    mean: float
    ci95: float


def estimate(values: Tensor) -> Estimate:
    """Mean and ``1.96 sd / sqrt(n)``, as the paper reports.

    Args:
        values: One number an episode ``(n,)``.

    Returns:
        The estimate; the interval of a single episode is infinite.

    Example:
        >>> import torch
        >>> estimate(torch.tensor([60.0, 80.0]))
        Estimate(mean=70.0, ci95=19.6)
    """
    values = values.double()
    if len(values) < 2:
        return Estimate(values.mean().item(), float("inf"))
    return Estimate(values.mean().item(), round(1.96 * (values.std() / len(values) ** 0.5).item(), 12))


def estimate_over_classes(values: Tensor, classes: Tensor) -> Estimate:
    """The same mean with an interval for new classes, not only for new episodes of the same classes.

    Episodes draw from the same few test classes and images again and again, so that more of them make the usual
    interval as narrow as one likes, and say nothing about other classes. The units of this interval are instead the
    classes with all their images, which are disjoint: it is the jackknife that leaves out one class, and every
    episode with it, at a time. What the finite number of episodes adds to the jackknife's variance is taken out of it
    and added once, so that the interval is never narrower than that over episodes, and shrinks to what the classes
    leave uncertain, not to zero.

    Source: Arvesen, "Jackknifing U-statistics", 1969, for the delete-one jackknife of a mean over subsets of classes;
    Student's t with one degree of freedom less than there are classes.

    Args:
        values: One number an episode ``(n,)``.
        classes: The classes of each episode, int64 ``(n, ways)``.

    Returns:
        The estimate.

    Raises:
        UsageError: If a class is in every episode or in fewer than two, so that it cannot be left out or judged.

    Example:
        >>> import torch
        >>> pairs = torch.combinations(torch.arange(4))
        >>> estimate_over_classes(pairs.sum(-1), pairs).mean
        3.0
    """
    values = values.double()
    number = int(classes.max()) + 1
    inside = torch.zeros(len(values), number, dtype=torch.bool).scatter_(1, classes, value=True)
    inside = inside[:, inside.any(0)]
    leave_out, noise = zip(*(_leave_out(values, column) for column in inside.mT), strict=True)
    count = len(leave_out)
    between = (count - 1) / count * sum(shift**2 - variance for shift, variance in zip(leave_out, noise, strict=True))
    within = values.var().item() / len(values)
    deviation = (max(between, 0.0) + within) ** 0.5
    return Estimate(values.mean().item(), round(float(stdtrit(count - 1, 0.975)) * deviation, 12))


def _leave_out(values: Tensor, inside: Tensor) -> tuple[float, float]:
    """What leaving out one class does to the mean, and the variance of that from the choice of episodes alone."""
    without, with_it = values[~inside], values[inside]
    if min(len(without), len(with_it)) < 2:
        raise UsageError(
            "An interval over classes needs a split with more classes than ways, and enough episodes that each class "
            "is in some of them and absent from others: raise --episodes, or lower --ways."
        )
    share = len(with_it) / len(values)
    shift = share * (without.mean() - with_it.mean()).item()
    return shift, share**2 * (without.var() / len(without) + with_it.var() / len(with_it)).item()
