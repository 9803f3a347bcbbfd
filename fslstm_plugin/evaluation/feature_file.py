"""Features of any backbone, from a file, evaluated like those of a run."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch

from ..errors import DataError, RunError, naming_damage
from ..weights import load_tensors
from .feature_session import FeatureSession
from .ranks import ALONE, Ranks
from .session import Tell, quiet

_NAMES = ("features", "labels", "base_mean")


def open_feature_file(
    file: Path, device: torch.device | str = "cpu", ranks: Ranks = ALONE, tell: Tell = quiet
) -> FeatureSession:
    """The features of a file.

    Args:
        file: NumPy's ``.npz`` or safetensors, with ``features`` ``(N, d)``, floating point, and ``labels`` ``(N,)``,
            whole numbers or, in ``.npz``, texts; and perhaps ``base_mean`` ``(d,)``, the mean feature of other classes,
            for methods that subtract it. Nothing in it is run.
        device: Where to compute; default the CPU.
        ranks: See `Session`.
        tell: See `Session`.

    Raises:
        DataError: If it cannot be read, has an unexpected format, or has features that are not finite numbers.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "toy.npz"
        >>> np.savez(file, features=np.eye(4), labels=["b", "a", "b", "a"])
        >>> session = open_feature_file(file)
        >>> session.split.class_names, session.split.labels, session.features[0]
        (('a', 'b'), tensor([0, 0, 1, 1]), tensor([0., 1., 0., 0.]))
    """
    if not file.is_file():
        raise DataError(f"There is no file of features at {file}.")
    with naming_damage(file):
        found = _arrays(file)
    features, labels, mean = found["features"], found["labels"], found.get("base_mean")
    if features.ndim != 2 or not features.size or features.dtype.kind != "f":
        raise DataError(f"The features in {file} must be floating point of shape (N, d), but are {_form(features)}.")
    if labels.shape != features.shape[:1] or labels.dtype.kind not in "iuU":
        raise DataError(
            f"The labels in {file} must be {len(features)} whole numbers or texts, one for each row of the features, "
            f"but are {_form(labels)}."
        )
    if mean is not None and (mean.shape != features.shape[1:] or mean.dtype.kind != "f"):
        raise DataError(f"base_mean in {file} must be {features.shape[1]} finite numbers, but is {_form(mean)}.")
    with np.errstate(over="ignore"):  # of float64, reported in the next lines
        points = torch.from_numpy(features.astype(np.float32))
        center = None if mean is None else torch.from_numpy(mean.astype(np.float32))
    if not points.isfinite().all():
        raise DataError(f"Features in {file} are infinite, or not numbers, or too large for float32.")
    if center is not None and not center.isfinite().all():
        raise DataError(f"Numbers of base_mean in {file} are infinite, or not numbers, or too large for float32.")
    return FeatureSession.of(
        file.name,
        "file",
        points,
        labels,
        f"features of length {features.shape[1]}",
        device,
        ranks,
        tell,
        center,
    )


def _arrays(file: Path) -> dict[str, np.ndarray]:
    """What is read, by name."""
    if file.suffix == ".npy" or (file.suffix == ".npz" and not zipfile.is_zipfile(file)):
        raise DataError(
            f"{file} is not an archive of arrays: write one with numpy.savez(FILE, features=..., labels=...), where "
            "the labels are numbers or texts."
        )
    if file.suffix == ".npz":
        with np.load(file, allow_pickle=False) as content:
            found = {name: content[name] for name in _NAMES if name in content}
    else:
        found = {}
        for name, tensor in _tensors(file).items():
            reduced = tensor.dtype == torch.bfloat16  # unknown to NumPy
            found[name] = (tensor.float() if reduced else tensor).numpy()
    if missing := {"features", "labels"} - set(found):
        raise DataError(f"{file} must hold 'features' and 'labels', but has no {' and no '.join(sorted(missing))}.")
    return found


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        return load_tensors(file)
    except RunError as error:
        if file.suffix == ".safetensors" or not file.is_file():
            raise
        raise DataError(
            f"{file} is no file of features: it must be an .npz or .safetensors file with 'features' and 'labels'."
        ) from error


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
