"""What the labels of a classifier may be, and which of them stand beside each other."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any

import numpy as np

from ..errors import UnknownNameError, UsageError


def require_known(labels: Any, classes: np.ndarray) -> None:
    """Refuse labels that are no classes."""
    labels = np.unique(labels)
    if labels.size:
        require_alike(classes, labels)
    for label in labels:
        if label not in classes:
            raise UnknownNameError("class", label, map(str, classes))


def require_alike(classes: np.ndarray, y: np.ndarray) -> None:
    """Refuse labels that beside the classes would become another type, and so other labels."""
    kind = _kind(y.dtype)
    if _kind(classes.dtype) != kind or _kind(np.result_type(classes, y)) != kind:
        raise UsageError(f"The classes are {classes.dtype}, but these labels are {y.dtype}: give them one type.")


def require_two(classes: np.ndarray) -> None:
    """Refuse a single class, or none."""
    if len(classes) < 2:
        only = f"only one class, {classes[0]}" if len(classes) else "no class"
        raise UsageError(f"A classifier needs at least two classes, but got {only}.")


def require_distinct(classes: np.ndarray) -> None:
    """Refuse names that nobody can tell apart; they are not merged, since a classifier's labels are the caller's."""
    forms = Counter(unicodedata.normalize("NFC", each) for each in classes.tolist() if isinstance(each, str))
    if twice := [name for name, count in forms.items() if count > 1]:
        raise UsageError(
            f"The class '{twice[0]}' is given in two Unicode forms, which look the same: unify them with "
            'unicodedata.normalize("NFC", label).'
        )


def _kind(dtype: np.dtype) -> str:
    """Text, whole numbers, or others by NumPy's letter, among which a label keeps its type and value."""
    return {"U": "text", "O": "text", "i": "whole", "u": "whole"}.get(dtype.kind, dtype.kind)
