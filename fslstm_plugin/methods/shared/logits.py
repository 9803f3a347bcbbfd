"""What the logits of a method must be."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...errors import UsageError
from ...features import EpisodeFeatures


def require_logits(method: object, logits: Any, features: EpisodeFeatures) -> Tensor:
    """The logits that a method gave for these features, if they are floating-point numbers ``(..., m, ways)``."""
    expected = (*features.targets.shape[:-2], features.num_query, features.ways)
    if isinstance(logits, Tensor) and logits.is_floating_point() and logits.shape == expected:
        return logits
    found = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    raise UsageError(
        f"{method} must give floating-point logits {expected}, but gave {found}: see `fslstm_plugin.check_method`."
    )


def logits_beside_others(method: Any, features: EpisodeFeatures) -> Tensor:
    """The logits of a method, as `require_logits` wants them, where other methods are given the same features.

    Raises:
        UsageError: If the method changes them in place.
    """
    is_changed = features.watched()
    logits = require_logits(method, method.logits(features), features)
    if is_changed():
        raise changed_in_place(method)
    return logits


def changed_in_place(method: object) -> UsageError:
    """What to say of a method that changes what others are given too."""
    return UsageError(f"{method} changes in place what it is given: see `fslstm_plugin.check_method`.")


def no_numbers(method: object) -> UsageError:
    """What to say of logits that are not below plus infinity, beyond which the greatest would be arbitrary."""
    return UsageError(f"{method} gives logits that are infinite or not numbers: its arguments are far out of scale.")
