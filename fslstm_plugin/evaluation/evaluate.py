"""Evaluation from Python: methods on given features, as on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import require_unmasked
from ..errors import UsageError
from ..features import is_mean
from ..gram import require_resolved
from ..methods.base import Method
from .feature_session import FeatureSession
from .ranks import ALONE
from .rows import Row
from .session import measure_together
from .setting import Setting


def evaluate(
    features: Any,
    labels: Any,
    methods: Sequence[str | Method],
    *,
    ways: int = 5,
    shots: int | Sequence[int] = 1,
    queries: int = 15,
    episodes: int = 1000,
    seed: int = 0,
    query_balance: str = "uniform",
    interval: str = "episodes",
    base_mean: Any = None,
    device: torch.device | str = "cpu",
) -> list[Row]:
    """Accuracy of methods on the same episodes of features, with 95 % intervals and paired differences.

    Args:
        features: Features ``(N, d)`` of any backbone, a tensor or an array, floating point.
        labels: Their labels ``(N,)``, of any type that can be sorted.
        methods: Names that `parse_method` reads, or methods.
        ways: Classes per episode. Default 5.
        shots: Support points per class, or several as a list, range, array or tensor, each measured in turn. Default 1.
        queries: Query points per class. Default 15.
        episodes: Number of episodes. Default 1000.
        seed: Seed of the episodes. Default 0.
        query_balance: ``"uniform"`` (default), or ``"dirichlet:A"`` with a number A.
        interval: Sampling unit of the intervals: ``"episodes"`` (default) or ``"classes"``.
        base_mean: Mean feature ``(d,)`` of other classes, or of each of them ``(classes, d)``, for methods that need
            it. Default None.
        device: Where to compute. Default the CPU.

    Returns:
        A row for each number of shots and each method, each once: ``row.method``, ``row.accuracy`` and ``row.ci95`` in
        percent, and more, see `Row`.

    Raises:
        UsageError: If an argument is wrong, a method needs images or weights that are trained with a backbone, or two
            methods with weights have one name.

    Example:
        >>> labels = torch.arange(200) % 10
        >>> features = torch.eye(10)[labels] + 0.3 * torch.randn(200, 10)
        >>> rows = evaluate(features, labels, ["nn", "lssvm+psm"], shots=1, episodes=50)
        >>> [row.method for row in rows], rows[0].accuracy > 50
        (['nn', 'lssvm+psm'], True)
    """
    for name, values in (("features", features), ("labels", labels), ("base_mean", base_mean)):
        require_unmasked(f"`{name}`", values)
    points = _finite("features", features)
    if points.ndim != 2 or not points.numel():
        raise UsageError(f"The features must be of shape (N, d), but are of shape {tuple(points.shape)}.")
    classes = _labels(labels, len(points))
    mean = None if base_mean is None else _finite("base_mean", base_mean)
    if mean is not None and not is_mean(mean.shape, points.shape[1]):
        raise UsageError(
            f"base_mean must be of shape ({points.shape[1]},) or (classes, {points.shape[1]}), but is of shape "
            f"{tuple(mean.shape)}."
        )
    if not isinstance(methods, (list, tuple)) or not methods or not all(isinstance(e, (str, Method)) for e in methods):
        raise UsageError(f"methods must be a list of names or methods, such as ['nn', 'tim'], but got {methods!r}.")
    further = queries, episodes, seed, query_balance, interval
    settings = list(dict.fromkeys(Setting(ways, number, *further) for number in _numbers_of(shots)))
    made_by, where = f"features of length {points.shape[1]}", ALONE.device(str(device))
    session = FeatureSession.of("features", "given", points, classes, made_by, where, base_mean=mean)
    for setting in settings:  # before anything is computed
        setting.check(session.split)
    parts = [(session, session.methods(methods))]
    return [row for setting in settings for row in measure_together(parts, setting, tables=len(settings))]


def _numbers_of(shots: Any) -> Sequence[Any]:
    """Each of the numbers of shots, of which there must be one."""
    numbers = shots.tolist() if isinstance(shots, (np.ndarray, Tensor)) else shots
    numbers = numbers if isinstance(numbers, (list, tuple, range)) else [numbers]
    if not numbers:
        raise UsageError("`shots` must be a whole number or several, such as 5 or [1, 5], but got none.")
    return numbers


def _finite(name: str, values: Any) -> Tensor:
    """Numbers in single precision, which must not lose what tells them apart."""
    try:
        given = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, dtype=_native(values)))
        found = given.detach().to_dense()
        single = found.float()
        finite = bool(torch.linalg.vector_norm(single, dim=-1).isfinite().all())
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"`{name}` must be an array of floating-point numbers.") from error
    if not found.is_floating_point():
        raise UsageError(f"`{name}` must be floating point, but got {found.dtype}.")
    if not finite:
        raise UsageError(f"`{name}` must be finite, but has infinite values, or NaN, or some too large for float32.")
    if found.dtype == torch.float64 and found.ndim == 2:
        require_resolved(found, torch.finfo(torch.float32).eps ** 2)
    return single


def _native(values: Any) -> np.dtype:
    """The type of an array in this machine's order of bytes; PyTorch has no longer floats than double ones."""
    kind = np.asarray(values).dtype
    return np.dtype(np.float64) if kind == np.longdouble else kind.newbyteorder("=")


def _labels(labels: Any, count: int) -> np.ndarray:
    """So many labels that can be sorted, none of them missing."""
    try:
        classes = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError("`labels` must be one array of labels, one for each feature.") from error
    if classes.shape != (count,):
        raise UsageError(f"There must be {count} labels, one for each feature, but got {classes.shape}.")
    try:
        missing = bool((classes != classes).any())  # Only what is not a number differs from itself.
        np.unique(classes)
    except TypeError as error:
        raise UsageError("The labels must be of one type that can be sorted.") from error
    if missing:
        raise UsageError("Some labels are not a number (NaN): leave their features out.")
    return classes
