"""Checks of single values; each raises a `UsageError` that names the value and what was expected."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any

from .errors import UsageError

_MOST = 10**6  # Of iterations and the like.


def is_number(value: object) -> bool:
    """Whether a value is a real number; true and false are none.

    Example:
        >>> is_number(0.5), is_number(True)
        (True, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


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
    """The value, if it is a finite number within bounds.

    Args:
        name: Its name, as in Python.
        value: The value.
        above: What it must exceed. Default None: nothing.
        least: What it must not fall below. Default None: nothing.
        below: What it must fall below. Default None: nothing.
        most: What it must not exceed. Default None: nothing, and a million for whole numbers, so that their work ends.
        whole: Whether it must be a whole number. Default False.

    Raises:
        UsageError: If it is not.

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
    fits = (
        (isinstance(value, Integral) and not isinstance(value, bool) if whole else is_number(value))
        and abs(value) <= sys.float_info.max
        and (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    )
    if not fits:
        bounds = {"above": above, "of at least": least, "below": below, "at most": most}
        words = " and ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None)
        raise UsageError(f"`{name}` must be a {'whole' if whole else 'finite'} number {words}, but got {value}.")
    return int(value) if whole else value
