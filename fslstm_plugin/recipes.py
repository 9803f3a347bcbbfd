"""How things are trained, as plain data with bounds: the published recipes, and what data sets and backbones add."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import isclose
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .errors import UsageError, count_of
from .storage.plain import from_plain, to_plain

Count = Annotated[int, Meta(ge=1, le=10**9)]
Rate = Annotated[float, Meta(gt=0, le=1e30)]
Amount = Annotated[float, Meta(ge=0, le=1e6)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]

SMALLEST_SIDE = 16  # In pixels: the backbones halve an image four times.


class Augmentation(Struct, frozen=True, forbid_unknown_fields=True):
    """Random crop with zero padding, colour jitter and horizontal flip, drawn for each image alone.

    The crop has the old size. Brightness, contrast and saturation are each scaled by a factor from [1 - jitter, 1 +
    jitter], in this order.

    Source: paper, supplementary material, "Training scheme".
    """

    padding: Annotated[int, Meta(ge=0, le=1024, description="Pixels of padding before the random crop.")]
    jitter: Annotated[float, Meta(ge=0, le=1, description="Strength of the colour jitter.")] = 0.4
    flip: Annotated[float, Meta(ge=0, le=1, description="Probability of a flip.")] = 0.5

    def __post_init__(self) -> None:
        if self.padding < 0 or not 0 <= self.jitter <= 1 or not 0 <= self.flip <= 1:
            raise UsageError(f"Padding must be >= 0, jitter and flip in [0, 1], but got {self}.")

    def require_fit(self, image_size: int) -> None:
        """Refuse a crop that may lie beside the image altogether.

        Raises:
            UsageError: If the padding is not less than the image's side in pixels.
        """
        if self.padding >= image_size:
            raise UsageError(f"`padding` must be less than the images' {image_size} pixels, but got {self.padding}.")

    @classmethod
    def published(cls, image_size: int) -> Augmentation:
        """The paper's setting: padding 4 at 32 pixels, 8 at 84."""
        return cls(padding=4 if image_size <= 32 else 8)


class BackboneRecipe(Struct, frozen=True, kw_only=True):
    """What meta-training must know of a backbone that starts from pretrained weights.

    A backbone names its own in a class attribute ``recipe``; one without it gets no other's rates.

    Args:
        lr: Initial learning rate of the backbone.
        method_lr: Initial learning rate of the method's weights, such as the Inverse Attention Module's.
        on_gpu: Values in place of those of the pretraining that is meant for a GPU, by field. Default none.
    """

    lr: float
    method_lr: float
    on_gpu: Mapping[str, Any] = MappingProxyType({})


class DatasetRecipe(Struct, frozen=True, kw_only=True):
    """What meta-training must know of a data set.

    Args:
        many_shots: Support images per class in training for tests of 5 and more shots; 5 for fewer.
        iam_reduction: Reduction ratio of the Inverse Attention Module.
    """

    many_shots: int = 5
    iam_reduction: int = 8


class MetaRecipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Meta-training of a backbone with a method."""

    augmentation: Augmentation
    lr: Annotated[Rate, Meta(description="Initial learning rate of the backbone.")]
    method_lr: Annotated[Rate, Meta(description="Initial learning rate of the method's weights (IAM's, for example).")]
    scale_lr: Annotated[Rate, Meta(description="Initial learning rate of the logit scale.")] = 0.1
    epochs: Annotated[Count, Meta(description="Number of epochs.")] = 60
    steps_per_epoch: Annotated[Count, Meta(description="Optimiser steps per epoch.")] = 1000
    episodes_per_step: Annotated[
        int, Meta(ge=1, le=10_000, description="Episodes per optimiser step, over all devices.")
    ] = 8
    ways: Annotated[int, Meta(ge=2, le=10_000, description="Classes per episode.")] = 5
    shots: Annotated[int, Meta(ge=1, le=10_000, description="Support images per class.")] = 5
    queries: Annotated[int, Meta(ge=1, le=10_000, description="Query images per class.")] = 6
    optimizer: Annotated[Literal["sgd", "adam"], Meta(description="Gradient descent with momentum, or Adam.")] = "sgd"
    momentum: Annotated[BelowOne, Meta(description="Nesterov momentum; 0 for none.")] = 0.9
    weight_decay: Annotated[Amount, Meta(description="Weight decay of all parameters.")] = 5e-4
    clip_norm: Annotated[
        Amount, Meta(description="Gradient norm to clip at, for backbone and method separately; 0 for none.")
    ] = 0.0
    frozen_backbone: Annotated[bool, Meta(description="Leave the backbone as it is, in evaluation mode.")] = False
    dropout: Annotated[float, Meta(ge=0, le=1, description="Factor on the backbone's own dropout rates.")] = 1.0
    schedule: Annotated[
        Literal["steps", "linear"], Meta(description="steps: by the milestones; linear: falls to zero.")
    ] = "steps"
    label_smoothing: Annotated[BelowOne, Meta(description="Probability mass spread over all classes.")] = 0.1
    milestones: Annotated[
        tuple[Annotated[float, Meta(ge=0, le=1)], ...],
        Meta(description="Fraction of the training after which the rates fall; repeat it, with a --factor for each."),
    ] = (20 / 60, 40 / 60, 50 / 60)
    factors: Annotated[tuple[Amount, ...], Meta(description="Factor on the initial rates after each milestone.")] = (
        0.06,
        0.012,
        0.0024,
    )

    def __post_init__(self) -> None:
        if len(self.milestones) != len(self.factors) or list(self.milestones) != sorted(self.milestones):
            raise UsageError(
                f"`milestones` must ascend, with as many `factors`, but got {self.milestones} and {self.factors}."
            )

    @property
    def idle(self) -> dict[str, str]:
        """Fields that do nothing, each with the value that makes it so."""
        without = {
            "optimizer=adam": ("momentum",) if self.optimizer == "adam" else (),
            "schedule=linear": ("milestones", "factors") if self.schedule == "linear" else (),
            "frozen_backbone=True": ("dropout",) if self.frozen_backbone else (),
        }
        return {name: why for why, names in without.items() for name in names}

    def factor(self, progress: float) -> float:
        """Multiplier of the learning rates after a share ``progress`` of the training.

        Example:
            >>> recipe = MetaRecipe(augmentation=Augmentation.published(32), lr=0.1, method_lr=0.1)
            >>> [recipe.factor(epoch / 60) for epoch in (0, 19, 20, 40, 50)]
            [1.0, 1.0, 0.06, 0.012, 0.0024]
        """
        if self.schedule == "linear":
            return 1.0 - progress
        passed = sum(progress >= milestone for milestone in self.milestones)
        return 1.0 if passed == 0 else self.factors[passed - 1]


class PretrainRecipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Classification of a data set's training classes, or of a folder of images.

    Images may be smaller at first, which is cheaper by the square; the number of steps stays the same. The first blocks
    may stop learning earlier, which leaves out their gradients. Dropout may be weaker than the backbone's own, which is
    meant for longer trainings.

    Source: one cycle, Smith and Topin 2017; smaller images first with less regularisation, Tan and Le 2021
    ("EfficientNetV2", progressive learning); freezing from the first block on, Brock et al. 2017 ("FreezeOut"); label
    smoothing, Szegedy et al. 2016.
    """

    epochs: Annotated[Count, Meta(description="Passes over the images.")]
    batch_size: Annotated[int, Meta(ge=2, le=10**6, description="Images per step.")]
    lr: Annotated[Rate, Meta(description="Highest learning rate.")]
    schedule: Annotated[
        Literal["one-cycle", "steps"],
        Meta(description="one-cycle: rises, then anneals to zero; steps: divided by 10 after each third."),
    ]
    weight_decay: Annotated[Amount, Meta(description="Weight decay of all parameters.")]
    momentum: Annotated[BelowOne, Meta(description="Momentum of gradient descent.")] = 0.9
    nesterov: Annotated[bool, Meta(description="Nesterov's form of the momentum.")] = False
    label_smoothing: Annotated[BelowOne, Meta(description="Probability mass spread over all classes.")] = 0.0
    dropout: Annotated[float, Meta(ge=0, le=1, description="Factor on the backbone's own dropout rates.")] = 1.0
    sizes: Annotated[
        tuple[PositiveShare, ...],
        Meta(description="Side of the images as a fraction of full size; repeat it, with a --share for each."),
    ] = (1.0,)
    shares: Annotated[
        tuple[PositiveShare, ...], Meta(description="Fraction of the training at each --size; they sum to 1.")
    ] = (1.0,)
    freeze: Annotated[
        tuple[BelowOne, ...],
        Meta(description="Fraction of the training after which the first block is frozen; repeat it for the next."),
    ] = ()
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.shares) or not isclose(sum(self.shares), 1, abs_tol=1e-6):
            raise UsageError(
                "`sizes` and `shares` must be equally many, and the shares must sum to 1, but got sizes "
                f"{self.sizes} and shares {self.shares}."
            )
        if list(self.freeze) != sorted(self.freeze):
            raise UsageError(
                f"`freeze` must ascend, since no block is frozen before the one below it, but got {self.freeze}."
            )

    @property
    def idle(self) -> dict[str, str]:
        """See `MetaRecipe.idle`."""
        return {"nesterov": "momentum=0"} if self.nesterov and not self.momentum else {}

    def sides(self, full: int) -> tuple[int, ...]:
        """The sizes in pixels, of images whose whole side is ``full``; none below 16."""
        return tuple(min(full, max(SMALLEST_SIDE, round(size * full))) for size in self.sizes)

    def side(self, full: int, progress: float) -> int:
        """Side of the images in pixels after a share ``progress`` of the training.

        Example:
            >>> recipe = base_class_pretraining(84)
            >>> recipe.sizes, recipe.shares
            ((0.5, 0.75, 1.0), (0.35, 0.3, 0.35))
            >>> [recipe.side(84, progress) for progress in (0, 0.34, 0.35, 0.65, 1)]
            [42, 42, 63, 84, 84]
        """
        return self.sides(full)[sum(progress >= end for end in accumulate(self.shares[:-1]))]

    @property
    def arithmetic(self) -> float:
        """Cost of the training, as a share of one at full size: the mean of the squared sizes.

        Example:
            >>> round(base_class_pretraining(32).arithmetic, 2)
            0.61
        """
        return sum(share * size**2 for size, share in zip(self.sizes, self.shares, strict=True))

    def steps_per_epoch(self, images: int) -> int:
        """Number of whole batches in this many images.

        Raises:
            UsageError: If there is not even one.
        """
        if images < self.batch_size:
            raise UsageError(
                f"{count_of(images, 'image')} cannot fill a batch of {self.batch_size}: give a smaller `batch_size`."
            )
        return images // self.batch_size


