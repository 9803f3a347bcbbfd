"""Sets of labels that hold the right one as often as promised, whatever the features: full conformal prediction.

For a query and each label that it may have, the head is fitted to the n labelled points and the query; the score of a
point is its leave-one-out margin, the best other class's logit less its own class's. Were the label right, the query
would be one of n + 1 points drawn alike, and its score could be the highest, the second highest and so on with equal
chances. The p-value is its rank from above over the number of points; a set holds the labels whose p-value is large.

Source: Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005; the closed form is
`fslstm_plugin.heads.smoother.SmootherHead`'s.
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from .errors import UnknownNameError, UsageError
from .features import EpisodeFeatures
from .heads import Head
from .methods import KernelMethod, Method

PER_CLASS, MARGINAL = "per-class", "marginal"
KINDS = (PER_CLASS, MARGINAL)
USUAL_COVERAGE = 0.9  # Unless another is asked for.
_EQUAL = 1e-9  # Of the logits: scores of the same worth come from different formulas, and differ by rounding.
_ROUNDING = 1e-9  # P-values are whole numbers over n + 1; 1 less a coverage such as 0.8 is not exactly its complement.


def p_values(
    method: Method, features: EpisodeFeatures, kind: str = PER_CLASS, *, seed: int = 0, first: int = 0
) -> Tensor:
    """How unsurprising each label would be for each query.

    Args:
        method: One that `require_label_sets` takes.
        features: A batch of episodes as the backbone gave them.
        kind: Which points the query is ranked with. ``"per-class"`` (default): those of the label, and the promise
            holds for each class, however many labelled points it has and in whatever shares the queries come. Or
            ``"marginal"``: all labelled points, and the promise holds on average over the classes, where labelled
            points and queries are drawn alike. With a fixed number of labelled points per class they are not: of the
            point that is left out, one fewer is labelled of its own class than of the others.
        seed: Of the order of equal scores, which is random, so that the promise is not exceeded.
        first: Number of the first episode, with which the order changes too. Default 0.

    Returns:
        ``(..., m, ways)``, float64: ``1 / (n + 1)`` to 1, n the points that the query is ranked with.

    Raises:
        UsageError: If the method has no such sets, or there is no such kind.

    Example:
        >>> from fslstm_plugin.methods import parse_method
        >>> support = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> features = EpisodeFeatures(support, torch.tensor([[0.15], [2.6]]), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> p_values(parse_method("nn"), features, "per-class")
        tensor([[0.5000, 0.2500],
                [0.2500, 0.2500]], dtype=torch.float64)
    """
    per_class = _known(kind) == PER_CLASS
    head = require_label_sets(method)
    features = method.prepare(features)
    gram, labels = features.support_gram, features.labels
    queries = gram.cross.shape[-2]
    draws = _draws(seed, first, (*labels.shape[:-1], queries, features.ways)).to(gram.cross)
    found = []
    for label, logits in enumerate(head.leave_one_out_with_queries(gram, features.targets)):
        whole = torch.cat([labels, torch.full_like(labels[..., :1], label)], -1).unsqueeze(-2)
        scores = _margins(logits, whole.expand(logits.shape[:-1]))
        among = whole == label if per_class else torch.ones_like(whole, dtype=torch.bool)
        equal = _equal(scores, logits) & among  # itself among them
        higher = (scores > scores[..., -1:]) & ~equal & among
        rank = higher.sum(-1) + 1 + (draws[..., label] * equal.sum(-1)).floor()
        found.append(rank / among.sum(-1))
    return torch.stack(found, -1)


def label_sets(p_values: Tensor, coverage: float) -> Tensor:
    """The labels that a set of that coverage holds; perhaps none, perhaps all.

    Args:
        p_values: See `p_values`, ``(..., m, ways)``.
        coverage: The share of the sets that are to hold the right label, above 0 and below 1.

    Returns:
        bool ``(..., m, ways)``.

    Raises:
        UsageError: If the coverage is outside its range.

    Example:
        >>> label_sets(torch.tensor([[1.0, 0.5, 0.2]]), coverage=0.8)
        tensor([[ True,  True, False]])
    """
    return p_values > 1 - _checked(coverage) + _ROUNDING


def attained_coverage(coverage: float, points: int) -> float:
    """What sets of a coverage deliver: the next multiple of ``1 / (points + 1)``.

    Args:
        coverage: What is asked for, above 0 and below 1.
        points: How many a query is ranked with: those of a class, or for ``"marginal"`` all n that are labelled.

    Returns:
        The coverage, 1 where only sets of all labels would keep the promise.

    Example:
        >>> [round(attained_coverage(0.8, points), 3) for points in (1, 4, 5, 100)]
        [1.0, 0.8, 0.833, 0.802]
    """
    return math.ceil(_checked(coverage) * (points + 1) - _ROUNDING) / (points + 1)


def greatest_coverage(targets: Tensor, kind: str = PER_CLASS) -> float:
    """The most that the labelled points can promise without sets of all labels.

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


def usual_coverage(targets: Tensor, kind: str = PER_CLASS) -> float:
    """A coverage of 0.9, or the greatest of two digits that so few labelled points can promise.

    Args:
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.

    Example:
        >>> [usual_coverage(torch.eye(5).repeat(shots, 1)) for shots in (1, 5, 9, 20)]
        [0.5, 0.83, 0.9, 0.9]
    """
    return min(USUAL_COVERAGE, _two_digits(greatest_coverage(targets, kind)))


def kind_for(coverage: float, targets: Tensor) -> str:
    """The kind of promise that so few labelled points can make: for each class if they can, on average otherwise.

    Args:
        coverage: What is asked for.
        targets: One-hot labels ``(..., n, ways)``.

    Example:
        >>> targets = torch.eye(5).repeat(5, 1)
        >>> kind_for(0.8, targets), kind_for(0.9, targets)
        ('per-class', 'marginal')
    """
    return PER_CLASS if attained_coverage(coverage, _ranked(targets, PER_CLASS)) < 1 else MARGINAL


def require_attainable(coverage: float, targets: Tensor, kind: str = PER_CLASS) -> None:
    """Refuse a coverage that only sets of all labels would have, for want of labelled points.

    Args:
        coverage: What is asked for.
        targets: One-hot labels ``(..., n, ways)``.
        kind: See `p_values`.

    Raises:
        UsageError: Naming the nearest coverage that can be promised, and how many points would be enough.

    Example:
        >>> require_attainable(0.9, torch.eye(5).repeat(5, 1))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: 5 labelled images per class can promise a coverage of at most 83.3 %, ...
    """
    points = _ranked(targets, kind)
    if attained_coverage(coverage, points) < 1:
        return
    images = f"{points} labelled image{'s' if points > 1 else ''}{' per class' if kind == PER_CLASS else ''}"
    enough = math.ceil(coverage / (1 - coverage) - _ROUNDING)
    most = greatest_coverage(targets, kind)
    others = [f"label {enough}{' of each class' if kind == PER_CLASS else ''}"]
    if kind == PER_CLASS and attained_coverage(coverage, _ranked(targets, MARGINAL)) < 1:
        others.append(f"choose the kind '{MARGINAL}', if labelled and new images are drawn alike")
    raise UsageError(
        f"{images} can promise a coverage of at most {100 * most:.3g} %, not {100 * coverage:g} %: the nearest is "
        f"{_two_digits(most):g}. For {coverage:g} {', or '.join(others)}."
    )


def _ranked(targets: Tensor, kind: str) -> int:
    """How many points a query is ranked with, of the class that has the fewest."""
    return int((targets.sum(-2) if _known(kind) == PER_CLASS else targets.sum((-2, -1))).min())


def _two_digits(share: float) -> float:
    """Rounded down to what can be asked for."""
    return math.floor(100 * share + _ROUNDING) / 100


def require_label_sets(method: Method) -> Head:
    """The head of a method that label sets can be made with.

    They need a leave-one-out in closed form, and features and predictions that treat the labelled points and a query
    alike, without the other queries: a head, alone or after adapters that change each point by itself.

    Raises:
        UsageError: With the reason.

    Example:
        >>> from fslstm_plugin.methods import parse_method
        >>> require_label_sets(parse_method("lssvm(normalize)"))
        LSSVMClassifier()
        >>> require_label_sets(parse_method("lssvm+psm"))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: There are no label sets with a guarantee for lssvm+psm: ...
    """
    refused = f"There are no label sets with a guarantee for {method}"
    if method.is_transductive:
        raise UsageError(
            f"{refused}: what it predicts for a query depends on the other queries, so that it does not treat labelled "
            "images and queries alike. Use a head without transduction."
        )
    if not isinstance(method, KernelMethod):
        raise UsageError(f"{refused}: it cannot leave out its points in closed form. Use nn, rr or lssvm.")
    try:
        method.head.require_leave_one_out()
    except UsageError as error:
        raise UsageError(f"{refused}. {error}") from error
    return method.head


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise UnknownNameError("kind of coverage", kind, KINDS)
    return kind


def _checked(coverage: float) -> float:
    if not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise UsageError(f"The coverage must be above 0 and below 1, such as 0.8, but got {coverage}.")
    return coverage


def _margins(logits: Tensor, labels: Tensor) -> Tensor:
    """The best other class's logit less that of the label ``(..., n)``; infinite where its class has no other point."""
    places = labels.unsqueeze(-1)
    return logits.scatter(-1, places, -torch.inf).amax(-1) - logits.gather(-1, places).squeeze(-1)


def _equal(scores: Tensor, logits: Tensor) -> Tensor:
    """Which scores ``(..., n)``, made of logits ``(..., n, ways)``, are the last one's, but for rounding."""
    last = scores[..., -1:]
    scale = logits.abs().masked_fill_(logits.isinf(), 0).amax((-2, -1)).unsqueeze(-1)
    return (scores == last) | ((scores - last).abs() <= _EQUAL * scale)


def _draws(seed: int, first: int, shape: tuple[int, ...]) -> Tensor:
    """Numbers from 0 to 1 ``(..., m, ways)``; those of an episode follow from the seed and its number alone."""
    *batch, queries, ways = shape
    numbers = range(first, first + math.prod(batch))
    drawn = [np.random.default_rng([seed, number]).random((queries, ways)) for number in numbers]
    return torch.from_numpy(np.stack(drawn)).view(shape)
