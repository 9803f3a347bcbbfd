"""Checks of a user's input to a head or a transductive module; internal code does not repeat them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import require, require_integers
from ..errors import UsageError, count_of
from ..tracing import values_known


def check_support(support: Tensor, labels: Tensor, ways: int | None = None) -> tuple[Tensor, int]:
    """Check a labelled support set, values only where they can be read (see `values_known`).

    Args:
        support: Features ``(..., n, d)``.
        labels: Integers in [0, ways), ``(..., n)`` or one ``(n,)`` for all episodes.
        ways: Number of classes; default the greatest label + 1.

    Returns:
        The labels as int64 of shape ``(..., n)``, and the number of classes.

    Example:
        >>> check_support(torch.zeros(2, 3, 8), torch.tensor([1, 0, 1]))
        (tensor([[1, 0, 1],
                [1, 0, 1]]), 2)
    """
    _check_features("support", support)
    require_tensor("The labels", labels)
    require_integers(labels)
    points = support.shape[:-1]
    if labels.shape not in (points, points[-1:]):
        shapes = " or ".join(dict.fromkeys((_shape(points), _shape(points[-1:]))))  # one episode has one shape
        raise UsageError(
            f"Expected one label for each support point, {shapes} for support {_shape(support.shape)}, but got labels "
            f"{_shape(labels.shape)}."
        )
    _check_device(support, "labels", labels)
    labels = labels.long().expand(points)
    if labels.numel() == 0:
        raise UsageError(f"The support set is empty: support {_shape(support.shape)}.")
    if ways is None:
        if not values_known():
            raise UsageError("Give ways: under vmap, compile and export the labels cannot be read to count them.")
        ways = int(labels.max()) + 1
    elif values_known():
        ways = require("ways", ways, least=2, whole=True)
    if ways < 2:
        raise UsageError(f"A classifier needs at least 2 ways, but got {ways}.")
    if values_known():
        _check_labels(labels, ways)
    return labels, ways


def check_query(support: Tensor, query: Tensor) -> None:
    """Check that queries ``(..., m, d)`` belong to the same episodes as the support ``(..., n, d)``."""
    _check_features("query", query)
    if query.shape[:-2] != support.shape[:-2] or query.shape[-1] != support.shape[-1]:
        raise UsageError(
            "Support and query must have the same leading dimensions and the same number of features, "
            f"but got support {_shape(support.shape)} and query {_shape(query.shape)}."
        )
    _check_device(support, "query", query)


def require_tensor(what: str, value: Tensor) -> None:
    """Refuse what is no tensor, such as a list or an array, or one whose numbers do not lie there one by one."""
    if not isinstance(value, Tensor):
        raise UsageError(f"{what} must be a torch.Tensor, but got a {type(value).__name__}: use torch.as_tensor.")
    if value.is_nested:
        raise UsageError(f"{what} must be a dense tensor, but got a nested one: use torch.nested.to_padded_tensor.")
    if value.layout != torch.strided:
        raise UsageError(f"{what} must be a dense tensor, but got one of layout {value.layout}: use to_dense().")
    if value.is_meta and values_known():
        raise UsageError(f"{what} must hold values, but got a tensor on the device meta: make it on the CPU or a GPU.")


def _check_device(support: Tensor, what: str, other: Tensor) -> None:
    if other.device != support.device:
        raise UsageError(
            f"Support and {what} must be on one device, but got support on {support.device} and {what} on "
            f"{other.device}."
        )


def _check_features(what: str, features: Tensor) -> None:
    require_tensor(f"The {what} features", features)
    if not features.is_floating_point() or features.dtype.itemsize < 2 or features.dim() < 2:
        raise UsageError(
            f"The {what} features must be a floating-point tensor (..., points, features) of 16 bits or more, "
            f"but got {features.dtype} {_shape(features.shape)}."
        )
    if features.shape[-1] == 0:
        raise UsageError(f"The {what} set has no features: its shape is {_shape(features.shape)}.")
    if not values_known():
        return
    dtype = torch.promote_types(features.dtype, torch.float32)  # of what methods compute with the features themselves
    precision, size = torch.finfo(dtype), torch.linalg.vector_norm(features, dtype=dtype)
    if size.isfinite():
        least = (precision.tiny / precision.eps) ** 0.5  # whose products have all their digits
        if what == "support" and size < least and features.any():
            raise UsageError("The support features are so small that their products vanish: scale them up.")
        return
    bad = features.numel() - int(features.isfinite().sum())
    if bad:
        raise UsageError(
            f"The {what} features hold {count_of(bad, 'NaN or infinite value')} out of {features.numel()}; "
            "check the images and the backbone."
        )
    raise UsageError(f"The {what} features are so large that their products overflow: scale them down.")


def _check_labels(labels: Tensor, ways: int) -> None:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= ways:
        raise UsageError(f"Labels must lie in [0, {ways}) for {ways} ways, but got {low if low < 0 else high}.")
    first = min(ways, labels.shape[-1] + 1)  # of more classes than points one of these is absent, whatever the ways
    absent = ~(labels.unsqueeze(-1) == torch.arange(first, device=labels.device)).any(-2)
    if absent.any():
        *episode, missing = absent.nonzero()[0].tolist()
        where = f" in episode {tuple(episode)}" if episode else ""
        raise UsageError(f"Each of the {ways} classes needs a support point, but class {missing} has none{where}.")


def _shape(shape: torch.Size) -> str:
    return str(tuple(shape))
