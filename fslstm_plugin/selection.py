"""The choice of a method by the labelled points alone, where there are too few for a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from .calibration import fit_temperature, negative_log_likelihood, probabilities
from .errors import UsageError
from .features import EpisodeFeatures
from .methods import KernelMethod, parse_method

DEFAULT = "lssvm(ridge=1,normalize)"
_CHANGES = ("normalize", "power(negative=signed),normalize")
_CENTERED = ("center,normalize", "power(negative=signed),center,normalize")
_RIDGES = (0.1, 0.3, 1, 3)  # For points of unit length.
_NORMAL = 1.96


class Choice(NamedTuple):
    """A method and what to expect of it.

    Attributes:
        method: Its name.
        accuracy: Share of the points that it predicts correctly when each is left out; None where no class has two.
        low: Lower end of the 95 % interval of the accuracy.
        high: Upper end.
    """

    method: str
    accuracy: float | None
    low: float
    high: float


def default_candidates(with_mean: bool = False) -> list[str]:
    """Heads and constants for features of any scale: nn, rr and lssvm of points of unit length, and raised to a power.

    Args:
        with_mean: Whether to center them too, for which a mean of other images must be known. Default False.

    Example:
        >>> len(default_candidates()), default_candidates()[:3]
        (19, ['lssvm(ridge=1,normalize)', 'nn(normalize)', 'rr(ridge=0.1,normalize)'])
    """
    found = [DEFAULT]
    for change in (*_CHANGES, *(_CENTERED if with_mean else ())):
        found.append(f"nn({change})")
        found += [f"{head}(ridge={ridge},{change})" for head in ("rr", "lssvm") for ridge in _RIDGES]
    return [*dict.fromkeys(found), "lssvm(ridge=loo)"]


def choose_method(
    features: Tensor, labels: Tensor, candidates: Sequence[str] | None = None, base_mean: Tensor | None = None
) -> Choice:
    """The candidate that predicts each point best when it is fitted to the others.

    Best is the greatest likelihood after each candidate's own temperature: of few points many candidates predict
    equally many correctly, and the one that does by luck is no better than the others. Points that are the only ones of
    their class are not judged; where all are, the first candidate is taken.

    The interval is Wilson's for a share of that many points. With few points per class the accuracy is on the low side,
    since the class of the point left out has one point less than the others.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", 1927.

    Args:
        features: Features ``(n, d)``, floating point.
        labels: int64 ``(n,)`` in [0, ways).
        candidates: Names of heads, with adapters that are not transductive. Default None: `default_candidates`.
        base_mean: Mean feature ``(d,)`` of other images, for candidates with ``center``. Default None.

    Returns:
        The choice.

    Raises:
        UsageError: If a candidate cannot leave out its points in closed form, there is none, or the points are not
            valid.

    Example:
        >>> import torch
        >>> features = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.9, 0.0], [0.1, 1.0], [0.2, 1.0], [0.0, 0.8]])
        >>> choice = choose_method(features, torch.tensor([0, 0, 0, 1, 1, 1]), ["nn", "rr(ridge=1)"])
        >>> choice.method, choice.accuracy, round(choice.low, 2)
        ('nn', 1.0, 0.61)
    """
    candidates = default_candidates(base_mean is not None) if candidates is None else candidates
    if not candidates:
        raise UsageError("There is nothing to choose from: give at least one candidate.")
    support = features.double()
    mean = None if base_mean is None else base_mean.double()
    episode = EpisodeFeatures(support, support[:0], labels, base_mean=mean)
    judged = labels.bincount()[labels] > 1
    if not judged.any():
        return Choice(candidates[0], None, 0.0, 1.0)
    results = []
    for name in candidates:
        logits = left_out(name, episode)
        likely = probabilities(logits, fit_temperature(logits, episode.targets))[judged]
        loss = negative_log_likelihood(likely, labels[judged]).mean()
        results.append((float(loss), float((logits.argmax(-1) == labels)[judged].double().mean())))
    best = min(range(len(candidates)), key=lambda place: results[place][0])
    accuracy = results[best][1]
    return Choice(candidates[best], accuracy, *wilson_interval(accuracy, int(judged.sum())))


def left_out(name: str, episode: EpisodeFeatures) -> Tensor:
    """Logits ``(n, ways)`` of each labelled point by a method that is fitted to the others, in closed form.

    Raises:
        UsageError: If there is no closed form.
    """
    method = parse_method(name)
    if not isinstance(method, KernelMethod) or method.is_transductive:
        raise UsageError(f"{name} cannot be judged by leaving out its points: choose among heads without transduction.")
    features = method.prepare(episode)
    return method.head.leave_one_out(features.support_gram, features.targets)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent points.

    Example:
        >>> [round(end, 3) for end in wilson_interval(0.5, 10)]
        [0.237, 0.763]
    """
    square = _NORMAL**2 / count
    half = _NORMAL * (share * (1 - share) / count + square / (4 * count)) ** 0.5
    low, high = (share + square / 2 - half) / (1 + square), (share + square / 2 + half) / (1 + square)
    return max(low, 0.0), min(high, 1.0)
