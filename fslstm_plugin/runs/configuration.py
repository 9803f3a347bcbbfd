"""The complete configuration of a training, as a run keeps it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ..errors import UsageError
from ..recipes import MetaRecipe, PretrainRecipe

Seed = Annotated[int, Meta(ge=0, lt=2**32)]
ImageSize = Annotated[int, Meta(ge=16, le=1024)]  # of a backbone; far more than any here takes


class Validation(Struct, frozen=True, forbid_unknown_fields=True):
    """Episodes of the validation classes on which the best weights are chosen."""

    episodes: Annotated[int, Meta(ge=2, le=10**7, description="Episodes after each epoch; 2000 if not given.")] = 2000
    ways: Annotated[int, Meta(ge=2, le=10_000, description="Classes per episode; 5 if not given.")] = 5
    shots: Annotated[int, Meta(ge=1, le=10_000, description="Support images per class; 5 if not given.")] = 5
    queries: Annotated[int, Meta(ge=1, le=10_000, description="Query images per class; 15 if not given.")] = 15


class _Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The configuration shared by both kinds of training.

    Args:
        backbone: Registered name.
        image_size: Side of the images in pixels.
        max_steps: Stop after this many steps; the schedule is scaled to them. None for all epochs.
        seed: Seed of every random choice.
        precision: Of the training.
        format: Of the configuration.
    """

    backbone: str
    image_size: ImageSize
    max_steps: Annotated[int, Meta(ge=1, le=10**12)] | None
    seed: Seed
    precision: Literal["32", "bf16"]
    format: Literal[2] = 2

    @property
    def kind(self) -> str:
        """``"pretrain"`` or ``"train"``."""
        return str(self.__struct_config__.tag)


class PretrainConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="pretrain"):
    """Configuration of a pretraining, on exactly one of three.

    Args:
        recipe: Epochs, batch size, schedule, augmentation.
        dataset: Name of a benchmark, whose training classes are used.
        places: Folder of Places365-standard.
        folder: Folder of class folders.
        teacher: Run folder of an earlier pretraining on the benchmark, whose answers are learned too.
    """

    recipe: PretrainRecipe
    dataset: str | None = None
    places: str | None = None
    folder: str | None = None
    teacher: str | None = None

    def __post_init__(self) -> None:
        if sum(bool(source) for source in (self.dataset, self.places, self.folder)) != 1:
            raise UsageError("A pretraining must name one of 'dataset', 'places' and 'folder'.")
        if self.teacher is not None and self.dataset is None:
            raise UsageError("A `teacher` is for a benchmark: leave it out, or name a `dataset`.")


class TrainConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="train"):
    """Configuration of a meta-training.

    Args:
        dataset: Name of the data set.
        algorithm: Name of the method, see `parse_method`.
        recipe: Episodes, rates, schedule, augmentation.
        validation: How the best weights are chosen.
        pretrained: Run folder or weights file that the backbone starts from.
    """

    dataset: str
    algorithm: str
    recipe: MetaRecipe
    validation: Validation
    pretrained: str | None = None


Config = PretrainConfig | TrainConfig
