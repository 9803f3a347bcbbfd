"""Checks of single values; each raises a `UsageError` that names the value and what was expected."""

from __future__ import annotations

import sys
from collections.abc import Collection
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from .errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 10**6  # Of iterations and the like.


def one_of(kind: str, value: Any, known: Collection[str]) -> Any:
    """The value, if it is one of the words that are known."""
    if not isinstance(value, str) or value not in known:
        raise UnknownNameError(kind, value, known)
    return value


def is_number(value: object) -> bool:
    """Whether a value is a real number; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def require_kind(name: str, value: object, kind: type) -> None:
    """Refuse a value of another kind.

    Example:
        >>> require_kind("dim", "8", int)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `dim` must be an object of type int, but got '8'.
    """
    if not isinstance(value, kind):
        raise UsageError(f"`{name}` must be an object of type {kind.__name__}, but got {value!r}.")


def require_bool(name: str, value: object) -> bool:
    """The value, if it is true or false, NumPy's included: words and numbers would all count as one of them.

    Example:
        >>> require_bool("scale", "false")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `scale` must be true or false, but got 'false'.
    """
    import numpy as np  # not above: no --help needs it

    if not isinstance(value, (bool, np.bool_)):
        raise UsageError(f"`{name}` must be true or false, but got {value!r}.")
    return bool(value)


def require_integers(labels: Tensor) -> None:
    """Refuse labels of classes that are no integers.

    Example:
        >>> import torch
        >>> require_integers(torch.tensor([0.5, 1.0]))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: Labels must be integers such as torch.int64, but got torch.float32.
    """
    import torch  # not above: no --help needs it

    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise UsageError(f"Labels must be integers such as torch.int64, but got {labels.dtype}.")


def require_unmasked(what: str, values: object) -> None:
    """Refuse an array of NumPy's, or a list of them, with masked values, whose mask PyTorch does not know.

    Example:
        >>> import numpy as np
        >>> require_unmasked("`labels`", np.ma.masked_equal([0, 1], 1))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `labels` must have no masked values, but has 1: leave out their points, or fill
        the values.
    """
    import numpy as np  # not above: no --help needs it

    parts = values if isinstance(values, (list, tuple)) else [values]
    if count := sum(int(np.ma.count_masked(part)) for part in parts if np.ma.isMaskedArray(part)):
        raise UsageError(
            f"{what} must have no masked values, but has {count:,}: leave out their points, or fill the values."
        )


def require(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> Any:
    """The value, if it is a finite number, or a whole one, within the bounds that are given.

    A whole number is at most a million where nothing else is said, so that its work ends.

    Raises:
        UsageError: If it is not; the name is as in Python.

    Example:
        >>> require("ridge", 0.5, above=0)
        0.5
        >>> require("iterations", 2.5, least=0, whole=True)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `iterations` must be a whole number of at least 0 and at most 1,000,000, but
        got 2.5.
    """
    most = _MOST if whole and most is None else most
    if is_number(value) and hasattr(value, "item"):  # NumPy's short ones cannot be compared with great ones
        value = value.item()
    fits = (
        is_number(value)
        and (isinstance(value, Integral) or not whole)
        and abs(value) <= sys.float_info.max
        and (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    )
    if not fits:
        bounds = {"above": above, "of at least": least, "below": below, "at most": most}
        words = " and ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None)
        raise UsageError(f"`{name}` must be a {'whole' if whole else 'finite'} number {words}, but got {value!r}.")
    return value
