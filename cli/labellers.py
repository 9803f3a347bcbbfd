"""What `predict` predicts with: a classifier's file, or an exported graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fslstm_plugin.errors import RunError, UsageError, printable

from . import pictures
from .options import PER_CLASS

if TYPE_CHECKING:
    import torch

    from fslstm_plugin.classifier.estimator import FewShotClassifier
    from fslstm_plugin.confidence.certainty import LeftOut
    from fslstm_plugin.pictures import Picture
    from fslstm_plugin.pictures.embedding import Remark
    from fslstm_plugin.pictures.likeness import Likeness
    from fslstm_plugin.pictures.predictions import Prediction, Sureness

_PART = 64  # Pictures whose predictions are computed and written at a time: by eights they take a third of all time.
_ROUNDING = 1e-9  # 1 less a share such as 0.95 is not exactly its complement.
_TOGETHER = 10_000  # Pictures whose predictions can use each other: their similarities take 0.8 GB.


class Sets(NamedTuple):
    """The prediction sets that are asked for.

    Args:
        coverage: Their share with the true label.
        kind: See `conformal.p_values`.
    """

    coverage: float
    kind: str


class Batch(NamedTuple):
    """Predictions of some pictures, how many were looked at for them, and what is to be said of these."""

    predictions: Sequence[Prediction]
    looked_at: int
    unreadable: Sequence[str] = ()
    remarks: Sequence[Remark] = ()


class Labeller(Protocol):
    """Predicts pictures.

    Args:
        classes: Names of the classes.
        identity: See `identity_of`.
        together: Whether predictions use the other pictures.
        sets: The prediction sets; None where there are none.
        accepted: See `acceptance`.
        why_uncalibrated: See `FewShotClassifier.why_uncalibrated`.
        labelled: Classes of the labelled pictures, by their paths as predictions name them.
        likeness: Tests the pictures that were predicted, where there are prediction sets.
    """

    classes: list[str]
    identity: str
    together: bool
    sets: Sets | None
    accepted: float
    why_uncalibrated: str | None
    labelled: dict[str, str]
    likeness: Likeness | None

    @property
    def left_out(self) -> LeftOut | None:
        """See `predictor.left_out`."""

    def predict(self, found: Sequence[Picture]) -> Iterator[Batch]:
        """Predictions in the order of the pictures."""

    def on_none(self) -> list[str]:
        """What 'none of these' means, in sentences."""


class ClassifierLabeller:
    """A classifier with its backbone.

    Args:
        model: Its file.
        device: As typed.
        weights: Where the backbone's weights are now; None if they were not moved.
        transductive: Whether predictions shall use the other pictures.
        sets: The prediction sets that are asked for.
        accept: Share of the pictures of the classes that is accepted, as typed.
        sure: By which labels are sure, for what is said of the sets.

    Raises:
        UsageError: If there are no such sets, or too few labelled pictures for the share.
        RunError: If the file cannot be read, or changed meanwhile.
    """

    def __init__(
        self,
        model: Path,
        device: str,
        weights: Path | None,
        transductive: bool,
        sets: Sets | None,
        accept: float | None,
        sure: Sureness | None,
    ) -> None:
        from fslstm_plugin.pictures.likeness import Likeness
        from fslstm_plugin.pictures.predictions import identity_of
        from fslstm_plugin.pictures.predictor import Guarantee, Predictor, acceptance, named

        self._classifier, content = _loaded(model, device, weights)
        if transductive and not self._classifier.fitted.method.is_transductive:
            _make_transductive(self._classifier)
        self.sets, self._accept = sets, accept
        self.why_uncalibrated = self._classifier.why_uncalibrated
        if sets is not None and sure is not None and sure.guaranteed:
            _require_enough(self._classifier, sets)
        guarantee = None if sets is None else Guarantee.of(self._classifier, *sets)
        self.accepted = acceptance(self._classifier, accept)
        self._predictor = Predictor(self._classifier, guarantee, self.accepted)
        self.classes = [printable(str(each)) for each in self._classifier.classes_]
        self.labelled = dict(
            zip(
                map(named, self._classifier.pictures_),
                (self.classes[place] for place in self._classifier.support_labels_),
                strict=True,
            )
        )
        self.likeness = None if sets is None else Likeness(self._classifier, sets.kind)
        self.together = self._classifier.fitted.method.is_transductive
        self.identity = identity_of(content, guarantee, self.accepted, transductive)

    @property
    def left_out(self) -> LeftOut | None:
        """See `Labeller.left_out`; it is computed where it is asked for."""
        from fslstm_plugin.pictures.predictor import left_out

        return left_out(self._classifier)

    def predict(self, found: Sequence[Picture]) -> Iterator[Batch]:
        """See `Labeller.predict`; all at once where they use each other.

        Raises:
            UsageError: If they are too many for that.
        """
        import torch

        from fslstm_plugin.pictures.embedding import features_of

        if self.together and len(found) > _TOGETHER:
            raise UsageError(
                f"Predictions that use the other pictures can be made for {_TOGETHER:,} pictures at a time, but there "
                f"are {len(found):,}: leave out --transductive, or predict them in parts."
            )
        paths: list[str] = []
        features: list[torch.Tensor] = []
        for batch in features_of(found, self._classifier.open_backbone()):
            paths += [pictures.text_of(each.path) for each in batch.pictures]
            features.append(batch.features)
            predictions: Sequence[Prediction] = ()
            if len(paths) >= _PART and not self.together:
                predictions = self._predicted(paths, torch.cat(features))
                paths, features = [], []
            reasons = [each.reason for each in batch.problems]
            yield Batch(predictions, len(batch.pictures) + len(reasons), reasons, batch.remarks)
        if paths:
            yield Batch(self._predicted(paths, torch.cat(features)), 0)

    def _predicted(self, paths: Sequence[str], features: torch.Tensor) -> Sequence[Prediction]:
        predictions = self._predictor(paths, features)
        if self.likeness is not None:
            self.likeness.add(paths, features, [self.classes.index(each.likeliest) for each in predictions])
        return predictions

    def on_none(self) -> list[str]:
        """See `Labeller.on_none`."""
        from fslstm_plugin.pictures.predictor import accepting, independent_counts

        counts = independent_counts(self._classifier).tolist()
        return accepting(self.accepted, counts, self._accept)


class GraphLabeller:
    """An exported graph, which needs no PyTorch.

    Args:
        file: Its place.
        accept: Share of the pictures of the classes that is accepted, as typed.

    Raises:
        RunError: If there is none.
        DataError: If it is damaged, or another's.
    """

    together = False
    sets: Sets | None = None
    likeness: Likeness | None = None

    def __init__(self, file: Path, accept: float | None) -> None:
        from fslstm_plugin.checks import require
        from fslstm_plugin.pictures.graph import Graph
        from fslstm_plugin.pictures.predictions import identity_of

        self._graph = Graph(file)
        self.labelled: dict[str, str] = {}
        self.accepted = self._graph.accept if accept is None else require("accept", accept, above=0, most=1)
        self.classes, self.why_uncalibrated = self._graph.classes, self._graph.why_uncalibrated
        self.identity = identity_of(file.read_bytes(), self.accepted)

    @property
    def left_out(self) -> LeftOut | None:
        """See `Labeller.left_out`."""
        return self._graph.left_out

    def predict(self, found: Sequence[Picture]) -> Iterator[Batch]:
        """See `Labeller.predict`."""
        for batch in self._graph.predict(found, self.accepted):
            yield Batch(batch.predictions, len(batch.predictions) + len(batch.unreadable), batch.unreadable)

    def on_none(self) -> list[str]:
        """See `Labeller.on_none`."""
        from fslstm_plugin.pictures.predictions import on_acceptance

        return [on_acceptance(self.accepted)]


def _make_transductive(classifier: FewShotClassifier) -> None:
    labels = classifier.classes_[classifier.support_labels_]
    classifier.set_params(method=f"{classifier.method}+psm")
    classifier.fit(classifier.support_, labels, classifier.pictures_, classifier.groups_)


def _loaded(model: Path, device: str, weights: Path | None) -> tuple[FewShotClassifier, bytes]:
    """The classifier with the content of its file.

    Raises:
        RunError: As `pictures.load` does, and if the file changed meanwhile.
    """
    content = model.read_bytes() if model.is_file() else b""
    classifier = pictures.load(model, device, weights)
    if model.read_bytes() != content:  # a table would take the one's predictions for the other's
        raise RunError(f"{model} changed while it was read: type the same command again.")
    return classifier, content


def _require_enough(classifier: FewShotClassifier, sets: Sets) -> None:
    """Refuse a share that so few labelled pictures cannot guarantee, in the words of the option that asked for it.

    Raises:
        UsageError: If they are too few.
    """
    from fslstm_plugin.confidence.conformal import attained_coverage
    from fslstm_plugin.pictures.predictor import independent_counts

    counts = independent_counts(classifier)
    points = int(counts.min() if sets.kind == PER_CLASS else counts.sum())
    if attained_coverage(sets.coverage, points) < 1:
        return
    share, least = 1 - sets.coverage, math.ceil(100 / (points + 1) - _ROUNDING) / 100
    enough = math.ceil(1 / share - 1 - _ROUNDING)
    what = "labelled pictures" if classifier.fitted.groups is None else "groups of labelled pictures"
    of_each = " of each class" if sets.kind == PER_CLASS else ""
    raise UsageError(
        f"--wrong-at-most {share:g} --guaranteed takes {enough} {what}{of_each}, but there are {points}: "
        f"label more, or ask for --wrong-at-most {least:g} or more."
    )
