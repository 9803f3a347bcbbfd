"""Probabilities from logits: one temperature that the support chooses itself, and how good they are."""

from __future__ import annotations

import torch
from torch import Tensor

from ..features import EpisodeFeatures
from ..methods.base import Method
from ..methods.shared.leaving_out import points_moved

_STEPS = 32
_RANGE = 1e4  # From so many times less to so many times more than the spread of the logits.


def temperature_of(method: Method, features: EpisodeFeatures) -> Tensor:
    """The temperature of a method's logits, fitted to those of the labelled points when they are left out.

    They leave through the whole method, see `Method.leave_one_out`. A transductive one refits itself with its own
    predictions, which spreads the logits: those of the points that were left out as much as those of the queries.

    Args:
        method: Any method.
        features: A batch of episodes as the backbone gave them, with the queries that the temperature is for.

    Returns:
        ``(...)``, one for each episode; see `fit_temperature`. Where nothing can be left out, see `why_uncalibrated`,
        1; but of a head with a closed form the spread of the logits.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> support = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
        >>> features = EpisodeFeatures(support, support, torch.tensor([0, 0, 1, 1]))
        >>> temperature_of(parse_method("nn"), features)
        tensor(7.8512, dtype=torch.float64)
    """
    targets = features.targets
    is_closed = method.why_no_leave_one_out is None
    if not is_closed and why_uncalibrated(method, targets, features.num_query) is not None:
        return torch.ones_like(targets[..., 0, 0])
    with torch.no_grad():
        return fit_temperature(method.leave_one_out(features), targets)


def why_uncalibrated(method: Method, targets: Tensor, num_query: int) -> str | None:
    """Why the probabilities of a method are uncalibrated, in words; None if they are calibrated.

    Args:
        method: Any method.
        targets: One-hot labels ``(..., n, ways)``.
        num_query: Number of queries of an episode.

    Example:
        >>> from fslstm_plugin import parse_method
        >>> why_uncalibrated(parse_method("tim"), torch.eye(2), 3)
        'each class has one labelled point, and nothing is left of it without that point'
    """
    moved = points_moved(targets)
    if not moved:
        return "each class has one labelled point, and nothing is left of it without that point"
    if method.why_not_shape(targets.shape[-1], targets.shape[-2] - moved, num_query + moved) is not None:
        return f"{method.family} takes episodes of one shape only, and a point that is left out changes it"
    return None


def fit_temperature(logits: Tensor, targets: Tensor) -> Tensor:
    """The temperature by which logits of points that were left out become the most likely probabilities.

    It minimises ``-sum_i sum_l t_il log softmax(F_i / T)_l``. The t_il are the labels, smoothed as if one more point
    were shared by all classes: of N points, the right class of each gets ``(N + 1 / ways) / (N + 1)``. Otherwise a
    support whose every point is predicted correctly would ask for certainty. In ``1 / T`` this is convex; the interval
    that holds the root of its slope is halved, as often for all episodes.

    A point that is the only one of its class says nothing about how near a class is to its own points, and is left out
    of the sum. Where all are so, at one shot, the temperature is the standard deviation of a point's logits of the
    other classes (of both, where there are two, minus infinity as 0): no more than a unit, which no label confirms.

    Source: Guo et al., "On calibration of modern neural networks", 2017, for the temperature; Platt, "Probabilistic
    outputs for support vector machines", 1999, for smoothed labels.

    Args:
        logits: Of each support point by the method fitted to others, `Method.leave_one_out`, ``(..., n, ways)``.
        targets: One-hot labels ``(..., n, ways)``.

    Returns:
        ``(...)``, positive, in the logits' type; without gradient.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
        >>> fit_temperature(logits, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
        tensor(1.5520)
    """
    with torch.no_grad():
        ways = targets.shape[-1]
        unit = _spread(logits.nan_to_num(neginf=0.0), targets)
        told = (targets * targets.sum(-2, keepdim=True)).sum(-1, keepdim=True) > 1
        points = told.sum((-2, -1), keepdim=True)
        smoothed = (targets * points + 1 / ways) / (points + 1)
        centred = _centred(logits, told.expand_as(targets))
        wanted = (smoothed * centred).sum((-2, -1))
        low, high = unit / _RANGE, unit * _RANGE
        for _ in range(_STEPS):
            middle = (low * high).sqrt()
            expected = (probabilities(centred, middle) * centred).sum((-2, -1))
            too_high = expected < wanted
            low, high = torch.where(too_high, low, middle), torch.where(too_high, middle, high)
        return torch.where(points[..., 0, 0] > 0, (low * high).sqrt(), unit)


