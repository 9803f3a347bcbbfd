"""A classifier's predictions of pictures, from their features."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import require
from ..confidence.certainty import LeftOut, cautious
from ..confidence.conformal import PER_CLASS, attained_coverage
from ..confidence.familiarity import Range, refused_share
from ..errors import UsageError, printable
from .predictions import NONE, Prediction, on_acceptance
from .tables import path_of, path_text

if TYPE_CHECKING:
    from ..classifier.estimator import FewShotClassifier

_ACCEPTED, _LEAST_ACCEPTED = 0.95, 0.9  # Unless something else is asked for.
_ROUNDING = 1e-9  # 1 less a share such as 0.95 is not exactly its complement.


class Guarantee(NamedTuple):
    """How often prediction sets contain the true label, and for which kind of pictures; see `conformal.p_values`."""

    coverage: float
    kind: str = PER_CLASS

    def require(self, classifier: FewShotClassifier) -> None:
        """Refuse a classifier that cannot guarantee it, before anything else is computed."""
        classifier.predict_set(classifier.support_[:1], *self)


def named(picture: str) -> str:
    """A labelled picture's name as predictions have it: its path from the root; empty where it has none."""
    return path_text(os.path.abspath(path_of(picture))) if picture else ""


def independent_counts(classifier: FewShotClassifier) -> np.ndarray:
    """How many labelled pictures, or groups of them, each class has."""
    return classifier.fitted.representatives.labels.bincount(minlength=len(classifier.classes_)).numpy()


def left_out(classifier: FewShotClassifier) -> LeftOut | None:
    """How the labelled pictures are predicted without them; None of a method that needs the new ones for it."""
    probabilities = None if classifier.fitted.method.is_transductive else classifier.left_out()
    if probabilities is None:
        return None
    judged = classifier.fitted.judged.numpy()
    shares = cautious(probabilities[judged], independent_counts(classifier))
    return LeftOut.of(shares, classifier.support_labels_[judged])


def acceptance(classifier: FewShotClassifier, asked: float | None = None) -> float:
    """The share of pictures of the classes that are accepted as such; 1 accepts all pictures.

    Unless one is asked for, it is 0.95, or the greatest of two digits that so few labelled pictures can tell; 1 where
    that would be below 0.9.
    """
    counts = independent_counts(classifier)
    points = int(counts[counts > 1].sum())
    most = math.floor(100 * points / (points + 1)) / 100
    if asked is None:
        usual = _ACCEPTED if attained_coverage(_ACCEPTED, points) < 1 else most
        return usual if usual >= _LEAST_ACCEPTED else 1.0
    require("accept", asked, above=0, most=1)
    if asked < 1 and attained_coverage(asked, points) == 1:
        enough = math.ceil(asked / (1 - asked) - _ROUNDING)
        raise UsageError(
            f"To accept {100 * asked:g} % of the pictures of the classes takes {enough} labelled pictures in classes "
            f"with two or more, but there are {points}: label more, or accept "
            f"{f'{most:g} or less, or ' if points else ''}1, which accepts all."
        )
    return asked


def accepting(accepted: float, counts: Sequence[int], asked: float | None = None) -> list[str]:
    """What 'none of these' means, in sentences, by the labelled pictures of each class; see `acceptance`.

    Example:
        >>> accepting(0.95, [5] * 5)[1]
        'Expect this of about 4 % of the pictures of the classes, too: more of some classes, fewer of others.'
    """
    if accepted == 1:
        enough = math.ceil(_LEAST_ACCEPTED / (1 - _LEAST_ACCEPTED) - _ROUNDING)
        few = [f"That takes {enough} labelled pictures in classes with two or more, or --accept."]
        return [on_acceptance(accepted), *(few if asked is None else [])]
    refused, equally = (_rate(refused_share(counts, 1 - accepted, equally=each)) for each in (False, True))
    shares = f"Expect this of {refused} of the pictures of the classes, too"
    if refused != equally:
        shares += (
            f", if these come in the proportions of the labelled ones, and of {equally} if each class has equally many"
        )
    return [on_acceptance(accepted), f"{shares}: more of some classes, fewer of others."]


def _rate(share: Range) -> str:
    """In percent: one number that is at most 2 from either end, or both ends."""
    low, high = 100 * share.low, 100 * share.high
    return f"about {(low + high) / 2:.0f} %" if high - low <= 4 else f"{low:.0f} to {high:.0f} %"


class Predictor:
    """Predicts pictures by their features, any number at a time.

    Args:
        classifier: A fitted one.
        guarantee: Of the prediction sets. Default None: there are none.
        accepted: See `acceptance`. Default 1: no picture is none of the classes.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"], ["/1.png", "/2.png"])
        >>> Predictor(classifier)(["/new.png"], torch.tensor([[0.1, 1.0]]))[0].label
        'owl'
    """

    def __init__(
        self, classifier: FewShotClassifier, guarantee: Guarantee | None = None, accepted: float = 1.0
    ) -> None:
        self.classifier, self.guarantee, self.accepted = classifier, guarantee, accepted
        self.classes = [printable(str(each)) for each in classifier.classes_]
        self._names = dict(zip(classifier.classes_.tolist(), self.classes, strict=True))
        self._counts = independent_counts(classifier)
        self._support = F.normalize(torch.from_numpy(classifier.support_).float(), dim=-1)

    def __call__(self, paths: Sequence[str], features: Tensor) -> list[Prediction]:
        """Predictions of pictures, in their order, from their features ``(m, d)``."""
        if not paths:
            return []
        X = features.numpy()
        likely = self.classifier.predict_proba(X)
        doubtful = cautious(likely, self._counts)
        best = self._best(X, likely)
        familiarity = self.classifier.familiarity(X).tolist()
        sets = self._sets(X)
        nearest = (F.normalize(features.float(), dim=-1) @ self._support.mT).argmax(-1).tolist()
        found = []
        for place, path in enumerate(paths):
            likeliest, near = self.classes[best[place]], self.classifier.pictures_[nearest[place]]
            found.append(
                Prediction(
                    path,
                    likeliest if familiarity[place] > 1 - self.accepted + _ROUNDING else NONE,
                    likeliest,
                    float(likely[place, best[place]]),
                    familiarity[place],
                    sets[place],
                    named(near),
                    self.classifier.calibrated_,
                    None,
                    tuple(likely[place].tolist()),
                    float(doubtful[place, best[place]]),
                )
            )
        return found

    def _best(self, X: np.ndarray, likely: np.ndarray) -> list[int]:
        """The likeliest classes; beside sets those of the logits, which rounding can make equal as probabilities."""
        if self.guarantee is None:
            return likely.argmax(-1).tolist()
        return np.searchsorted(self.classifier.classes_, self.classifier.predict(X)).tolist()

    def _sets(self, X: np.ndarray) -> Sequence[tuple[str, ...] | None]:
        if self.guarantee is None:
            return [None] * len(X)
        sets = self.classifier.predict_set(X, *self.guarantee)
        return [tuple(self._names[each] for each in found.tolist()) for found in sets]
