"""The published recipe of meta-training, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.images import Augmentation
from ..errors import UsageError, require_not_negative, require_positive


@dataclass(frozen=True)
class MetaRecipe:
    """Meta-training of a backbone with a head.

    Args:
        epochs: Number of epochs.
        steps_per_epoch: Optimiser steps an epoch.
        episodes_per_step: Episodes an optimiser step, over all devices.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
        lr: Initial learning rate of the backbone.
        iam_lr: Initial learning rate of the Inverse Attention Module.
        scale_lr: Initial learning rate of the logit scale.
        momentum: Nesterov momentum.
        weight_decay: Of all parameters.
        label_smoothing: Probability mass spread over all classes.
        iam_reduction: Reduction ratio r of the Inverse Attention Module.
        iam_dropout: Its dropout.
        milestones: Shares of the training after which the rates fall; the paper's epochs 20, 40 and 50 of 60.
        factors: What the initial rates are multiplied with after each milestone.
        augmentation: Random changes of the images.
    """

    epochs: int
    steps_per_epoch: int
    episodes_per_step: int
    ways: int
    shots: int
    queries: int
    lr: float
    iam_lr: float
    scale_lr: float
    augmentation: Augmentation
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.1
    iam_reduction: int = 8
    iam_dropout: float = 0.5
    milestones: tuple[float, ...] = (20 / 60, 40 / 60, 50 / 60)
    factors: tuple[float, ...] = (0.06, 0.012, 0.0024)

    def __post_init__(self) -> None:
        require_positive(
            epochs=self.epochs,
            steps_per_epoch=self.steps_per_epoch,
            episodes_per_step=self.episodes_per_step,
            lr=self.lr,
            iam_lr=self.iam_lr,
            scale_lr=self.scale_lr,
        )
        require_not_negative(weight_decay=self.weight_decay, momentum=self.momentum)
        for factor in self.factors:
            require_not_negative(factor=factor)
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"Label smoothing must be in [0, 1), but got {self.label_smoothing}.")
        if len(self.milestones) != len(self.factors) or list(self.milestones) != sorted(self.milestones):
            raise UsageError(
                f"Milestones must ascend, with a factor for each, but got {self.milestones} and {self.factors}."
            )

    def factor(self, progress: float) -> float:
        """Multiplier of the learning rates after a share ``progress`` of the training.

        Example:
            >>> recipe = meta_training("cifar-fs", "conv4", image_size=32, pretrained=True)
            >>> [recipe.factor(epoch / 60) for epoch in (0, 19, 20, 40, 50)]
            [1.0, 1.0, 0.06, 0.012, 0.0024]
        """
        passed = sum(progress >= milestone for milestone in self.milestones)
        return 1.0 if passed == 0 else self.factors[passed - 1]


def meta_training(dataset: str, backbone: str, image_size: int, pretrained: bool, test_shots: int = 5) -> MetaRecipe:
    """The paper's recipe for a data set, backbone and number of shots in testing.

    Args:
        dataset: Name of the data set.
        backbone: Name of the backbone.
        image_size: Side of the images in pixels.
        pretrained: Whether the backbone begins from pretrained weights; its rates are then lower.
        test_shots: 1 or 5, for miniImageNet, whose training shots depend on it.

    Source: paper, supplementary material, "Training scheme".
    """
    resnet = backbone == "resnet12"
    return MetaRecipe(
        epochs=60,
        steps_per_epoch=1000,
        episodes_per_step=8,
        ways=5,
        shots=15 if dataset == "mini" and test_shots >= 5 else 5,
        queries=6,
        lr=(0.0005 if resnet else 0.005) if pretrained else 0.1,
        iam_lr=(0.005 if resnet else 0.01) if pretrained else 0.1,
        scale_lr=0.1,
        iam_reduction=16 if dataset == "mini" else 8,
        augmentation=Augmentation.published(image_size),
    )
