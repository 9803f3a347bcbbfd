"""The choice of a method by the labelled points alone, where there are too few for a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..confidence.calibration import fit_temperature, negative_log_likelihood, probabilities
from ..errors import UsageError
from ..features import EpisodeFeatures
from ..heads.validation import require_tensor
from ..methods.shared.leaving_out import moved_logits
from ..naming import parse_method
from .groups import folds

DEFAULT = "lssvm(ridge=1,normalize)"
CANDIDATES = (DEFAULT, "lssvm(ridge=1,power(negative=signed),normalize)")
_NORMAL = 1.96
# See `expected_accuracy`.
_EXPONENT, _GREATEST_EXPONENT = 1 / 4, 1 / 2  # Of s / (s - 1), for d'.
_LATER_EXPONENT = 1 / 8  # Of (s + more) / s.
_INDEPENDENT = 0.6  # Share of the points: those of few classes are right or wrong together.
_TAIL = 8.0  # Where the normal density is 0.
_ROUNDING = 1e-9


class Expected(NamedTuple):
    """The share of new points that is expected to be predicted correctly.

    Attributes:
        accuracy: The share.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    accuracy: float
    low: float
    high: float


class Choice(NamedTuple):
    """A method and what to expect of it.

    Attributes:
        method: Its name.
        expected: The accuracy to expect; None where a class has a single point.
    """

    method: str
    expected: Expected | None


def choose_method(
    features: Tensor,
    labels: Tensor,
    candidates: Sequence[str] = CANDIDATES,
    base_mean: Tensor | None = None,
    groups: Tensor | None = None,
) -> Choice:
    """The candidate that predicts points best when it is fitted without them, or the first if none is clearly better.

    Better is a greater likelihood after each candidate's own temperature, of points that are left out with one of each
    other class; clearly, by more than one standard error of the mean difference over the points. With few points, many
    candidates predict equally many correctly, and the one that does by luck is no better than the others. Points that
    are the only ones of their class are not judged; where all are, the first candidate is taken.

    The chosen method fits these points better than it fits new ones, so that its prediction sets contain the true label
    less often than guaranteed: let `FewShotClassifier` make them with the first candidate, by ``set_method``.

    Source: the rule of one standard error, Breiman et al., "Classification and regression trees", 1984.

    Args:
        features: Features ``(n, d)``, floating point.
        labels: int64 ``(n,)`` in [0, ways).
        candidates: Names of heads, with adapters that are not transductive; the first is the one to stay with. Default
            ``CANDIDATES``: LSSVM of points of unit length, and of points that are raised to the power 1/2 before.
        base_mean: Mean feature ``(d,)`` of other images, for candidates with ``center``, or of each of their classes
            ``(classes, d)``, for those with ``stretch``. Default None.
        groups: Points that belong together and leave together, int64 ``(n,)``, see `groups.numbered`; the standard
            error is over groups. Default None: each point is by itself.

    Returns:
        The choice.

    Raises:
        UsageError: If a candidate has no closed-form leave-one-out, there is none, or the points are not
            valid.

    Example:
        >>> features = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.9, 0.0], [0.1, 1.0], [0.2, 1.0], [0.0, 0.8]])
        >>> choice = choose_method(features, torch.tensor([0, 0, 0, 1, 1, 1]), ["nn", "rr(ridge=1)"])
        >>> choice.method, choice.expected.accuracy, round(choice.expected.low, 2)
        ('nn', 1.0, 0.48)
    """
    candidates = [candidates] if isinstance(candidates, str) else list(candidates)
    if not candidates:
        raise UsageError("There is nothing to choose from: give a list of candidates, such as ['nn', 'lssvm'].")
    _require_tensors(features, base_mean, groups)
    support = features.double()
    mean = None if base_mean is None else base_mean.double()
    episode = EpisodeFeatures(support, support[:0], labels, base_mean=mean)
    together = None if groups is None else folds(labels, groups)
    judged = labels.bincount()[labels] > 1 if together is None else together >= 0
    if not judged.any():
        return Choice(candidates[0], None)
    all_logits, losses = [], []
    for name in candidates:
        logits = left_out(name, episode, together)
        likely = probabilities(logits, fit_temperature(logits[judged], episode.targets[judged]))[judged]
        all_logits.append(logits)
        losses.append(negative_log_likelihood(likely, labels[judged]))
    best = int(torch.stack(losses).mean(-1).argmin())
    gain = _of_groups(losses[0] - losses[best], None if groups is None else groups[judged])
    if gain.mean() <= gain.std() / len(gain) ** 0.5:
        best = 0
    return Choice(candidates[best], expected_accuracy(all_logits[best], labels, groups=groups))


def _require_tensors(features: Tensor, base_mean: Tensor | None, groups: Tensor | None) -> None:
    require_tensor("The features", features)
    if features.dim() != 2:
        raise UsageError(f"The features must be (n, d), but their shape is {tuple(features.shape)}.")
    if base_mean is not None:
        require_tensor("The base mean", base_mean)
    if groups is not None:
        require_tensor("The groups", groups)
        if groups.shape != features.shape[:1]:
            raise UsageError(f"Expected a group for each of {len(features)} points, but got {tuple(groups.shape)}.")


