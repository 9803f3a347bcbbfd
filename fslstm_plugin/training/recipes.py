"""The recipes of pretraining: the published one, and a short one for the base classes of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.images import Augmentation
from ..errors import UsageError, require_not_negative, require_positive


@dataclass(frozen=True)
class PretrainRecipe:
    """Classification of a data set's training classes.

    Args:
        epochs: Passes over the images.
        batch_size: Images a step.
        lr: Highest learning rate.
        schedule: ``"steps"`` divides the rate by 10 after each third; ``"one-cycle"`` rises, then anneals to zero.
        weight_decay: Of all parameters.
        momentum: Of stochastic gradient descent.
        nesterov: Whether the momentum is Nesterov's.
        augmentation: Random changes of the images of a benchmark; folders of images get a random resized crop.
    """

    epochs: int
    batch_size: int
    lr: float
    schedule: str
    weight_decay: float
    momentum: float = 0.9
    nesterov: bool = False
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        require_positive(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)
        require_not_negative(weight_decay=self.weight_decay, momentum=self.momentum)
        if self.schedule not in ("steps", "one-cycle"):
            raise UsageError(f"The schedule must be 'steps' or 'one-cycle', but got '{self.schedule}'.")

    def steps_per_epoch(self, images: int) -> int:
        """Whole batches in so many images.

        Raises:
            UsageError: If there is not even one.
        """
        if images < self.batch_size:
            raise UsageError(f"There are {images} images, fewer than one batch of {self.batch_size}.")
        return images // self.batch_size


def folder_pretraining() -> PretrainRecipe:
    """The published pretraining on Places365: 90 epochs, divided by 10 every 30."""
    return PretrainRecipe(epochs=90, batch_size=256, lr=0.1, schedule="steps", weight_decay=1e-4)


def base_class_pretraining(image_size: int) -> PretrainRecipe:
    """A short pretraining on the base classes of a benchmark, ours: 12 epochs, one cycle, crop and flip."""
    padding = Augmentation.published(image_size).padding
    return PretrainRecipe(
        epochs=12,
        batch_size=128,
        lr=0.1,
        schedule="one-cycle",
        weight_decay=5e-4,
        nesterov=True,
        augmentation=Augmentation(padding, jitter=0.0),
    )
