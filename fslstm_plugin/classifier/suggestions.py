"""Which unlabelled points to label next, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import require
from ..errors import UsageError
from ..heads.linalg import solve_spd

MOST = 2000  # Points that are looked at; their covariance takes 32 MB.
_CENTRED_AT_FIRST = 0.5  # How much of the mean is taken from the points where none is labelled.
_NOISE = 0.1  # Of a label, as a share of the mean squared length of the points.


class Suggestion(NamedTuple):
    """A point to label."""

    place: int  # Its row among the unlabelled points.
    reason: str  # Why, in words: "between wren and robin, like 23 others".


def suggest(
    labelled: Tensor, pool: Tensor, probabilities: Tensor, classes: Sequence[object], count: int, seed: int = 0
) -> list[Suggestion]:
    """The points whose labels tell most about all of them.

    The score of a point x is how much its label would reduce the variance of a Gaussian process, summed over all points
    z of the pool, ``sum_z cov(z, x)^2 / (cov(x, x) + noise)``, with the covariance that the labelled points and those
    chosen before leave. That needs no label, so that points are chosen one after the other for one round of labelling,
    and none tells what another tells already. The kernel is the inner product of features of unit length less their
    mean; the noise is 0.1 of the mean squared length of these.

    So a point is chosen for the others that are like it. Choosing the most uncertain points instead, which is common,
    is no better than drawing them where few are labelled: they are odd pictures, and mostly of the classes that are
    confused.

    Source: Yu, Bi and Tresp, "Active learning via transductive experimental design", 2006, sequential design.

    Args:
        labelled: Features ``(n, d)``, floating point.
        pool: Features ``(m, d)`` of the unlabelled points.
        probabilities: Of their classes ``(m, ways)``, for the reasons.
        classes: Names of the classes.
        count: How many to choose; all, if there are fewer.
        seed: Of more than 2000 points, that many are drawn with this seed and looked at. Default 0.

    Returns:
        The suggestions, the most useful first.

    Example:
        >>> labelled = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]])
        >>> pool = torch.tensor([[1.0, 0.9, 0, 0], [0, 0, 1, 0.1], [0, 0, 1, 0], [0, 0.1, 1, 0], [1, 0.1, 0, 0]])
        >>> sure = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.9, 0.1]])
        >>> [(each.place, each.reason) for each in suggest(labelled, pool, sure, ["wren", "robin"], 2)]
        [(0, 'between wren and robin, like 1 other'), (2, 'unlike anything labelled, like 2 others')]
    """
    require("count", count, least=1, whole=True)
    if pool.dim() != 2 or labelled.shape[1:] != pool.shape[1:] or probabilities.shape != (len(pool), len(classes)):
        raise UsageError(
            "Suggestions need features (n, d) and (m, d) and probabilities (m, classes), but got "
            f"{tuple(labelled.shape)}, {tuple(pool.shape)}, {tuple(probabilities.shape)} and {len(classes)} classes."
        )
    if not len(pool):
        return []
    found = _found(labelled, pool, count, seed)
    best = probabilities[found.looked_at].double().topk(2)
    uncertainty = 1 - (best.values[:, 0] - best.values[:, 1])
    doubtful = _rank(uncertainty) >= _rank(found.variance)
    suggestions = []
    for place, others in zip(found.chosen, found.others, strict=True):
        first, second = (classes[each] for each in best.indices[place].tolist())
        why = f"between {first} and {second}" if doubtful[place] else "unlike anything labelled"
        group = f", {_like(others)}" if others else ""
        suggestions.append(Suggestion(int(found.looked_at[place]), why + group))
    return suggestions


def suggest_first(pool: Tensor, count: int, seed: int = 0) -> list[Suggestion]:
    """The points to label first, where none is, by their features ``(m, d)``; see `suggest`.

    Of two groups, less their mean, the one is the opposite of the other, and a label of either would tell both. So half
    of the mean is left in the points.

    Example:
        >>> pool = torch.tensor([[1.0, 0.1, 0], [1.0, 0, 0], [0, 0, 1], [0, 0.1, 1], [0, 0.2, 1]])
        >>> [(each.place, each.reason) for each in suggest_first(pool, 2)]
        [(3, 'like 2 others'), (0, 'like 1 other')]
    """
    require("count", count, least=1, whole=True)
    if pool.dim() != 2:
        raise UsageError(f"Suggestions need features (m, d), but got {tuple(pool.shape)}.")
    if not len(pool):
        return []
    found = _found(pool[:0], pool, count, seed, _CENTRED_AT_FIRST)
    reasons = (_like(others) if others else "like no other" for others in found.others)
    return [Suggestion(int(found.looked_at[place]), why) for place, why in zip(found.chosen, reasons, strict=True)]


class _Found(NamedTuple):
    """Points of a pool that were looked at and, of these, chosen; for how many others each; what labels leave open."""

    looked_at: Tensor
    chosen: list[int]
    others: list[int]
    variance: Tensor


def _found(labelled: Tensor, pool: Tensor, count: int, seed: int, centred: float = 1.0) -> _Found:
    generator = torch.Generator("cpu").manual_seed(seed)
    looked_at = torch.randperm(len(pool), generator=generator, device="cpu")[:MOST].sort().values
    covariance, noise = _posterior(labelled.double(), pool[looked_at].double(), centred)
    chosen = _choose(covariance, noise, min(count, len(looked_at)))
    variance = covariance.diagonal().contiguous()
    correlation = covariance[chosen] / variance[chosen].clamp(min=torch.finfo(variance.dtype).tiny).sqrt().unsqueeze(1)
    like = correlation.argmax(0).bincount(minlength=len(chosen))
    return _Found(looked_at, chosen, (like - 1).clamp(min=0).tolist(), variance)


def _like(others: int) -> str:
    return f"like {others} other{'s' if others > 1 else ''}"


def _posterior(labelled: Tensor, pool: Tensor, centred: float) -> tuple[Tensor, Tensor]:
    """The covariance ``(m, m)`` of the pool's values that the labels leave, and the variance of a label's noise."""
    points = F.normalize(torch.cat([labelled, pool]), dim=-1)
    points = points - centred * points.mean(0)
    labelled, pool = points.tensor_split([len(labelled)])
    noise = _NOISE * points.square().sum(-1).mean().clamp(min=torch.finfo(points.dtype).tiny)
    cross = labelled @ pool.mT
    system = labelled @ labelled.mT + noise * torch.eye(len(labelled), dtype=points.dtype, device=points.device)
    return pool @ pool.mT - cross.mT @ solve_spd(system, cross), noise


def _choose(covariance: Tensor, noise: Tensor, count: int) -> list[int]:
    """Points chosen one after the other, each with the covariance that those before it leave."""
    chosen: list[int] = []
    for _ in range(count):
        scores = covariance.square().sum(0) / (covariance.diagonal() + noise)
        scores[chosen] = -torch.inf
        best = int(scores.argmax())
        step = covariance[best] / (covariance[best, best] + noise).sqrt()
        covariance = covariance - step.unsqueeze(1) * step
        chosen.append(best)
    return chosen


def _rank(values: Tensor) -> Tensor:
    """Place of each among all, from 0; equal values have the same."""
    return torch.searchsorted(values.sort().values, values)
