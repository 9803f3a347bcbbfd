"""Few-shot classification in the form of scikit-learn's estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .classifier import Classifier


class FewShotClassifier(ClassifierMixin, Classifier, BaseEstimator):
    """Few-shot classification: predicts the labels of points from a few labelled ones of each class.

    The points X are rows of a feature matrix, or with a backbone pictures: paths, Pillow's images, or arrays of pixels,
    uint8; a matrix is taken for the backbone's features. Tensors of PyTorch are taken like arrays. It works in
    scikit-learn's pipelines and searches.

    A method that is not transductive predicts each point by itself, so that any number can come at once or in parts. A
    transductive one takes the X of a prediction as the queries of one episode, and learns from all of them.

    Its methods are those of `Classifier`, and scikit-learn's.

    Args:
        method: A method or the name of one, see `parse_method`; default ``"lssvm"``.
        backbone: What `open_backbone` takes: a name or a module. Default None: X are features.
        temperature: Number that divides the logits before the softmax; or ``"leave-one-out"`` (default),
            which fits it to the labelled points, each left out, see `calibration.temperature_of`.
        base_mean: Mean feature ``(d,)`` of other images, which methods with ``center`` subtract, or of each of their
            classes ``(classes, d)``, which those with ``stretch`` need. Default None.
        seed: Random seed, for the order of equal scores in `predict_set`. Default 0.
        set_method: Name of the method whose p-values make the sets of `predict_set`. Default None: ``method``. If
            the labelled points chose ``method``, as in `choose_method`, name one that they did not choose, such as its
            first candidate: the choice favours the labelled points over new ones, and the sets would contain the true
            label less often than guaranteed.

    Attributes:
        classes_: The labels, sorted ``(ways,)``.
        n_features_in_: Length d of the features.
        support_: Features of the labelled points ``(n, d)``.
        support_labels_: Their classes as places in ``classes_``, int64 ``(n,)``.
        pictures_: Names of the labelled pictures, empty where there is none.
        groups_: Names of the groups that the labelled points belong to, empty where a point is by itself.
        temperature_: The temperature; None where it is fitted for each X, since the method is transductive.
        calibrated_: Whether the temperature is fitted to labelled points that were left out; see `why_uncalibrated`.

    Example:
        >>> X = np.array([[0.0, 0.1], [0.2, 0.0], [1.0, 0.9], [0.8, 1.0]])
        >>> classifier = FewShotClassifier().fit(X, ["owl", "owl", "wren", "wren"])
        >>> classifier.predict([[0.1, 0.1], [0.9, 0.9]])
        array(['owl', 'wren'], dtype='<U4')
        >>> classifier.predict_set([[0.1, 0.0], [0.9, 0.9]], coverage=0.7, kind="marginal")
        [array(['owl'], dtype='<U4'), array(['wren'], dtype='<U4')]
        >>> classifier.partial_fit([[0.9, 0.0]], ["tit"]).forget("owl").predict([[0.9, 0.1]])
        array(['tit'], dtype='<U4')
    """

    def __sklearn_is_fitted__(self) -> bool:
        """What `check_is_fitted` asks: not after a fit that failed, which leaves attributes."""
        return hasattr(self, "_fitted_")

    def _require_fitted(self) -> None:
        check_is_fitted(self)

    def _checked(self, X: Any) -> np.ndarray:
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=False)

    def _checked_labelled(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), copy=True, reset=reset)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes is greater")  # as it is with few shots
            check_classification_targets(y)
        return X, y