def meta_training(
    dataset: Any, backbone: Any, pretrained: bool, test_shots: int = 5, given: Mapping[str, Any] | None = None
) -> MetaRecipe:
    """The paper's recipe for a data set, backbone and number of shots in testing.

    Args:
        dataset: The data set; its ``recipe`` and ``image_size`` are used.
        backbone: The backbone's class; its ``recipe`` is used.
        pretrained: Whether the backbone starts from pretrained weights; its rates are then lower.
        test_shots: Shots of the later tests, on which miniImageNet's training shots depend.
        given: Values in place of the recipe's, by field; those of the augmentation too. Default none.

    Raises:
        UsageError: If the rates for pretrained weights are neither given nor known, or a value is out of its range.

    Source: paper, supplementary material, "Training scheme".
    """
    known: BackboneRecipe | None = getattr(backbone, "recipe", None)
    rates = {"lr": 0.1, "method_lr": 0.1}
    if pretrained:
        rates = {} if known is None else {"lr": known.lr, "method_lr": known.method_lr}
    shots = dataset.recipe.many_shots if test_shots >= 5 else 5
    values = {"shots": shots, "augmentation": Augmentation.published(dataset.image_size), **rates}
    missing = sorted({"lr", "method_lr"} - values.keys() - (given or {}).keys())
    if missing:
        options = " and ".join(f"`{name}`" for name in missing)
        raise UsageError(
            f"The backbone {getattr(backbone, '__name__', backbone)} has no recipe for training from pretrained "
            f"weights: give {options}, or name a BackboneRecipe in its attribute 'recipe'."
        )
    return changed(MetaRecipe, values, given or {})


def folder_pretraining() -> PretrainRecipe:
    """The published pretraining on Places365: 90 epochs, divided by 10 every 30."""
    return PretrainRecipe(epochs=90, batch_size=256, lr=0.1, schedule="steps", weight_decay=1e-4)


def base_class_pretraining(image_size: int, any_size: bool = True) -> PretrainRecipe:
    """A short pretraining on the base classes of a benchmark, ours for a CPU: 16 epochs, smaller images first.

    Args:
        image_size: Side of the data set's images in pixels.
        any_size: Whether the backbone takes smaller images too.
    """
    return PretrainRecipe(
        epochs=16,
        batch_size=64,
        lr=0.1,
        schedule="one-cycle",
        weight_decay=1e-3,
        nesterov=True,
        label_smoothing=0.1,
        dropout=0.1,
        sizes=(0.5, 0.75, 1.0) if any_size else (1.0,),
        shares=(0.35, 0.3, 0.35) if any_size else (1.0,),
        augmentation=Augmentation(Augmentation.published(image_size).padding, jitter=0.0),
    )


def base_class_pretraining_on_gpu(image_size: int, any_size: bool = True, backbone: Any = None) -> PretrainRecipe:
    """The same for a GPU: large batches, and five times as many epochs or more, which need stronger regularisation.

    Args:
        image_size: Side of the data set's images in pixels.
        any_size: Whether the backbone takes smaller images too.
        backbone: The backbone's class, whose ``recipe`` may have values of its own. Default None.
    """
    known: BackboneRecipe | None = getattr(backbone, "recipe", None)
    values = {"epochs": 90, "batch_size": 512, "lr": 0.4, "weight_decay": 5e-4, "dropout": 1.0}
    own = {} if known is None else known.on_gpu
    return changed(PretrainRecipe, to_plain(base_class_pretraining(image_size, any_size)), {**values, **own})


def changed(kind: type[Struct], values: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A recipe with these values, some replaced by those given for it or its augmentation; bounds are checked.

    Raises:
        UsageError: If a value is out of its range, or there is no augmentation to change.
    """
    own = {name: value for name, value in given.items() if name in kind.__struct_fields__}
    augmentation = {name: value for name, value in given.items() if name not in own}
    merged = {**values, **own}
    if merged.get("augmentation") is not None:
        merged["augmentation"] = {**to_plain(merged["augmentation"]), **augmentation}
    elif augmentation:
        options = ", ".join(f"`{name}`" for name in augmentation)
        raise UsageError(f"{options} cannot be used here: a folder of images gets a random resized crop.")
    return from_plain(kind, merged)
