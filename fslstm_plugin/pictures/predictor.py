"""A classifier's predictions of pictures, from their features."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..classifier.classifier import Classifier
from ..confidence.certainty import LeftOut, cautious
from ..confidence.conformal import PER_CLASS
from ..errors import printable
from ..storage.tables import path_of, path_text
from .acceptance import ROUNDING
from .predictions import NONE, Prediction


class Guarantee(NamedTuple):
    """How often prediction sets contain the true label, and for which kind of pictures; see `conformal.p_values`."""

    coverage: float
    kind: str = PER_CLASS

    def require(self, classifier: Classifier) -> None:
        """Refuse a classifier that cannot guarantee it, before anything else is computed."""
        classifier.predict_set(classifier.support_[:1], *self)


def named(picture: str) -> str:
    """A labelled picture's name as predictions have it: its path from the root; empty where it has none."""
    return path_text(os.path.abspath(path_of(picture))) if picture else ""


def independent_counts(classifier: Classifier) -> np.ndarray:
    """How many labelled pictures, or groups of them, each class has."""
    return classifier.fitted.representatives.labels.bincount(minlength=len(classifier.classes_)).numpy()


def left_out(classifier: Classifier) -> LeftOut | None:
    """How the labelled pictures are predicted without them; None of a method that needs the new ones for it."""
    probabilities = None if classifier.fitted.method.is_transductive else classifier.left_out()
    if probabilities is None:
        return None
    judged = classifier.fitted.judged.numpy()
    shares = cautious(probabilities[judged], independent_counts(classifier))
    return LeftOut.of(shares, classifier.support_labels_[judged])


class Predictor:
    """Predicts pictures by their features, any number at a time.

    Args:
        classifier: A fitted one.
        guarantee: Of the prediction sets. Default None: there are none.
        accepted: See `acceptance.acceptance`. Default 1: no picture is none of the classes.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"], ["/1.png", "/2.png"])
        >>> Predictor(classifier)(["/new.png"], torch.tensor([[0.1, 1.0]]))[0].label
        'owl'
    """

    def __init__(self, classifier: Classifier, guarantee: Guarantee | None = None, accepted: float = 1.0) -> None:
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
        best = likely.argmax(-1).tolist()
        sets: Sequence[tuple[str, ...] | None] = [None] * len(X)
        if self.guarantee is not None:
            # Beside sets the classes of the greatest logits, which rounding can make equal as probabilities.
            best = np.searchsorted(self.classifier.classes_, self.classifier.predict(X)).tolist()
            found = self.classifier.predict_set(X, *self.guarantee)
            sets = [tuple(self._names[each] for each in labels.tolist()) for labels in found]
        familiarity = self.classifier.familiarity(X).tolist()
        nearest = (F.normalize(features.float(), dim=-1) @ self._support.mT).argmax(-1).tolist()
        predictions = []
        for place, path in enumerate(paths):
            likeliest, near = self.classes[best[place]], self.classifier.pictures_[nearest[place]]
            predictions.append(
                Prediction(
                    path,
                    likeliest if familiarity[place] > 1 - self.accepted + ROUNDING else NONE,
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
        return predictions