def _spread(logits: Tensor, targets: Tensor) -> Tensor:
    """Standard deviation ``(...)`` of each point's logits of the other classes, of two classes that of both."""
    where = targets == 0 if targets.shape[-1] > 2 else torch.ones_like(targets, dtype=torch.bool)
    found = (_centred(logits, where).square().sum((-2, -1)) / where.sum((-2, -1))).sqrt()
    return torch.where(found > 0, found, 1.0)


def _centred(logits: Tensor, where: Tensor) -> Tensor:
    """Logits less each point's mean of those that are wanted; 0 in place of the others."""
    kept = torch.where(where, logits, 0.0)
    return torch.where(where, kept - kept.sum(-1, keepdim=True) / where.sum(-1, keepdim=True), 0.0)


def probabilities(logits: Tensor, temperature: Tensor | float = 1.0) -> Tensor:
    """``softmax(logits / temperature)``.

    Args:
        logits: ``(..., m, ways)``.
        temperature: ``(...)``, one for each episode; or a number. Default 1.

    Returns:
        ``(..., m, ways)``.

    Example:
        >>> probabilities(torch.tensor([[2.0, 0.0]]), torch.tensor(2.0))
        tensor([[0.7311, 0.2689]])
    """
    divisor = torch.as_tensor(temperature, device=logits.device).to(logits).clamp(min=torch.finfo(logits.dtype).tiny)
    less = logits - logits.amax(-1, keepdim=True)  # which can be divided by any temperature, however small
    return (less / divisor[..., None, None]).softmax(-1)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """How far the greatest probability is from the share of correct predictions, in bins of equal width, on average.

    ``sum_b (n_b / n) |accuracy_b - confidence_b|`` over the bins ``(0, 1/15], (1/15, 2/15], ...``. It is biased upwards
    for few predictions: pool those of all episodes.

    Source: Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", 2015.

    Args:
        probabilities: ``(..., ways)``.
        labels: int64 ``(...)``.
        bins: Number of bins; default 15.

    Returns:
        From 0 to 1.

    Example:
        >>> expected_calibration_error(torch.tensor([[0.75, 0.25]]).expand(4, 2), torch.tensor([0, 0, 1, 1]))
        0.25
    """
    confidence, predicted = probabilities.double().max(-1)
    surplus = confidence - (predicted == labels).double()
    places = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    sums = torch.zeros(bins, dtype=torch.float64, device=surplus.device)
    sums.index_add_(0, places.flatten(), surplus.flatten())
    return float(sums.abs().sum() / surplus.numel())


def brier_score(probabilities: Tensor, labels: Tensor) -> Tensor:
    """``sum_l (p_l - [l is the label])^2``, from 0 to 2, of each prediction.

    Source: Brier, "Verification of forecasts expressed in terms of probability", 1950.

    Args:
        probabilities: ``(..., ways)``.
        labels: int64 ``(...)``.

    Returns:
        ``(...)``.

    Example:
        >>> brier_score(torch.tensor([0.75, 0.25]), torch.tensor(0))
        tensor(0.1250)
    """
    return probabilities.square().sum(-1) - 2 * _of_label(probabilities, labels) + 1


def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> Tensor:
    """``-log p`` of the label, of each prediction; a chance below the type's smallest step from 1 counts as that.

    Args:
        probabilities: ``(..., ways)``.
        labels: int64 ``(...)``.

    Returns:
        ``(...)``.

    Example:
        >>> negative_log_likelihood(torch.tensor([0.5, 0.5]), torch.tensor(0))
        tensor(0.6931)
    """
    own = _of_label(probabilities, labels)
    return -own.clamp(min=torch.finfo(own.dtype).eps).log()


def _of_label(probabilities: Tensor, labels: Tensor) -> Tensor:
    return probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
