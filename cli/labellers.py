"""What `predict` predicts with: a classifier's file, or an exported graph, `fslstm_plugin.pictures.graph.Graph`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import torch

from fslstm_plugin.classifier.classifier import Classifier
from fslstm_plugin.confidence.certainty import LeftOut
from fslstm_plugin.confidence.conformal import attained_coverage
from fslstm_plugin.errors import RunError, UsageError
from fslstm_plugin.pictures import Picture
from fslstm_plugin.pictures.acceptance import ROUNDING, acceptance
from fslstm_plugin.pictures.decoding import Batch
from fslstm_plugin.pictures.embedding import features_of
from fslstm_plugin.pictures.graph import Graph
from fslstm_plugin.pictures.likeness import Likeness
from fslstm_plugin.pictures.predictions import Prediction, Sureness, identity_of
from fslstm_plugin.pictures.predictor import Guarantee, Predictor, independent_counts, left_out, named

from . import pictures
from .options import PER_CLASS

_PART = 64  # Pictures whose predictions are computed and written at a time: by eights they take a third of all time.
_TOGETHER = 10_000  # Pictures whose predictions can use each other: their similarities take 0.8 GB.

Labeller: TypeAlias = "ClassifierLabeller | Graph"


class ClassifierLabeller:
    """A classifier with its backbone, by options of `predict`; it has the attributes of a `Graph`."""

    def __init__(
        self,
        model: Path,
        device: str,
        weights: Path | None,
        transductive: bool,
        sets: Guarantee | None,
        accept: float | None,
        sure: Sureness | None,
    ) -> None:
        self._classifier, content = _loaded(model, device, weights)
        if transductive and not self._classifier.fitted.method.is_transductive:
            _make_transductive(self._classifier, model)
        self.sets, self.counts = sets, independent_counts(self._classifier).tolist()
        self.why_uncalibrated = self._classifier.why_uncalibrated
        if sets is not None:
            if sure is not None and sure.guaranteed:
                _require_enough(self.counts, sets, self._classifier.fitted.groups is not None)
            sets.require(self._classifier)
        self.accepted = acceptance(self.counts, accept)
        self._predictor = Predictor(self._classifier, sets, self.accepted)
        self.classes = self._predictor.classes
        classes = [self.classes[place] for place in self._classifier.support_labels_]
        self.labelled = dict(zip(map(named, self._classifier.pictures_), classes, strict=True))
        promised = sets is not None or (sure is not None and sure.wrong_at_most is not None)
        self.likeness = Likeness(self._classifier, sets.kind if sets else PER_CLASS) if promised else None
        self.together = self._classifier.fitted.method.is_transductive
        self.identity = identity_of(content, sets, self.accepted, transductive)

    @property
    def left_out(self) -> LeftOut | None:
        """See `predictor.left_out`; it is computed where it is asked for."""
        return left_out(self._classifier)

    def predict(self, found: Sequence[Picture]) -> Iterator[Batch[Sequence[Prediction]]]:
        """Predictions in the order of the pictures; all at once where they use each other."""
        if self.together and len(found) > _TOGETHER:
            raise UsageError(
                f"Predictions that use the other pictures can be made for {_TOGETHER:,} pictures at a time, but there "
                f"are {len(found):,}: leave out --transductive, or predict them in parts."
            )
        paths: list[str] = []
        features: list[torch.Tensor] = []
        for batch in features_of(found, self._classifier.open_backbone()):
            paths += [each.name for each in batch.pictures]
            features.append(batch.values)
            predictions: Sequence[Prediction] = ()
            if len(paths) >= _PART and not self.together:
                predictions = self._predicted(paths, torch.cat(features))
                paths, features = [], []
            yield Batch(batch.pictures, predictions, batch.problems, batch.remarks)
        if paths:
            yield Batch([], self._predicted(paths, torch.cat(features)))

    def _predicted(self, paths: Sequence[str], features: torch.Tensor) -> Sequence[Prediction]:
        predictions = self._predictor(paths, features)
        if self.likeness is not None:
            self.likeness.add(paths, features)
        return predictions


def _make_transductive(classifier: Classifier, model: Path) -> None:
    if not classifier.fitted.method.is_head:
        raise UsageError(
            f"--transductive adds PSM to a head, but {model} was fitted with {classifier.method}, which is not a "
            "head: leave it out, or fit again with a head, such as 'fslstm fit --method lssvm'."
        )
    labels = classifier.classes_[classifier.support_labels_]
    classifier.method = f"{classifier.method}+psm"
    classifier.fit(classifier.support_, labels, classifier.pictures_, classifier.groups_)


def _loaded(model: Path, device: str, weights: Path | None) -> tuple[Classifier, bytes]:
    """The classifier with the content of its file."""
    content = model.read_bytes() if model.is_file() else b""
    classifier = pictures.load(model, device, weights)
    if model.read_bytes() != content:  # a table would take the one's predictions for the other's
        raise RunError(f"{model} changed while it was read: type the same command again.")
    return classifier, content


def _require_enough(counts: Sequence[int], sets: Guarantee, grouped: bool) -> None:
    """Refuse a share that so few labelled pictures cannot guarantee, in the words of the option that asked for it."""
    points = min(counts) if sets.kind == PER_CLASS else sum(counts)
    if attained_coverage(sets.coverage, points) < 1:
        return
    share, least = 1 - sets.coverage, math.ceil(100 / (points + 1) - ROUNDING) / 100
    enough = math.ceil(1 / share - 1 - ROUNDING)
    what = "groups of labelled pictures" if grouped else "labelled pictures"
    of_each = " of each class" if sets.kind == PER_CLASS else ""
    raise UsageError(
        f"--wrong-at-most {share:g} --guaranteed needs {enough} {what}{of_each}, not {points}: label "
        f"more, or ask for --wrong-at-most {least:g} or more."
    )
