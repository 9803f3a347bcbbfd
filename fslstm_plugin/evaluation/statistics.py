"""Means with 95 % intervals, over episodes."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


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


def paired_difference(first: Tensor, second: Tensor) -> Estimate:
    """Mean of ``first - second`` over the same episodes, much narrower than the difference of two means.

    Args:
        first: Accuracies ``(n,)``.
        second: Accuracies on the same episodes ``(n,)``.
    """
    return estimate(first.double() - second.double())
