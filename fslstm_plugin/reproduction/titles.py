"""Names of models and places as a reader knows them: "CIFAR-FS, ResNet12", not names of folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..registry import BACKBONES
from ..reporting.captions import dataset_title
from ..reporting.figures.support import Task
from ..reporting.words import display_name
from .measurements import Measurement
from .specification import PRETRAINING

OfModel: TypeAlias = "Measurement | Task"  # What was measured on a trained model.


def place(dataset: str, backbone: str) -> str:
    """A data set and a backbone.

    Example:
        >>> place("cifar-fs", "resnet12"), place("my-birds", "my-net")
        ('CIFAR-FS, ResNet12', 'my-birds, my-net')
    """
    name = getattr(BACKBONES.get(backbone), "__name__", backbone) if backbone in BACKBONES.names() else backbone
    return f"{dataset_title(dataset)}, {name}"


def model_titles(measured: Sequence[OfModel]) -> list[str]:
    """For each its model: the place, and as much more as tells the models apart.

    The training's algorithm is added where the models of a place differ in it, then the seed, the run's name, and the
    training in words.
    """
    titles = [place(each.dataset, each.backbone) for each in measured]
    further: tuple[Callable[[OfModel], str], ...] = (
        lambda each: "pretrained" if each.algorithm == PRETRAINING else display_name(each.algorithm),
        lambda each: f"seed {seed}" if (seed := getattr(each, "seed", None)) is not None else "",
        lambda each: each.run,
        lambda each: each.training,
    )
    for words in further:
        found: dict[str, set[str]] = {}
        for title, each in zip(titles, measured, strict=True):
            found.setdefault(title, set()).add(words(each))
        titles = [
            f"{title}, {words(each)}" if len(found[title]) > 1 else title
            for title, each in zip(titles, measured, strict=True)
        ]
    return titles
