"""Prediction sets, which contain the true label as often as guaranteed for any features: full conformal prediction.

For a query and each label that it may have, the method is fitted to the n labelled points and the query; the score of a
point is its leave-one-out margin, the best other class's logit less its own class's. Were the label the true one, the
query would be one of n + 1 points drawn alike, and its score could be the highest, the second highest and so on with
equal chances. The p-value is its rank from above over the number of points; a set contains the labels whose p-value is
large, and the predicted label in any case.

Source: Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005; the closed form of heads
is `fslstm_plugin.heads.smoother.SmootherHead`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..checks import one_of, require
from ..errors import UsageError, count_of, listed
from ..features import EpisodeFeatures
from ..heads.margins import Margins, WithQueries
from ..methods.base import Method

PER_CLASS, MARGINAL = "per-class", "marginal"
KINDS = (PER_CLASS, MARGINAL)
USUAL_COVERAGE = 0.9  # Unless another is asked for.
LEAST_COVERAGE = 0.8  # That is useful enough to be taken without being asked for.
_EQUAL = 1e-9  # Of the logits: equal scores come from different formulas, and differ by rounding.
_ROUNDING = 1e-9  # P-values are whole numbers over n + 1; 1 less a coverage such as 0.8 is not exactly its complement.
_EXAMPLE = "lssvm"  # Of a method that has them.


def p_values(
    method: Method, features: EpisodeFeatures, kind: str = PER_CLASS, *, seed: int = 0, first: int = 0
) -> Tensor:
    """How unsurprising each label would be for each query.

    Args:
        method: One that `require_prediction_sets` takes.
        features: A batch of episodes as the backbone gave them.
        kind: Which points the query is ranked with. ``"per-class"`` (default): those of the label, and the guarantee
            holds for each class, however many labelled points it has and in whatever shares the queries come. Or
            ``"marginal"``: all labelled points, and the guarantee holds on average over the classes, where labelled
            points and queries are drawn alike. With a fixed number of labelled points per class they are not: of the
            point that is left out, one fewer is labelled of its own class than of the others.
        seed: Of the order of equal scores, which is random, so that p-values are not larger than they need to be.
        first: Number of the first episode, with which the order changes too. Default 0.

    Returns:
        ``(..., m, ways)``, float64: ``1 / (n + 1)`` to 1, n the points that the query is ranked with.

    Raises:
        UsageError: If the method has no such sets, or there is no such kind.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> support = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> features = EpisodeFeatures(support, torch.tensor([[0.15], [2.6]]), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> p_values(parse_method("nn"), features, "per-class")
        tensor([[0.5000, 0.2500],
                [0.2500, 0.2500]], dtype=torch.float64)
    """
    require_prediction_sets(method)
    joined = method.leave_one_out_with_queries(features, of_own_class=is_per_class(kind))
    return ranks(joined, features.targets, kind, seed=seed, first=first)


@torch.no_grad()
def ranks(joined: Iterable[WithQueries], targets: Tensor, kind: str, *, seed: int = 0, first: int = 0) -> Tensor:
    """The p-values that follow from leave-one-out margins.

    Args:
        joined: What `leave_one_out_with_queries` gave, ``of_own_class`` where the kind `is_per_class`.
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.
        seed: See `p_values`.
        first: See `p_values`.

    Returns:
        See `p_values`.
    """
    per_class = is_per_class(kind)
    found = [_compared(points, query, targets, per_class) for points, query in joined]
    higher, lower = (torch.cat(each, -2) for each in zip(*found, strict=True))
    points = 1 + (targets.sum(-2, keepdim=True) if per_class else targets.sum((-2, -1))[..., None, None])
    draws = _draws(seed, first, tuple(higher.shape)).to(higher)
    return (higher + 1 + (draws * (points - higher - lower)).floor()) / points


def prediction_sets(p_values: Tensor, predicted: Tensor, coverage: float) -> Tensor:
    """The labels in each query's set: those that are not too surprising, and in any case the predicted one.

    So no set is empty, a set of one label is the prediction, and the sets contain the true label at least as often as
    those of the p-values alone.

    Args:
        p_values: See `p_values`, ``(..., m, ways)``.
        predicted: The predicted labels, int64 ``(..., m)``.
        coverage: The share of the sets that are guaranteed to contain the true label, above 0 and below 1.

    Returns:
        bool ``(..., m, ways)``.

    Raises:
        UsageError: If the coverage is outside its range.

    Example:
        >>> found = torch.tensor([[1.0, 0.5, 0.2], [0.1, 0.2, 0.1]])
        >>> prediction_sets(found, torch.tensor([0, 2]), coverage=0.8)
        tensor([[ True,  True, False],
                [False, False,  True]])
    """
    require("coverage", coverage, above=0, below=1)
    return (p_values > 1 - coverage + _ROUNDING).scatter(-1, predicted.unsqueeze(-1), True)


def attained_coverage(coverage: float, points: int) -> float:
    """The coverage that p-values guarantee where one is asked for: the next multiple of ``1 / (points + 1)``.

    Args:
        coverage: What is asked for, above 0 and below 1.
        points: How many a query is ranked with: those of a class, or for ``"marginal"`` all n that are labelled.

    Returns:
        The coverage, 1 where only sets of all labels would have it.

    Example:
        >>> [round(attained_coverage(0.8, points), 3) for points in (1, 4, 5, 100)]
        [1.0, 0.8, 0.833, 0.802]
    """
    return math.ceil(require("coverage", coverage, above=0, below=1) * (points + 1) - _ROUNDING) / (points + 1)


def greatest_coverage(targets: Tensor, kind: str = PER_CLASS) -> float:
    """The most that the labelled points can guarantee without sets of all labels.

    Args:
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.

    Returns:
        ``n / (n + 1)``, n the points of the smallest class, or for ``"marginal"`` of all.

    Example:
        >>> targets = torch.eye(5).repeat(5, 1)
        >>> round(greatest_coverage(targets), 3), round(greatest_coverage(targets, "marginal"), 3)
        (0.833, 0.962)
    """
    points = _ranked(targets, kind)
    return points / (points + 1)


def usual_coverage(
    targets: Tensor, kind: str = PER_CLASS, names: Sequence[str] | None = None, unit: str = "image"
) -> float:
    """A coverage of 0.9, or the greatest of two digits that so few labelled points can guarantee, 0.8 or more.

    Args:
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.
        names: See `require_attainable`.
        unit: See `require_attainable`.

    Raises:
        UsageError: If they cannot guarantee 0.8.

    Example:
        >>> [usual_coverage(torch.eye(5).repeat(shots, 1)) for shots in (4, 5, 9, 20)]
        [0.8, 0.83, 0.9, 0.9]
    """
    require_attainable(LEAST_COVERAGE, targets, kind, names, unit)
    return min(USUAL_COVERAGE, two_digits(greatest_coverage(targets, kind)))


def require_attainable(
    coverage: float,
    targets: Tensor,
    kind: str = PER_CLASS,
    names: Sequence[str] | None = None,
    unit: str = "image",
) -> None:
    """Refuse a coverage that only sets of all labels would have, for want of labelled points.

    Args:
        coverage: What is asked for.
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.
        names: Of the classes, where the sentence is to name those that have too few points. Default None.
        unit: What the points are, for the sentence. Default ``"image"``.

    Raises:
        UsageError: Saying what can be guaranteed instead: with more points, a lower coverage, or on average.

    Example:
        >>> require_attainable(0.9, torch.eye(5).repeat(5, 1))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: 5 labelled images per class can guarantee a coverage of at most 83.3 %, not ...
    """
    points = _ranked(targets, kind)
    if attained_coverage(coverage, points) < 1:
        return
    enough = math.ceil(coverage / (1 - coverage) - _ROUNDING)
    most = greatest_coverage(targets, kind)
    ways_out = [
        f"label {enough}{'' if unit == 'image' else f' {unit}s'}{' of each class' if kind == PER_CLASS else ''}",
        f"ask for {two_digits(most):g} or less",
    ]
    if kind == PER_CLASS and attained_coverage(coverage, _ranked(targets, MARGINAL)) < 1:
        ways_out.append(
            f"choose the coverage kind '{MARGINAL}', which holds on average over the classes if labelled and new "
            "images are drawn alike, but not for each class"
        )
    raise UsageError(
        f"{_too_few(targets, kind, enough, names, unit)} can guarantee a coverage of at most {100 * most:.3g} %, not "
        f"{100 * coverage:g} %: {', or '.join(ways_out)}."
    )


def _too_few(targets: Tensor, kind: str, enough: int, names: Sequence[str] | None, unit: str) -> str:
    """The labelled points that are too few, as the subject of a sentence."""
    points = _ranked(targets, kind)
    images = count_of(points, f"labelled {unit}")
    counts = targets.sum(-2).view(-1, targets.shape[-1]).amin(0).int().tolist()
    if kind == MARGINAL or min(counts) == max(counts):
        return f"{images}{' per class' if kind == PER_CLASS else ''}"
    few = [place for place, count in enumerate(counts) if count < enough]
    if names is None:
        return f"The {images} of the smallest class"
    numbers = listed(f"{names[place]} {counts[place]}" for place in few)
    return f"The labelled {unit}s of {len(few)} of {len(counts)} classes ({numbers})"


def _ranked(targets: Tensor, kind: str) -> int:
    """How many points a query is ranked with, of the class that has the fewest."""
    return int((targets.sum(-2) if is_per_class(kind) else targets.sum((-2, -1))).min())


def two_digits(share: float) -> float:
    """Rounded down to what can be asked for."""
    return math.floor(100 * share + _ROUNDING) / 100


def why_no_prediction_sets(method: Method) -> str | None:
    """Why there are no prediction sets with a guarantee for a method, in a sentence; None if there are.

    They need a leave-one-out in closed form, and features and predictions that treat the labelled points and the
    queries alike. An adapter that sees them all, but no label, may do so: the sets are then of these queries together.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> why_no_prediction_sets(parse_method("lssvm(normalize)"))
        >>> why_no_prediction_sets(parse_method("svm"))
        'There are no prediction sets with a guarantee for svm: its solution does not ... Use lssvm, for example.'
    """
    why = method.why_no_prediction_sets
    return why and f"There are no prediction sets with a guarantee for {method}: {why}. Use {_EXAMPLE}, for example."


def require_prediction_sets(method: Method) -> None:
    """Refuse a method without prediction sets.

    Raises:
        UsageError: As `why_no_prediction_sets` says.
    """
    if (why := why_no_prediction_sets(method)) is not None:
        raise UsageError(why)


def is_per_class(kind: str) -> bool:
    """Whether a kind of coverage holds for each class.

    Raises:
        UnknownNameError: If there is no such kind.
    """
    return bool(one_of("kind of coverage", kind, KINDS) == PER_CLASS)


def _compared(points: Margins, query: Margins, targets: Tensor, per_class: bool) -> tuple[Tensor, Tensor]:
    """How many points have a higher score than the query as one of each class, how many a lower; ``(..., m, ways)``."""
    size = torch.maximum(points.size.amax(-1 if per_class else (-2, -1)), query.size.amax(-1))
    mine, rounding = query.difference, _EQUAL * size.unsqueeze(-1)
    if per_class:
        above = points.difference - mine.gather(-1, targets.argmax(-1).unsqueeze(-2).expand_as(points.own))
        higher, lower = ((each.to(targets) @ targets) for each in (above > rounding, above < -rounding))
    else:
        above = points.difference - mine.unsqueeze(-2)
        rounding = rounding.unsqueeze(-1)
        higher, lower = (each.sum(-2).to(targets) for each in (above > rounding, above < -rounding))
    return higher, lower


def _draws(seed: int, first: int, shape: tuple[int, ...]) -> Tensor:
    """Numbers from 0 to 1 ``(..., m, ways)``; those of an episode follow from the seed and its number alone."""
    *batch, queries, ways = shape
    numbers = range(first, first + math.prod(batch))
    drawn = [np.random.default_rng([seed, number]).random((queries, ways)) for number in numbers]
    return torch.from_numpy(np.stack(drawn)).view(shape)
