"""Whether predicted pictures look like the labelled ones, without which nothing can be promised of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..confidence.conformal import PER_CLASS
from ..confidence.exchangeability import difference
from .embedding import features_of

if TYPE_CHECKING:
    from ..classifier.estimator import FewShotClassifier
    from . import Picture

_MOST = 2000  # Pictures that are tested: of more a random sample.
_NAMED = 3


class Tested(NamedTuple):
    """What the test says."""

    pictures: int
    p_value: float  # See `Difference`.
    withdrawn: bool  # Whether nothing can be promised.
    different: tuple[str, ...]  # Names of the pictures that differ most.


class Likeness:
    """Collects pictures and tests them; see `difference`.

    For what is promised of each class, pictures are compared with those that are predicted to be of the same class,
    labelled ones without their own label; for a guarantee on average, all with all.

    Args:
        classifier: With what they are predicted.
        kind: Of what is promised, see `conformal.p_values`.
    """

    def __init__(self, classifier: FewShotClassifier, kind: str) -> None:
        self.classifier, self.kind = classifier, kind
        self._wanted: set[str] = set()
        self._kept: dict[str, tuple[Tensor, int]] = {}

    def choose(self, pictures: Sequence[Picture]) -> None:
        """Choose those that are tested, of all that something is said about."""
        wanted = random.Random(0).sample(pictures, min(_MOST, len(pictures)))
        self._wanted = {each.name for each in wanted}

    def add(self, paths: Sequence[str], features: Tensor, predicted: Sequence[int]) -> None:
        """Take note of those that are tested, by their names, features ``(m, d)`` and places of likeliest classes."""
        for path, point, group in zip(paths, features, predicted, strict=True):
            if path in self._wanted:
                self._kept[path] = point, group

    def look_at(self, pictures: Sequence[Picture]) -> None:
        """Take note of those that are tested and were predicted before."""
        missing = [each for each in pictures if each.name in self._wanted - self._kept.keys()]
        for batch in features_of(missing, self.classifier.open_backbone()):
            if batch.pictures:
                labels = self.classifier.predict(batch.features.numpy())
                predicted = np.searchsorted(self.classifier.classes_, labels).tolist()
                self.add([each.name for each in batch.pictures], batch.features, predicted)

    def test(self) -> Tested | None:
        """Test them; None where there are none."""
        if not self._kept:
            return None
        points, predicted = zip(*self._kept.values(), strict=True)
        groups, left_out = None, self.classifier.left_out()
        labelled = self.classifier.fitted.independent
        if self.kind == PER_CLASS and left_out is not None:
            groups = torch.from_numpy(left_out).argmax(-1)[labelled], torch.tensor(predicted)
        support = torch.from_numpy(self.classifier.support_)[labelled]
        found = difference(support, torch.stack(points), groups)
        paths, most = list(self._kept), found.shares.topk(min(_NAMED, len(points))).indices.tolist()
        return Tested(len(paths), found.p_value, found.is_significant, tuple(paths[place] for place in most))