def _of_groups(values: Tensor, groups: Tensor | None) -> Tensor:
    """The mean of each group's values."""
    if groups is None:
        return values
    places = groups.unique(return_inverse=True)[1]
    return values.new_zeros(int(places.max()) + 1).index_add_(0, places, values) / places.bincount()


def left_out(name: str, episode: EpisodeFeatures, together: Tensor | None = None) -> Tensor:
    """Logits ``(n, ways)`` of each labelled point by a method fitted without it and one of each other class.

    Args:
        name: Of the method.
        episode: Without queries.
        together: Points that leave together in place of these, see `groups.folds`. Default None.

    Raises:
        UsageError: If there is no closed form.
    """
    method = parse_method(name)
    if method.why_no_leave_one_out is not None:
        raise UsageError(f"{name} cannot be judged by leaving out its points: {method.why_no_leave_one_out}.")
    return method.leave_one_out(episode) if together is None else moved_logits(method, episode, together)


def expected_accuracy(logits: Tensor, labels: Tensor, more: int = 0, groups: Tensor | None = None) -> Expected | None:
    """The accuracy on new points, from the labelled points alone; or with more of them.

    A class of s points has s - 1 where one is left out, and few points make much of that. A share correct among m
    classes is that of an observer who chooses the greatest of m normal variables, one of which has the mean d' instead
    of 0: ``integral phi(z) Phi(z + d')^(m - 1) dz``. Averages of s instead of s - 1 points multiply d' by
    ``(s / (s - 1))^(1/2)`` where the noise of the averages is what confuses the classes, and by 1 where the classes
    overlap. The estimate takes the exponent 1/4, the lower end of the interval 0 and the upper end 1/2; at chance d' is
    0, and nothing is gained. With more points of each class it takes the exponent 1/8 for these, as features of
    pictures gain less and less; the ends stay what they are. The share of the left-out points has Wilson's interval for
    0.6 times as many, since points of one class are right or wrong together.

    It holds for new points that come in the proportions of the labelled ones: m is their number over that of the
    largest class. The guide to your own pictures says in how many simulated draws the interval contains the accuracy.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", 1927; Hacker and Ratcliff,
    "A revised table of d' for M-alternative forced choice", 1979.

    Args:
        logits: Of each point by a method that was fitted without it and one of each other class ``(n, ways)``.
        labels: int64 ``(n,)``.
        more: How many points each class gets in addition, or groups. Default 0.
        groups: Points that left together, int64 ``(n,)``. Their number takes the place of that of the points, in the
            interval as Kish's effective number, ``(sum_g n_g)^2 / sum_g n_g^2``. Default None: each is by itself.

    Returns:
        The accuracy with its interval; None where a class has a single point or group, without which nothing is left
        of it.

    Example:
        >>> found = expected_accuracy(torch.eye(2).repeat(5, 1), torch.tensor([0, 1] * 5))
        >>> found.accuracy, round(found.low, 2), found.high
        (1.0, 0.61, 1.0)
    """
    groups = torch.arange(len(labels), device=labels.device) if groups is None else groups
    sizes = labels.bincount()
    counts = torch.stack([labels, groups], -1).unique(dim=0)[:, 0].bincount()[labels].double()
    if not len(labels) or counts.min() == 1:
        return None
    effective = len(labels) ** 2 / float(groups.bincount().double().square().sum())
    correct = float((logits.argmax(-1) == labels).double().mean())
    low, high = wilson_interval(correct, _INDEPENDENT * effective)
    growth, later, classes = counts / (counts - 1), (counts + more) / counts, len(labels) / int(sizes.max())
    usual = float((growth**_EXPONENT * later**_LATER_EXPONENT).mean())
    greatest = float((growth * later).pow(_GREATEST_EXPONENT).mean())
    return Expected(
        _with_sensitivity_times(usual, correct, classes), low, _with_sensitivity_times(greatest, high, classes)
    )


def _with_sensitivity_times(factor: float, share: float, classes: float) -> float:
    """The share correct among so many classes after d' is multiplied; see `expected_accuracy`."""
    from scipy.optimize import brentq  # slow to import, and not always needed

    if factor == 1 or not 1 / classes + _ROUNDING < share < 1 - _ROUNDING:
        return share
    places = torch.linspace(-_TAIL, _TAIL, 801, dtype=torch.float64, device="cpu")
    weights = (-places.square() / 2).softmax(-1)

    def correct(sensitivity: float) -> float:
        return float((weights * torch.special.ndtr(places + sensitivity).pow(classes - 1)).sum())

    sensitivity = brentq(lambda each: correct(each) - share, 0, 3 * _TAIL)
    return correct(factor * sensitivity)


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent points."""
    square = _NORMAL**2 / count
    half = _NORMAL * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    low, high = (share + square / 2 - half) / (1 + square), (share + square / 2 + half) / (1 + square)
    return max(low, 0.0), min(high, 1.0)
