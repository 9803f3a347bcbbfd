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
    """The configuration shared by both kinds of training."""

    backbone: str  # Registered name.
    image_size: ImageSize  # Side of the images in pixels.
    # Stop after this many steps; the schedule is scaled to them. None for all epochs.
    max_steps: Annotated[int, Meta(ge=1, le=10**12)] | None
    seed: Seed  # Seed of every random choice.
    precision: Literal["32", "bf16"]  # Of the training.
    format: Literal[2] = 2  # Of the configuration.

    @property
    def kind(self) -> str:
        """``"pretrain"`` or ``"train"``."""
        return str(self.__struct_config__.tag)


class PretrainConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="pretrain"):
    """Configuration of a pretraining, on exactly one of three."""

    recipe: PretrainRecipe  # Epochs, batch size, schedule, augmentation.
    dataset: str | None = None  # Name of a benchmark, whose training classes are used.
    places: str | None = None  # Folder of Places365-standard.
    folder: str | None = None  # Folder of class folders.
    teacher: str | None = None  # Run folder of an earlier pretraining on the benchmark, whose answers are learned too.

    def __post_init__(self) -> None:
        if sum(bool(source) for source in (self.dataset, self.places, self.folder)) != 1:
            raise UsageError("A pretraining must name one of 'dataset', 'places' and 'folder'.")
        if self.teacher is not None and self.dataset is None:
            raise UsageError("A `teacher` is for a benchmark: leave it out, or name a `dataset`.")


class TrainConfig(_Config, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="train"):
    """Configuration of a meta-training."""

    dataset: str  # Name of the data set.
    algorithm: str  # Name of the method, see `parse_method`.
    recipe: MetaRecipe  # Episodes, rates, schedule, augmentation.
    validation: Validation  # How the best weights are chosen.
    pretrained: str | None = None  # Run folder or weights file that the backbone starts from.


Config = PretrainConfig | TrainConfig
