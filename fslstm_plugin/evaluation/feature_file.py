"""Features of any backbone, from a file, evaluated as those of a run are."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..data.base import Split
from ..errors import DataError, UsageError, naming_damage, printable
from ..methods import Method, parse_method
from ..runs import Run
from ..weights import load_tensors
from .ranks import ALONE, Ranks
from .runner import FeatureSource, indexed
from .session import Session, Tell, quiet

_NAMES = ("features", "labels", "base_mean")


@dataclass(eq=False)
class FeatureSession(Session):
    """Features with their labels; there are no images and no trained methods.

    Args:
        features: Features ``(N, d)``, float32, on the device.
        split: Their classes; its images are empty.
        device: Where to compute.
        ranks: See `Session`.
        tell: See `Session`.
        base_mean: Mean feature ``(d,)`` of other classes. Default None: it is not known.
    """

    features: Tensor
    split: Split
    device: torch.device
    ranks: Ranks = ALONE
    tell: Tell = quiet
    base_mean: Tensor | None = None
    run: Run | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.split.dataset

    @property
    def backbone(self) -> str:
        """Where the features are from, as far as that is known."""
        return f"features of length {self.features.shape[1]}"

    @cached_property
    def method(self) -> Method:
        """LSSVM: the features were trained for nothing that is known."""
        return parse_method("lssvm")

    def methods(self, names: Iterable[str]) -> list[Method]:
        """Methods by name, each once, on the device.

        Raises:
            UsageError: If a name is wrong, or needs trained weights, images, or base classes.
        """
        methods = []
        for name in names:
            try:
                method = parse_method(name)
            except UsageError as error:
                if "has weights" not in str(error):
                    raise
                raise UsageError(
                    f"{name} has weights that are trained with a backbone, and there is no run here: choose a method "
                    "without any, or a run with --run in place of --features."
                ) from error
            if method.embeds or method.episode_statistics:
                raise UsageError(f"{name} needs images, and a file of features has none: choose another method.")
            if method.needs_base_mean and self.base_mean is None:
                raise UsageError(
                    f"{name} needs the mean feature of base classes: add 'base_mean' (d,) to {self.name}, or use "
                    "center=episode."
                )
            methods.append(method.to(self.device))
        return list({str(method): method for method in methods}.values())

    def source(self, methods: Sequence[Method]) -> FeatureSource:
        """The same features for every method."""
        return indexed(self.features, base_mean=self.base_mean)


def open_feature_file(
    file: Path, device: torch.device | str = "cpu", ranks: Ranks = ALONE, tell: Tell = quiet
) -> FeatureSession:
    """The features of a file.

    Args:
        file: NumPy's ``.npz`` or safetensors, with ``features`` ``(N, d)``, floating point, and ``labels`` ``(N,)``,
            whole numbers or, in ``.npz``, texts; and perhaps ``base_mean`` ``(d,)``, the mean feature of other classes,
            for methods that subtract it. Nothing in it is run.
        device: Where to compute; default the processor.
        ranks: See `Session`.
        tell: See `Session`.

    Raises:
        DataError: If it cannot be read, is of another form, or has features that are no finite numbers.

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
    if mean is not None and (mean.shape != features.shape[1:] or mean.dtype.kind != "f" or not np.isfinite(mean).all()):
        raise DataError(f"base_mean in {file} must be {features.shape[1]} finite numbers, but is {_form(mean)}.")
    with np.errstate(over="ignore"):  # of float64, told in the next line
        points = torch.from_numpy(features.astype(np.float32))
    if not points.isfinite().all():
        raise DataError(f"Features in {file} are infinite, or not numbers, or too large for float32.")
    classes, places = np.unique(labels, return_inverse=True)
    order = np.argsort(places, kind="stable")  # images of one class together, as in every split
    split = Split(
        printable(file.name),
        "file",
        torch.zeros(len(points), 0, 0, 3, dtype=torch.uint8),
        torch.from_numpy(places[order]),
        tuple(printable(str(each)) for each in classes),
    )
    return FeatureSession(
        points[torch.from_numpy(order)].to(device),
        split,
        torch.device(device),
        ranks,
        tell,
        None if mean is None else torch.from_numpy(mean.astype(np.float32)).to(device),
    )


def _arrays(file: Path) -> dict[str, np.ndarray]:
    """What is read, by name."""
    if file.suffix == ".npy" or (file.suffix == ".npz" and not zipfile.is_zipfile(file)):
        raise DataError(
            f"{file} is no archive of arrays: write one with numpy.savez(FILE, features=..., labels=...), where the "
            "labels are numbers or texts."
        )
    if file.suffix == ".npz":
        with np.load(file, allow_pickle=False) as content:
            found = {name: content[name] for name in _NAMES if name in content}
    else:
        found = {}
        for name, tensor in load_tensors(file).items():
            reduced = tensor.dtype == torch.bfloat16  # which NumPy does not know
            found[name] = (tensor.float() if reduced else tensor).numpy()
    if missing := {"features", "labels"} - set(found):
        raise DataError(f"{file} must hold 'features' and 'labels', but has no {' and no '.join(sorted(missing))}.")
    return found


def _form(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
