"""How good a classifier's labels are, on pictures whose labels are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from ..classifier.classifier import Classifier
from ..classifier.selection import wilson_interval
from ..confidence.calibration import expected_calibration_error
from ..errors import printable
from .predictions import NONE, Prediction
from .predictor import Guarantee, Predictor


class Coverage(msgspec.Struct, frozen=True):
    """Prediction sets: how many contain the true label, and how many labels they have."""

    asked: float
    kind: str  # See `conformal.p_values`.
    share: float  # Of the sets with the true label.
    labels: float  # Their mean number in a set.


class Score(msgspec.Struct, frozen=True):
    """What a classifier says of labelled pictures that it was not fitted to."""

    pictures: int  # Of its classes.
    accuracy: float  # Share of these whose likeliest class is their label, "none of these" set aside.
    low: float  # The ends of its 95 % interval, Wilson's.
    high: float
    calibration_error: float  # Of the probabilities, in 15 bins, 0 to 1.
    confusions: dict[str, dict[str, int]]  # Pictures of each class that are given each label, with "none of these".
    unknown: dict[str, int]  # Pictures of each class that it does not have.
    unknown_refused: int  # Those of them that it takes for "none of these".
    coverage: Coverage | None


def score(
    classifier: Classifier,
    features: Tensor,
    labels: Sequence[str],
    guarantee: Guarantee | None = None,
    accepted: float = 1.0,
) -> Score:
    """Compare predictions of pictures, by their features ``(m, d)``, with their labels; see `Predictor`.

    One label at least is a class of the classifier.

    Example:
        >>> from fslstm_plugin import FewShotClassifier
        >>> classifier = FewShotClassifier("nn").fit([[0.0, 1.0], [1.0, 0.0]], ["owl", "wren"])
        >>> found = score(classifier, torch.tensor([[0.1, 1.0], [1.0, 0.9], [0.0, 2.0]]), ["owl", "owl", "tit"])
        >>> found.accuracy, found.confusions, found.unknown
        (0.5, {'owl': {'owl': 1, 'wren': 1}}, {'tit': 1})
    """
    found = Predictor(classifier, guarantee, accepted)([""] * len(labels), features)
    classes = {printable(str(each)): place for place, each in enumerate(classifier.classes_.tolist())}
    pairs = list(zip(found, map(printable, labels), strict=True))
    known = [(prediction, label) for prediction, label in pairs if label in classes]
    others = [(prediction, label) for prediction, label in pairs if label not in classes]
    accuracy = sum(prediction.likeliest == label for prediction, label in known) / len(known)
    counted = Counter((label, prediction.label) for prediction, label in known)
    likely = torch.tensor([prediction.probabilities for prediction, _ in known], dtype=torch.float64)
    low, high = wilson_interval(accuracy, len(known))
    return Score(
        pictures=len(known),
        accuracy=accuracy,
        low=low,
        high=high,
        calibration_error=expected_calibration_error(likely, torch.tensor([classes[label] for _, label in known])),
        confusions={
            label: {name: counted[label, name] for name in (*classes, NONE) if counted[label, name]}
            for label in classes
            if any(each == label for each, _ in counted)
        },
        unknown=dict(sorted(Counter(label for _, label in others).items())),
        unknown_refused=sum(prediction.label == NONE for prediction, _ in others),
        coverage=None if guarantee is None else _coverage(guarantee, known),
    )


def _coverage(guarantee: Guarantee, known: Sequence[tuple[Prediction, str]]) -> Coverage:
    sets = [(each.labels or (), label) for each, label in known]
    share = sum(label in names for names, label in sets) / len(sets)
    return Coverage(*guarantee, share, sum(len(names) for names, _ in sets) / len(sets))
