"""What "none of these" means, by the labelled pictures of each class; PyTorch is not imported."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..checks import require
from ..confidence.refusal import refused_share
from ..errors import UsageError
from .predictions import NONE

_USUAL, _LEAST = 0.95, 0.9  # Unless something else is asked for.
ROUNDING = 1e-9  # 1 less a share such as 0.95 is not exactly its complement.


def acceptance(counts: Sequence[int], asked: float | None = None) -> float:
    """The share of pictures of the classes that are accepted as such; 1 accepts all pictures.

    Unless one is asked for, it is 0.95, or the greatest of two digits that so few labelled pictures can tell; 1 where
    that would be below 0.9.

    Example:
        >>> acceptance([5] * 5), acceptance([5] * 2), acceptance([2] * 2)
        (0.95, 0.9, 1.0)
    """
    points = sum(count for count in counts if count > 1)
    greatest = points / (points + 1) + ROUNDING
    most = math.floor(100 * greatest) / 100
    if asked is None:
        return min(_USUAL, most) if most >= _LEAST else 1.0
    require("accept", asked, above=0, most=1)
    if greatest < asked < 1:
        enough = max(2, math.ceil(asked / (1 - asked) - ROUNDING))
        raise UsageError(
            f"To accept {100 * asked:g} % of the pictures of the classes needs {enough} labelled pictures in classes "
            f"with two or more, not {points}: label more, or accept "
            f"{f'{most:g} or less, or ' if points else ''}1, which accepts all."
        )
    return asked


def accepting(accepted: float, counts: Sequence[int], asked: float | None = None) -> list[str]:
    """What 'none of these' means, in sentences; see `acceptance`.

    Example:
        >>> accepting(0.95, [5] * 5)[1]
        "Expect this of about 4 % of the pictures of the classes, too: more of some classes, fewer of others, and ..."
    """
    if accepted == 1:
        enough = math.ceil(_LEAST / (1 - _LEAST) - ROUNDING)
        few = [f"That needs {enough} labelled pictures in classes with two or more, or --accept."]
        return [f'No picture is labelled "{NONE}".', *(few if asked is None else [])]
    refused, equally = (_rate(*refused_share(counts, 1 - accepted, equally=each)) for each in (False, True))
    shares = f"Expect this of {refused} of the pictures of the classes, too"
    if refused != equally:
        shares += (
            f", if they come in the proportions of the labelled ones, and of {equally} if all classes have equally many"
        )
    return [
        f'A picture is "{NONE}" if it is less similar to every class than {100 * accepted:g} % of the labelled '
        "pictures are to their own.",
        f"{shares}: more of some classes, fewer of others, and fewer of all where 'fslstm suggest' chose the labelled "
        "ones.",
    ]


def _rate(low: float, high: float) -> str:
    """Shares in percent: one number that is at most 2 from either end, or both ends."""
    low, high = 100 * low, 100 * high
    return f"about {(low + high) / 2:.0f} %" if high - low <= 4 else f"{low:.0f} to {high:.0f} %"
