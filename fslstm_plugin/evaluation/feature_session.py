"""Features without their images, evaluated like those of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.base import Split
from ..errors import UntrainedError, UsageError, printable
from ..methods.base import Method
from ..naming import has_weights, parse_method
from ..runs.folder import Run
from .ranks import ALONE, Ranks
from .session import Session, Tell, quiet
from .source import FeatureSource, indexed


@dataclass(eq=False)
class FeatureSession(Session):
    """Features with their labels; there are no images and no trained methods; see also `Session`."""

    features: Tensor  # Features ``(N, d)``, float32, on the device.
    split: Split
    backbone: str  # What made the features, as far as that is known.
    device: torch.device
    ranks: Ranks = ALONE
    tell: Tell = quiet
    # Mean feature ``(d,)`` of other classes, or of each of them ``(classes, d)``, float32. Default None: unknown.
    base_mean: Tensor | None = None
    notes: Sequence[str] = ()
    name: str = ""  # In tables. Default the name of the data.
    run: Run | None = None

    def __post_init__(self) -> None:
        self.name = self.name or self.split.dataset
        self.method = parse_method("lssvm")  # It is not known what the features were trained for.

    @classmethod
    def of(
        cls,
        name: str,
        kind: str,
        features: Tensor,
        labels: np.ndarray,
        backbone: str,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
        tell: Tell = quiet,
        base_mean: Tensor | None = None,
        notes: Sequence[str] = (),
    ) -> FeatureSession:
        """Features ``(N, d)`` in any order, with labels ``(N,)`` of any type that can be sorted.

        The name is that of the data, in tables; the kind, in place of a split's name, what the data are. The other
        arguments are the class's.

        Example:
            >>> session = FeatureSession.of("toy", "file", torch.eye(4), np.array(["b", "a", "b", "a"]), "none")
            >>> session.split.class_names, session.split.labels, session.features[0]
            (('a', 'b'), tensor([0, 0, 1, 1]), tensor([0., 1., 0., 0.]))
        """
        classes, places = np.unique(labels, return_inverse=True)
        order = np.argsort(places, kind="stable")  # images of one class together, as in every split
        split = Split(
            printable(name),
            kind,
            torch.zeros(len(features), 0, 0, 3, dtype=torch.uint8, device="cpu"),
            torch.from_numpy(places[order]),
            tuple(printable(str(each)) for each in classes),
        )
        mean = None if base_mean is None else base_mean.to(device)
        points = features[torch.from_numpy(order)].to(device)
        return cls(points, split, backbone, torch.device(device), ranks, tell, mean, notes)

    def methods(self, names: Iterable[str | Method]) -> list[Method]:
        """Methods by name, each once, on the device; or those that are there.

        Raises:
            UsageError: If a name is wrong, or needs trained weights, images, or base classes, or is that of two methods
                with weights.
        """
        methods: dict[str, Method] = {}
        for name in dict.fromkeys(names):
            try:
                method = parse_method(name) if isinstance(name, str) else deepcopy(name)  # The caller's own stays.
            except UntrainedError as error:
                raise UsageError(
                    f"{name} has weights that are trained with a backbone, and there are none with {self.name}: choose "
                    "a method without any, or evaluate a run with 'fslstm eval --run'."
                ) from error
            if method.embeds or method.episode_statistics:
                raise UsageError(f"{name} needs images, and there are none with {self.name}: choose another method.")
            if method.needs_base_classes and (self.base_mean is None or self.base_mean.ndim == 1):
                raise UsageError(
                    f"{name} needs the mean feature of each base class, and there is none with {self.name}: choose a "
                    "method without it; a file or an array of features can have them beside it, base_mean (classes, d)."
                )
            if method.needs_base_mean and self.base_mean is None:
                raise UsageError(
                    f"{name} needs the mean feature of base classes, and there is none with {self.name}: use "
                    "center=episode; a file or an array of features can have one beside it, base_mean (d,)."
                )
            if str(method) in methods and has_weights(method):
                raise UsageError(f"Two methods with weights are called {method}: evaluate each by itself.")
            methods[str(method)] = method.to(self.device)
        return list(methods.values())

    def source(self, methods: Sequence[Method]) -> FeatureSource:
        """The same features for every method."""
        return indexed(self.features, base_mean=self.base_mean)
