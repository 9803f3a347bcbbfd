"""Classification of a benchmark's training classes: the batches and the module of a pretraining, and its teacher."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.base import Backbone, build_backbone, vectors_of
from ..data.base import Split
from ..errors import RunError, UsageError, count_of
from ..model import FewShotModel
from ..normalization import Normalization
from ..recipes import PretrainRecipe
from ..runs.configuration import PretrainConfig
from ..runs.folder import Run
from ..storage.damage import naming_damage
from .engine import SECONDS_BETWEEN_SAVES
from .metrics import is_logged
from .replay import Replayable, Replayed
from .streams import Step, augmented

_TEMPERATURE = 4.0


def epoch_order(images: int, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits the images, from the seed and the epoch alone: int64 ``(images,)``."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(images))


class SplitBatches:
    """Batches of augmented images of a benchmark's training split, made on its device.

    Iterating begins at the global step of the module in training, which is set before the training begins, so that a
    continued training sees what it would have seen.
    """

    module: pl.LightningModule

    def __init__(self, split: Split, recipe: PretrainRecipe, normalization: Normalization, seed: int) -> None:
        self.split, self.recipe, self.normalization, self.seed = split, recipe, normalization, seed

    def __len__(self) -> int:
        return self.recipe.steps_per_epoch(len(self.split.labels))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        trainer = self.module.trainer
        self.split = split = self.split.to(self.module.device)
        epoch, first = divmod(trainer.global_step, len(self))
        share = self.recipe.batch_size // trainer.world_size
        # The last batch of images that do not fill one is left out.
        batches = epoch_order(len(split.labels), self.seed, epoch).split(share)[
            trainer.global_rank :: trainer.world_size
        ]
        steps = (
            Step(batches[step], [(self.seed, epoch, step, trainer.global_rank)]) for step in range(first, len(self))
        )
        for indices, images in augmented(split, steps, self.normalization, self.recipe.augmentation):
            yield images, split.labels[indices]


def shrink(images: Tensor, side: int) -> Tensor:
    """Square images ``(batch, 3, side, side)`` from larger ones, bilinear with antialiasing."""
    if images.shape[-1] == side:
        return images
    return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)


class Classification(Replayable):
    """A backbone with a linear classifier on its globally pooled features.

    Args:
        backbone: The backbone; one of another package is classified on its feature vector.
        classes: Number of classes.
        recipe: Optimiser and schedule, loss, sizes of the images, when the blocks are frozen.
        total_steps: Optimiser steps of the whole training.
        distance: From images and logits to how far these are from other answers, such as `Teacher.divergence`, which
            makes half of the loss. Default None: there are none.

    Raises:
        UsageError: If the backbone has not so many blocks to freeze, or does not say how long its features are.
    """

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        recipe: PretrainRecipe,
        total_steps: int,
        distance: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        width = backbone.map_channels if isinstance(backbone, Backbone) else getattr(backbone, "out_features", None)
        if width is None:
            raise UsageError(f"{type(backbone).__name__} needs an attribute out_features to be pretrained.")
        self.blocks = list(backbone.blocks) if isinstance(backbone, Backbone) else []
        if len(recipe.freeze) > len(self.blocks):
            raise UsageError(
                f"{type(backbone).__name__} has {count_of(len(self.blocks), 'block')} that can be frozen, but "
                f"`freeze` was given {len(recipe.freeze)} times."
            )
        self.classifier = nn.Linear(width, classes)
        self.recipe, self.total_steps, self.distance = recipe, total_steps, distance
        self._pass: Callable[[Tensor], Tensor] = self.forward

    def replay(self) -> None:
        """See `Replayable.replay`."""
        if getattr(self.backbone, "is_static", False):
            self._pass = Replayed(self, self.forward)

    def forward(self, images: Tensor) -> Tensor:
        """Class logits ``(batch, classes)`` of normalised images ``(batch, 3, H, W)``."""
        if isinstance(self.backbone, Backbone):
            return self.classifier(self.backbone.feature_map(images).mean((2, 3)))
        return self.classifier(vectors_of(self.backbone, images, self.classifier.in_features))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Cross entropy of one batch of images and labels; the images may be shrunk before."""
        images, labels = batch
        progress = self.global_step / self.total_steps
        for block, share in zip(self.blocks, self.recipe.freeze, strict=False):
            if progress >= share:
                block.requires_grad_(False)
        logits = self._pass(shrink(images, self.recipe.side(images.shape[-1], progress)))
        loss = F.cross_entropy(logits, labels, label_smoothing=self.recipe.label_smoothing)
        if self.distance is not None:
            loss = (loss + self.distance(images, logits)) / 2
        if is_logged(self.trainer, self.global_step + 1):
            self.log("train_loss", loss)
            self.log("train_accuracy", (logits.argmax(1) == labels).float().mean())
        return loss

    def configure_optimizers(self) -> Any:
        """Stochastic gradient descent under the recipe's schedule."""
        recipe = self.recipe
        optimizer = torch.optim.SGD(
            self.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov and recipe.momentum > 0,
            fused=True,
        )
        schedule: torch.optim.lr_scheduler.LRScheduler
        if recipe.schedule == "one-cycle":
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=recipe.lr, total_steps=self.total_steps, cycle_momentum=False
            )
        else:
            thirds = [self.total_steps // 3, 2 * self.total_steps // 3]
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=thirds, gamma=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Teacher:
    """A trained classifier; a network of the same kind that learns its answers becomes better than it ("born again").

    Source: Furlanello et al., "Born-again neural networks", 2018; the temperature is that of Tian et al., "Rethinking
    few-shot image classification: a good embedding is all you need?", 2020.

    Args:
        network: From normalised images ``(batch, 3, H, W)`` to logits ``(batch, classes)``.

    Example:
        >>> teacher = Teacher(nn.Flatten())
        >>> images = torch.tensor([[1.0, 2.0]])
        >>> [round(teacher.divergence(images, logits).item(), 2) for logits in (images, -images)]
        [0.0, 0.5]
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network.eval().requires_grad_(False)

    @classmethod
    def of(cls, run: Run, config: PretrainConfig, classes: int) -> Teacher:
        """The classifier of a pretraining's run, from its checkpoint, for a training of this configuration.

        Raises:
            UsageError: If the run is of other images, or of another kind.
            RunError: If it has no checkpoint.
            DataError: If that is damaged.
        """
        theirs = run.config
        if not isinstance(theirs, PretrainConfig) or theirs.dataset != config.dataset:
            raise UsageError(f"The teacher {run.path} must be a pretraining on {config.dataset}: name another run.")
        if not run.checkpoint.is_file():
            raise RunError(
                f"The teacher {run.path} has no last.ckpt, which holds its classifier: name another run, or pretrain "
                "one again."
            )
        network = Classification(build_backbone(theirs.backbone, theirs.image_size), classes, theirs.recipe, 1)
        with naming_damage(run.checkpoint):
            state = torch.load(run.checkpoint, map_location="cpu", weights_only=True)["state_dict"]
            network.load_state_dict(state)
        return cls(network.to(memory_format=torch.channels_last))

    def divergence(self, images: Tensor, logits: Tensor) -> Tensor:
        """How far answers are from the teacher's: the Kullback-Leibler divergence at temperature 4, times 16.

        The teacher sees the images ``(batch, 3, H, W)`` in full size, whatever the size that the logits
        ``(batch, classes)`` answer. The mean over the images is a scalar.
        """
        with torch.no_grad():
            wanted = self.network.to(images.device)(images).float() / _TEMPERATURE
        found = (logits.float() / _TEMPERATURE).log_softmax(-1)
        return F.kl_div(found, wanted.softmax(-1), reduction="batchmean") * _TEMPERATURE**2


class SaveWeights(pl.Callback):
    """Writes the backbone's weights after epochs, at most once a minute, so that a stopped pretraining is useful."""

    def __init__(self, run: Run) -> None:
        self.run, self.saved = run, -math.inf

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save after an epoch, also after a last one that is not complete."""
        is_last = trainer.global_step >= trainer.max_steps
        if trainer.is_global_zero and (is_last or time.monotonic() - self.saved >= SECONDS_BETWEEN_SAVES):
            self._save(module)

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save what a checkpoint of the last step has, if the file was lost since."""
        if trainer.is_global_zero and not self.run.has_weights():
            self._save(module)

    def _save(self, module: pl.LightningModule) -> None:
        assert isinstance(module, Classification)
        self.run.save_weights(FewShotModel.from_backbone(module.backbone))
        self.saved = time.monotonic()
