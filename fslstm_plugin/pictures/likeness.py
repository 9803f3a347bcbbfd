"""Whether predicted pictures look like the labelled ones, without which prediction sets promise nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..confidence.conformal import PER_CLASS
from ..confidence.exchangeability import difference

if TYPE_CHECKING:
    from ..classifier.estimator import FewShotClassifier
    from .predictions import Prediction

_MOST = 2000  # Pictures that are tested: of more a random sample.
_NAMED = 3


class Tested(NamedTuple):
    """What the test says.

    Attributes:
        pictures: How many were tested.
        p_value: See `Difference`.
        withdrawn: Whether no guarantee can be given.
        different: Paths of the pictures that differ most, as predictions name them.
    """

    pictures: int
    p_value: float
    withdrawn: bool
    different: tuple[str, ...]


class Likeness:
    """Collects pictures and tests them; see `difference`.

    For a guarantee in each class, pictures are compared with those that are predicted to be of the same class, labelled
    ones without their own label; for one on average, all with all.

    Args:
        classifier: With what they are predicted.
        kind: Of the guarantee, see `conformal.p_values`.
    """

    def __init__(self, classifier: FewShotClassifier, kind: str) -> None:
        self.classifier, self.kind = classifier, kind
        self._kept: list[tuple[str, Tensor, int]] = []
        self._seen, self._random = 0, random.Random(0)

    def add(self, predictions: Sequence[Prediction], features: Tensor, classes: Sequence[str]) -> None:
        """Take note of pictures.

        Args:
            predictions: Theirs.
            features: Likewise ``(m, d)``.
            classes: Names of the classes as predictions have them.
        """
        for each, point in zip(predictions, features, strict=True):
            kept = each.path, point, classes.index(each.likeliest)
            self._seen += 1
            if len(self._kept) < _MOST:
                self._kept.append(kept)
            elif (place := self._random.randrange(self._seen)) < _MOST:
                self._kept[place] = kept

    def test(self) -> Tested | None:
        """Test them; None where there are none."""
        if not self._kept:
            return None
        paths, points, classes = zip(*self._kept, strict=True)
        groups, left_out = None, self.classifier.left_out()
        if self.kind == PER_CLASS and left_out is not None:
            groups = torch.from_numpy(left_out).argmax(-1), torch.tensor(classes)
        found = difference(torch.from_numpy(self.classifier.support_), torch.stack(points), groups)
        most = found.shares.topk(min(_NAMED, len(paths))).indices.tolist()
        return Tested(len(paths), found.p_value, found.is_significant, tuple(paths[place] for place in most))
