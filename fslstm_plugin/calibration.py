"""Probabilities from logits: one temperature that the support chooses itself, and what they are worth."""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 50
_RANGE = 1e4  # Of the temperature, in units of how far apart a point's logits are: 1e-4 to 1e4.


def fit_temperature(logits: Tensor, targets: Tensor) -> Tensor:
    """The temperature by which logits of points that were left out become the most likely probabilities.

    It minimises ``-sum_i sum_l t_il log softmax(F_i / T)_l``. The t_il are the labels as Platt smooths them, one more
    point a class being spread over all: of N points, the right class of each gets ``(N + 1) / (N + ways)``. Otherwise
    a support whose every point is predicted correctly, as of well separated classes, would ask for certainty. In
    ``1 / T`` this is convex; its slope is halved down to the root, in the same number of steps for all episodes.

    A point whose class has no other tells nothing of how near a class is to its own points, and is left out of the
    sum. Where all are so, at one shot, the temperature is 1: the logits are taken as they are.

    Source: Guo et al., "On calibration of modern neural networks", 2017, for the temperature; Platt, "Probabilistic
    outputs for support vector machines", 1999, for the smoothed labels.

    Args:
        logits: Of each support point by the head fitted to the others, `Head.leave_one_out`, ``(..., n, ways)``.
        targets: One-hot labels ``(..., n, ways)``.

    Returns:
        ``(...)``, positive, in the logits' type; without gradient.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
        >>> fit_temperature(logits, torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
        tensor(1.9894)
    """
    with torch.no_grad():
        members = targets.sum(-2, keepdim=True)
        used = ((targets * members).sum(-1, keepdim=True) > 1).to(logits)
        logits = torch.where(used > 0, logits, 0.0)
        points, ways = used.sum((-2, -1)), targets.shape[-1]
        smooth = (targets * points[..., None, None] + 1) / (points + ways)[..., None, None] * used
        centred = logits - logits.mean(-1, keepdim=True)
        wanted = (smooth * centred).sum((-2, -1))
        spread = (centred.square().sum((-2, -1)) / (points * ways)).sqrt()
        known = spread > 0  # False where there is no point too

        def too_flat(temperature: Tensor) -> Tensor:
            """Whether the expected logits are below those of the labels."""
            shares = (centred / temperature[..., None, None]).softmax(-1) * used
            return (shares * centred).sum((-2, -1)) < wanted

        scale = torch.where(known, spread, 1.0)
        low, high = scale / _RANGE, scale * _RANGE
        for _ in range(_STEPS):
            middle = (low * high).sqrt()
            flat = too_flat(middle)
            low, high = torch.where(flat, low, middle), torch.where(flat, middle, high)
        return torch.where(known, (low * high).sqrt(), 1.0)


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
    return (logits / torch.as_tensor(temperature).to(logits)[..., None, None]).softmax(-1)


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
    own = probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return probabilities.square().sum(-1) - 2 * own + 1


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
    own = probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return -own.clamp(min=torch.finfo(own.dtype).eps).log()
