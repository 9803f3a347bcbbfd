"""A classifier that is fitted to a few labelled points of each of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..checks import require
from ..confidence.calibration import probabilities
from ..confidence.conformal import (
    PER_CLASS,
    prediction_sets,
    require_attainable,
    require_prediction_sets,
    usual_coverage,
)
from ..errors import RunError, UntrainedError, UsageError
from ..features import is_mean
from ..methods.base import Method
from ..naming import has_weights, parse_method
from ..pretrained import PictureBackbone, open_backbone
from .fitted import FittedMethod
from .groups import group_name, numbered
from .identity import BackboneIdentity
from .labels import require_alike, require_distinct, require_known, require_two
from .model_file import Made, ModelFile
from .points import as_array, features_of, pictures_in
from .suggestions import Suggestion, suggest

_LEAVE_ONE_OUT = "leave-one-out"


def method_to_fit(name: str) -> Method:
    """A method by its name, for features of a backbone that is not trained with it.

    Raises:
        UsageError: If the name is wrong, or the method has weights that are trained on episodes.
    """
    try:
        return parse_method(name)
    except UntrainedError as error:
        raise UsageError(
            f"{name} has weights that are trained on episodes: choose a method without any, such as lssvm."
        ) from error


class Classifier:
    """A method with labelled points of named classes, and the backbone that makes features of pictures.

    Features must be finite numbers in rows of equal length. `FewShotClassifier` has the same arguments, attributes and
    methods, and checks this; this class does not import scikit-learn.

    Example:
        >>> X = np.array([[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]])
        >>> Classifier("lssvm").fit(X, ["owl", "owl", "wren", "wren"]).predict(np.array([[0.1, 0.1]]))
        array(['owl'], dtype='<U4')
    """

    def __init__(
        self,
        method: str | Method = "lssvm",
        *,
        backbone: str | Path | nn.Module | None = None,
        temperature: float | str = _LEAVE_ONE_OUT,
        base_mean: np.ndarray | None = None,
        seed: int = 0,
        set_method: str | None = None,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.temperature = temperature
        self.base_mean = base_mean
        self.seed = seed
        self.set_method = set_method

    def fit(self, X: Any, y: Any, pictures: Sequence[str] | None = None, groups: Sequence[Any] | None = None) -> Self:
        """Take labelled points.

        Their order decides which are left out together, and so moves what is estimated that way, such as the
        temperature.

        Args:
            X: Features ``(n, d)``, or n pictures.
            y: Their labels ``(n,)``: strings, whole numbers, booleans, or NumPy's dates.
            pictures: Their names, which are kept. Default None: the paths, where X are paths.
            groups: Which points belong together, such as pictures of one burst, place or patient: n names or numbers.
                The temperature is then fitted to points that are left out with their whole group, and prediction sets
                and `familiarity` compare with one point of each group. A point with None, NaN, or an empty name is by
                itself. Default None: every point is by itself.

        Returns:
            The classifier itself.

        Raises:
            UsageError: If an argument is wrong, or there are fewer than two classes.
            DataError: If a picture cannot be read.
        """
        self._backbone_: PictureBackbone | None = None
        X, y, names, groups = self._labelled(X, y, pictures, groups, reset=True)
        require("seed", self.seed, least=0, most=2**32 - 1, whole=True)
        if self.set_method is not None:
            require_prediction_sets(method_to_fit(self.set_method))
        mean = None if self.base_mean is None else _base_mean(self.base_mean, X.shape[1])
        return self._keep(self._method(), mean, X, y, names, groups)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        pictures: Sequence[str] | None = None,
        groups: Sequence[Any] | None = None,
    ) -> Self:
        """Add labelled points, of known or of new classes, with the same result as fitting all anew in this order.

        Args:
            X: See `fit`.
            y: See `fit`.
            classes: The labels that are allowed. Default None: any.
            pictures: See `fit`.
            groups: See `fit`.

        Returns:
            The classifier itself.

        Raises:
            UsageError: As `fit` does, and if a label is not allowed, or of another type than the others.
        """
        if classes is not None:
            require_known(y, np.unique(classes))
        if not hasattr(self, "classes_"):
            return self.fit(X, y, pictures, groups)
        X, y, names, groups = self._labelled(X, y, pictures, groups, reset=False)
        require_alike(self.classes_, y)
        y = np.concatenate([self.classes_[self.support_labels_], y])
        return self._update(np.concatenate([self.support_, X]), y, [*self.pictures_, *names], [*self.groups_, *groups])

    def forget(self, labels: Any) -> Self:
        """Take classes out with all their points, with the same result as fitting the others anew, in their order.

        Two classes must be left: add others first.

        Args:
            labels: One label, or several.

        Returns:
            The classifier itself.

        Raises:
            UsageError: If there is no such class, or fewer than two would be left.
        """
        self._require_fitted()
        require_known(labels, self.classes_)
        gone = np.isin(self.classes_, labels)
        return self.remove(np.flatnonzero(gone[self.support_labels_]).tolist())

    def remove(self, places: int | Sequence[int]) -> Self:
        """Take points out, with the same result as fitting the others anew, in their order.

        A class without points is gone.

        Args:
            places: A row of ``support_``, or several.

        Returns:
            The classifier itself.

        Raises:
            UsageError: If there is no such row, or one is named twice, or fewer than two classes would be left.

        Example:
            >>> classifier = Classifier().fit([[0.0, 1.0], [1.0, 0.0], [0.9, 0.1]], ["owl", "wren", "owl"])
            >>> classifier.remove([2]).predict([[0.9, 0.1]])
            array(['wren'], dtype='<U4')
        """
        self._require_fitted()
        kept, last = np.ones(len(self.support_), dtype=bool), len(self.support_) - 1
        rows = [require("places", each, least=0, most=last, whole=True) for each in np.atleast_1d(places)]
        if len(set(rows)) < len(rows):
            raise UsageError("A row is named twice: name each once.")
        kept[rows] = False
        names, groups = (list(compress(each, kept)) for each in (self.pictures_, self.groups_))
        return self._update(self.support_[kept], self.classes_[self.support_labels_[kept]], names, groups)

    def _update(self, X: np.ndarray, y: np.ndarray, names: list[str], groups: list[str]) -> Self:
        """Take other labelled points."""
        return self._keep(self._fitted_.method, self._fitted_.base_mean, X, y, names, groups)

    def _keep(
        self,
        method: Method,
        base_mean: Tensor | None,
        X: np.ndarray,
        y: np.ndarray,
        names: list[str],
        groups: list[str],
    ) -> Self:
        # What can fail comes first, so that a refused update changes nothing.
        classes, labels = np.unique(y, return_inverse=True)
        require_two(classes)
        points, places = torch.from_numpy(X), torch.from_numpy(labels)
        fitted = FittedMethod(method, points, places, len(classes), base_mean, numbered(groups))
        require_distinct(classes)
        temperature = self._temperature_of(fitted)
        self.classes_, self.support_labels_, self.support_ = classes, labels, X
        self.pictures_, self.groups_ = names, groups
        self._fitted_, self.temperature_ = fitted, temperature
        self._for_sets_: FittedMethod | None = None
        return self

    def _temperature_of(self, fitted: FittedMethod) -> float | None:
        if self._fits_temperature():
            return None if fitted.method.is_transductive else fitted.temperature(fitted.support[:0])
        if isinstance(self.temperature, str):
            raise UsageError(f"The temperature must be a number or '{_LEAVE_ONE_OUT}', but got '{self.temperature}'.")
        return float(require("temperature", self.temperature, above=0))

    def _fits_temperature(self) -> bool:
        return isinstance(self.temperature, str) and self.temperature == _LEAVE_ONE_OUT

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            return deepcopy(self.method).eval()
        if not isinstance(self.method, str):
            raise UsageError(f"The method must be one or the name of one, such as 'lssvm', but got {self.method!r}.")
        return method_to_fit(self.method)

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each point ``(m,)``."""
        logits = self.fitted.logits(self._query(X))
        return self.classes_[logits.argmax(-1).numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities ``(m, ways)``, in the order of ``classes_``; ``calibrated_`` says whether they are calibrated.

        A transductive method runs up to eleven times, since the labelled points are left out through it, as queries
        beside those of X.
        """
        return self._probable(self._query(X)).numpy()

    def _probable(self, query: Tensor) -> Tensor:
        known = self.temperature_
        return probabilities(self._fitted_.logits(query), self._fitted_.temperature(query) if known is None else known)

    @property
    def calibrated_(self) -> bool:
        """Whether the temperature is fitted to labelled points that were left out."""
        return self.why_uncalibrated is None

    @property
    def why_uncalibrated(self) -> str | None:
        """Why the probabilities are uncalibrated, in words; None if they are calibrated."""
        self._require_fitted()
        if not self._fits_temperature():
            return f"their temperature, {self.temperature:g}, was given, and not fitted to labelled points"
        return self._fitted_.why_uncalibrated()

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits ``(m, ways)``; of two classes, as scikit-learn has it, the second's less the first's ``(m,)``."""
        logits = self.fitted.logits(self._query(X)).numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_set(self, X: Any, coverage: float | None = None, kind: str = PER_CLASS) -> list[np.ndarray]:
        """For each point the labels that it may have: a set that contains the true label as often as guaranteed.

        A set always contains the label of `predict`, so that none is empty and one of a single label is the
        prediction. `familiarity` tells whether a point is of none of the classes.

        Args:
            X: Features ``(m, d)``, or m pictures.
            coverage: The share of the sets that are guaranteed to contain the true label, above 0 and below 1. Default
                None: 0.9, or the greatest that so few labelled points can guarantee, which is 0.83 with 5 per class;
                see `conformal.usual_coverage`.
            kind: ``"per-class"`` (default): the guarantee holds for each class, however many labelled points it has.
                Or ``"marginal"``: it holds on average over the classes, where labelled and new points are drawn alike,
                and may fail for single classes; see `conformal.p_values`.

        Returns:
            m arrays of labels, in the order of ``classes_``. Where points are equally surprising, as with equal
            features, chance decides, by the seed and a point's place in X.

        Raises:
            UsageError: If the method has no such guarantee, as a transductive one, or the labelled points are too few
                for this coverage, or for 0.8 if none is given.
        """
        query = self._query(X)
        fitted, names = self._fitted_for_sets().representatives, [str(each) for each in self.classes_]
        unit = "image" if self._fitted_.groups is None else "group"
        require_prediction_sets(fitted.method)
        if coverage is None:
            coverage = usual_coverage(fitted.targets, kind, names, unit)
        require_attainable(coverage, fitted.targets, kind, names, unit)
        found = fitted.p_values(query, kind, self.seed)
        sets = prediction_sets(found, self._fitted_.logits(query).argmax(-1), coverage)
        return [self.classes_[each] for each in sets.numpy()]

    def familiarity(self, X: Any) -> np.ndarray:
        """How familiar each point is, by its rank among the labelled ones: small if it is of none of the classes.

        About a share e of the points of the classes has a familiarity of at most e, see `refusal.refused_share`: take
        points with at most 0.05, say, as unknown. The smallest rank among n labelled points is ``1 / (n + 1)``. Where
        `suggest` chose the labelled points, the share is smaller.

        Args:
            X: Features ``(m, d)``, or m pictures.

        Returns:
            ``(m,)``, above 0 and at most 1; see `familiarity.familiarity_rank`.
        """
        return self.fitted.representatives.familiarity(self._query(X)).numpy()

    @property
    def fitted(self) -> FittedMethod:
        """The method with the labelled points."""
        self._require_fitted()
        return self._fitted_

    @property
    def method_name(self) -> str:
        """The name from which the same method is made.

        Raises:
            UsageError: If there is none: the method is an object, with weights or of a class without a name.
        """
        if not isinstance(self.method, Method):
            return str(self.method)  # which may be NumPy's
        if has_weights(self.method) or not _can_be_named(self.method):
            raise UsageError(
                f"A model file holds a method's name only, which cannot describe {self.method}: give the name of a "
                "registered method without weights, whose arguments are words and numbers."
            )
        return str(self.method)

    @property
    def set_method_(self) -> Method:
        """The method whose p-values make the prediction sets; it may have none, see `require_prediction_sets`."""
        return self._fitted_for_sets().method

    def _fitted_for_sets(self) -> FittedMethod:
        """`set_method_` with the labelled points, kept until they change."""
        mine = self.fitted
        if self.set_method is None:
            return mine
        if self._for_sets_ is None:
            method = method_to_fit(self.set_method)
            self._for_sets_ = FittedMethod(method, mine.support, mine.labels, mine.ways, mine.base_mean, mine.groups)
        return self._for_sets_

    def left_out(self) -> np.ndarray | None:
        """Probabilities ``(n, ways)`` of each labelled point by the method fitted without it.

        Returns:
            The probabilities; None where these would tell nothing, see `FittedMethod.left_out`.
        """
        logits = self.fitted.left_out()
        if logits is None:
            return None
        known = self.temperature_
        return probabilities(logits, self._fitted_.left_out_temperature(logits) if known is None else known).numpy()

    def suggest(self, X: Any, count: int = 10) -> list[Suggestion]:
        """Which of these points to label next, and why; see `suggestions.suggest`.

        Args:
            X: Features ``(m, d)``, or m pictures.
            count: How many; default 10.
        """
        query = self._query(X)
        return suggest(self._fitted_.support, query, self._probable(query), self.classes_.tolist(), count, self.seed)

    def save(self, file: Path | str) -> None:
        """Write the classifier to one file, see `ModelFile`; the backbone's name is in it, its weights are not.

        Raises:
            UsageError: If a class is neither a string nor a number, or no name says what the method is.
            StorageError: If the file cannot be written.
        """
        self._require_fitted()
        ModelFile(
            method=self.method_name,
            seed=int(self.seed),
            temperature=1.0 if self.temperature_ is None else self.temperature_,  # which is then not read
            calibrated=self._fits_temperature(),
            classes=self.classes_,
            support=self.support_,
            labels=self.support_labels_,
            pictures=tuple(self.pictures_) if any(self.pictures_) else (),
            backbone=None if self.backbone is None else BackboneIdentity.of(self.open_backbone()),
            base_mean=None if self.base_mean is None else np.asarray(as_array(self.base_mean), dtype=np.float64),
            set_method=self.set_method,
            made=Made.now(),
            groups=tuple(self.groups_) if any(self.groups_) else (),
        ).write(Path(file))

    @classmethod
    def load(
        cls, file: Path | str, backbone: str | Path | nn.Module | None = None, weights: Path | str | None = None
    ) -> Self:
        """The classifier of a file.

        Args:
            file: Its place.
            backbone: The backbone, where it cannot be opened by the name that is in the file. Default None.
            weights: Where the backbone's weights, or the run that it is from, lie now; or ``builtin:NAME``. Default
                None: where they were.

        Raises:
            RunError: If the file is missing, damaged, of a newer version, or made with another backbone.
            UsageError: If both a backbone and weights are given, or weights of a backbone that has its own.
        """
        if backbone is not None and weights is not None:
            raise UsageError("`weights` says where the backbone in the file lies: leave out `weights` or `backbone`.")
        content = ModelFile.read(Path(file))
        if backbone is None and content.backbone is not None:
            backbone = content.backbone.open(weights)
        return cls.of(content, Path(file), backbone)

    @classmethod
    def of(cls, content: ModelFile, file: Path, backbone: str | Path | nn.Module | None = None) -> Self:
        """The classifier that was read from a file; without a backbone it is for features alone."""
        classifier = cls(
            content.method,
            backbone=backbone,
            temperature=_LEAVE_ONE_OUT if content.calibrated else content.temperature,
            base_mean=content.base_mean,
            seed=content.seed,
            set_method=content.set_method,
        )
        if backbone is not None:
            opened, length = classifier.open_backbone(), content.support.shape[1]
            if content.backbone is not None:
                content.backbone.require(opened, file)
            if opened.out_features != length:
                raise RunError(
                    f"{file} has features of length {length:,}, but those of {opened.name} have "
                    f"{opened.out_features:,}: they are another backbone's, or the file is damaged."
                )
        try:
            y = content.classes[content.labels]
            return classifier.fit(content.support, y, content.pictures or None, content.groups or None)
        except UsageError as error:
            raise RunError(f"The classifier in {file} cannot be used here: {error}") from error

    def open_backbone(self) -> PictureBackbone:
        """The backbone, opened when it is first asked for.

        Raises:
            UsageError: If there is none.
            RunError: As `pretrained.open_backbone` does.
        """
        if self.backbone is None:
            raise UsageError(
                "X holds pictures, but there is no backbone: give one, FewShotClassifier(backbone=...), or features."
            )
        opened = getattr(self, "_backbone_", None) or open_backbone(self.backbone)
        self._backbone_ = opened
        return opened

    def _labelled(
        self, X: Any, y: Any, pictures: Sequence[str] | None, groups: Sequence[Any] | None, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
        """Features, labels, names and groups of labelled points."""
        paths = [str(each) if isinstance(each, (str, Path)) else "" for each in pictures_in(X) or ()]
        X, y = self._checked_labelled(self._features(X), as_array(y), reset)
        names = [str(each) for each in pictures] if pictures is not None else paths or [""] * len(X)
        if len(names) != len(X):
            raise UsageError(f"Expected a name for each of {len(X)} pictures, but got {len(names)}.")
        together = [""] * len(X) if groups is None else [group_name(each) for each in groups]
        if len(together) != len(X):
            raise UsageError(f"Expected a group for each of {len(X)} points, but got {len(together)}.")
        return X, y, names, together

    def _query(self, X: Any) -> Tensor:
        self._require_fitted()
        X = self._checked(self._features(X))
        return torch.from_numpy(np.require(X, requirements=["C", "W"]))

    def _require_fitted(self) -> None:
        if not hasattr(self, "_fitted_"):
            raise UsageError("The classifier has no labelled points: fit it first.")

    def _checked(self, X: Any) -> np.ndarray:
        """Features as an array, refused where they are none."""
        return np.asarray(X)

    def _checked_labelled(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels as arrays of their own; with reset the first, whose length others must have."""
        return np.array(X), np.asarray(y)

    def _features(self, X: Any) -> Any:
        """Features of pictures; anything else as it is."""
        pictures = pictures_in(X)
        return as_array(X) if pictures is None else features_of(pictures, self.open_backbone())


def _can_be_named(method: Method) -> bool:
    """Whether the method's name makes the same one again: not where an argument is an array, or an object of a user."""
    try:
        return method.is_registered and str(parse_method(str(method))) == str(method)
    except UsageError:
        return False


def _base_mean(values: Any, length: int) -> Tensor:
    try:
        mean = np.asarray(as_array(values), dtype=np.float64)
    except (TypeError, ValueError):
        mean = np.empty(0)
    if not is_mean(mean.shape, length) or not np.isfinite(mean).all():
        raise UsageError(
            f"`base_mean` must be {length} finite numbers, one for each feature, or an array (classes, {length}) of "
            f"them, but got {values!r}."
        )
    return torch.from_numpy(mean)
