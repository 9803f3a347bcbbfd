"""Methods with weights in the form of learn2learn's algorithms, each with its published recipe."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec.structs import replace
from torch import nn

from ..checks import require
from ..methods.base import Method
from ..naming import parse_method, trained_methods
from ..recipes import MetaRecipe
from .few_shot import _STANDARD, LightningFewShot, require_parts


class LightningTrained(LightningFewShot):
    """A method that is trained by a recipe of its own; see `LightningFewShot`.

    Args:
        features: Backbone, any module from images ``(batch, 3, H, W)`` to vectors ``(batch, d)``.
        loss: See `LightningFewShot`; for methods without a loss of their own.
        recipe: Optimiser and schedule; default the published ones.
        method: The method, or its name with arguments, such as ``"feat(temperature=32)"``; default the class's own.
        **options: See `LightningFewShot`; ``lr`` is put in place of the recipe's rates. Here ``lr`` and
            ``label_smoothing`` are None by default: the recipe's.

    Attributes:
        algorithm: Name of the method.
    """

    algorithm: ClassVar[str]
    lr: Any = None
    label_smoothing: Any = None

    def __init__(
        self,
        features: nn.Module,
        loss: Any = None,
        recipe: MetaRecipe | None = None,
        method: Method | str | None = None,
        **options: Any,
    ) -> None:
        require_parts(features, loss, recipe, method)
        names = ("lr", "label_smoothing", "feature_size")
        lr, label_smoothing, size = (options.get(name, getattr(self, name)) for name in names)
        if method is None or isinstance(method, str):
            size = getattr(features, "out_features", None) if size is None else size
            method = parse_method(method or self.algorithm, dim=size, backbone=features)
        if recipe is None:
            shots = require("test_shots", options.get("test_shots", self.test_shots), least=1, whole=True)
            recipe = method.recipe(_STANDARD, pretrained=False, test_shots=shots)
            if lr is not None:
                recipe = replace(recipe, lr=lr, method_lr=lr)
        options["lr"] = recipe.lr
        options["label_smoothing"] = recipe.label_smoothing if label_smoothing is None else label_smoothing
        super().__init__(features, loss, recipe, method, **options)


def algorithms() -> dict[str, type[LightningTrained]]:
    """A class for each registered method with weights, named after the method's: ``LightningTPN`` for `TPN`.

    Example:
        >>> sorted(algorithms())[:3]
        ['LightningDPGN', 'LightningFEAT', ...]
    """
    found = {}
    for name, kind in trained_methods().items():
        doc = f"{(kind.__doc__ or kind.__name__).strip().splitlines()[0]} See `LightningTrained`."
        members = {"algorithm": name, "__doc__": doc, "__module__": __package__}
        found[f"Lightning{kind.__name__}"] = type(f"Lightning{kind.__name__}", (LightningTrained,), members)
    return found
