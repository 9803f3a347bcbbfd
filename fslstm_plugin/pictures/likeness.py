"""Whether predicted pictures look like the labelled ones, without which nothing can be promised of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..classifier.classifier import Classifier
from ..confidence.conformal import PER_CLASS
from ..confidence.exchangeability import difference
from .embedding import features_of
from .picture import Picture

_MOST = 2000  # Pictures that are tested: of more a random sample.
_NAMED = 3
_LEAST = 3  # Labelled pictures of a class that is tested by itself.


class Tested(NamedTuple):
    """What the test says."""

    pictures: int
    p_value: float  # See `Difference`.
    withdrawn: bool  # Whether nothing can be promised.
    different: tuple[str, ...]  # Names of the pictures that differ most.


class Likeness:
    """Collects pictures and tests them; see `difference`.

    For what is promised of each class, pictures are compared with those that are predicted to be of the same class, new
    ones by all labelled ones and labelled ones by the others; for a guarantee on average, all with all. A class of one
    or two labelled pictures cannot be tested so, since each is hardly ever predicted to be of it. The kind of what is
    promised is that of `conformal.p_values`.
    """

    def __init__(self, classifier: Classifier, kind: str) -> None:
        self.classifier, self.kind = classifier, kind
        self._wanted: set[str] = set()
        self._kept: dict[str, Tensor] = {}

    def choose(self, pictures: Sequence[Picture]) -> None:
        """Choose those that are tested, of all that something is said about."""
        wanted = random.Random(0).sample(pictures, min(_MOST, len(pictures)))
        self._wanted = {each.name for each in wanted}

    def add(self, paths: Sequence[str], features: Tensor) -> None:
        """Take note of those that are tested, by their names and features ``(m, d)``."""
        self._kept.update((path, point) for path, point in zip(paths, features, strict=True) if path in self._wanted)

    def look_at(self, pictures: Sequence[Picture]) -> None:
        """Take note of those that are tested and were predicted before."""
        missing = [each for each in pictures if each.name in self._wanted - self._kept.keys()]
        for batch in features_of(missing, self.classifier.open_backbone()):
            self.add([each.name for each in batch.pictures], batch.values)

    def test(self) -> Tested | None:
        """Test them; None where there are none that can be tested."""
        independent = self.classifier.fitted.independent
        labelled, paths = torch.from_numpy(self.classifier.support_)[independent], sorted(self._kept)
        if not paths:
            return None
        new, groups = torch.stack([self._kept[path] for path in paths]), None
        if self.kind == PER_CLASS:
            labels = self.classifier.fitted.labels[independent]
            several = labels.bincount() >= _LEAST
            if not several.any():
                return None
            mine, theirs = self._predicted(new)
            known, seen = several[labels], several[theirs]
            labelled, groups = labelled[known], (mine[independent][known], theirs[seen])
            new, paths = new[seen], list(compress(paths, seen.tolist()))
            if not paths:
                return None
        found = difference(labelled, new, groups)
        most = found.shares.topk(min(_NAMED, len(paths))).indices.tolist()
        return Tested(len(paths), found.p_value, found.is_significant, tuple(paths[place] for place in most))

    def _predicted(self, new: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the classes that labelled pictures, each left out, and new ones are predicted to be of.

        Both by the classifier, or by NN where it predicts pictures together, or none can be left out.
        """
        judge = self.classifier
        left_out = None if judge.fitted.method.is_transductive else judge.left_out()
        if left_out is None:
            judge = Classifier("nn(normalize)").fit(judge.support_, judge.support_labels_, groups=judge.groups_)
            left_out = judge.left_out()
        assert left_out is not None  # since a class has several pictures
        places = np.searchsorted(judge.classes_, judge.predict(new.numpy()))
        return torch.from_numpy(left_out).argmax(-1), torch.from_numpy(places)
