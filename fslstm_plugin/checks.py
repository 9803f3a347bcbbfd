"""Checks of single values; each raises a `UsageError` that names the value and what was expected."""

from __future__ import annotations

import sys
from numbers import Integral, Real

from .errors import _MOST, UsageError


def is_number(value: object) -> bool:
    """Whether a value is a real number; true and false are none.

    Example:
        >>> is_number(0.5), is_number(True)
        (True, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def require_positive(**values: float) -> None:
    """Check named numbers.

    Raises:
        UsageError: Naming the first that is not above zero, or infinite.

    Example:
        >>> require_positive(batch_size=0)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `batch_size` must be positive and finite, but got 0.
    """
    for name, value in values.items():
        if not is_number(value) or not 0 < value <= sys.float_info.max:
            raise UsageError(f"`{name}` must be positive and finite, but got {value}.")


def require_not_negative(**values: float) -> None:
    """Check named numbers.

    Raises:
        UsageError: Naming the first that is below zero, or infinite.

    Example:
        >>> require_not_negative(weight_decay=float("inf"))
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `weight_decay` must be 0 or more and finite, but got inf.
    """
    for name, value in values.items():
        if not is_number(value) or not 0 <= value <= sys.float_info.max:
            raise UsageError(f"`{name}` must be 0 or more and finite, but got {value}.")


def require_number(**values: float) -> None:
    """Check named values that have bounds of their own.

    Raises:
        UsageError: Naming the first that is no number.

    Example:
        >>> require_number(dropout="much")
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `dropout` must be a number, but got much.
    """
    for name, value in values.items():
        if not is_number(value):
            raise UsageError(f"`{name}` must be a number, but got {value}.")


def require_whole(name: str, value: int, least: int = 0, most: int = _MOST) -> int:
    """The value, if it is a whole number, not too small, and not too large, by default for its work ever to end.

    Raises:
        UsageError: If it is not.

    Example:
        >>> require_whole("iterations", 2.5)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `iterations` must be a whole number of at least 0, but got 2.5.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UsageError(f"`{name}` must be a whole number of at least {least}, but got {value}.")
    if value > most:
        raise UsageError(f"`{name}` can be at most {most:,}, but got {value}.")
    return int(value)


def require_below_one(**values: float) -> None:
    """Check named numbers, such as probabilities of dropout.

    Raises:
        UsageError: Naming the first that is below 0, or 1 or more.

    Example:
        >>> require_below_one(attention_dropout=1)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `attention_dropout` must lie in [0, 1), but got 1.
    """
    for name, value in values.items():
        if not is_number(value) or not 0 <= value < 1:
            raise UsageError(f"`{name}` must lie in [0, 1), but got {value}.")


def require_share(**values: float) -> None:
    """Check named numbers.

    Raises:
        UsageError: Naming the first that is not above 0, or above 1.

    Example:
        >>> require_share(step=2)
        Traceback (most recent call last):
        ...
        fslstm_plugin.errors.UsageError: `step` must be above 0 and at most 1, but got 2.
    """
    for name, value in values.items():
        if not is_number(value) or not 0 < value <= 1:
            raise UsageError(f"`{name}` must be above 0 and at most 1, but got {value}.")
