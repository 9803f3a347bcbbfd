"""Episodic training of a model by a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..episodes import Episodes
from ..features import EpisodeFeatures
from ..heads import one_hot
from ..methods.base import Criterion
from ..model import FewShotModel
from ..recipes import MetaRecipe
from .metrics import is_logged
from .replay import Replayable, Replayed


class EpisodicModule(Replayable):
    """A model that is trained on batches of episodes, which go through the backbone in one pass.

    It trains under ``pytorch_lightning.Trainer`` (the package of that name, not ``lightning``).
    `fslstm_plugin.learn2learn.LightningFewShot` is the same in learn2learn's form.

    Args:
        model: What is trained.
        criterion: Loss of scaled logits ``(n, ways)`` and labels ``(n,)``.
        recipe: Optimiser and schedule.

    Example:
        >>> from fslstm_plugin.recipes import Augmentation
        >>> recipe = MetaRecipe(augmentation=Augmentation.published(32), lr=0.1, method_lr=0.1)
        >>> module = EpisodicModule(FewShotModel.from_backbone("conv4", "lssvm", 32), nn.CrossEntropyLoss(), recipe)
        >>> episodes = Episodes(torch.rand(2, 6, 3, 32, 32), torch.tensor([[0, 1, 0, 1, 0, 1]] * 2), 2, 2)
        >>> loss, accuracy = module.learn(episodes)
        >>> loss.shape, accuracy.shape
        (torch.Size([]), torch.Size([]))
    """

    on_progress_bar = False  # Lightning's, for which each step would wait for its numbers.

    def __init__(self, model: FewShotModel, criterion: Criterion, recipe: MetaRecipe) -> None:
        super().__init__()
        self.model, self.criterion, self.recipe = model, criterion, recipe
        if recipe.frozen_backbone:
            model.backbone.requires_grad_(False).eval()  # A trainer leaves modes as they are when it begins.
        self._learn: Callable[..., tuple[Tensor, Tensor]] = self._learn_images

    def replay(self) -> None:
        """See `Replayable.replay`."""
        if getattr(self.model.backbone, "is_static", False) and self.model.method.is_static:
            self._learn = Replayed(self, self._learn_images)

    def _learn_images(self, images: Tensor, labels: Tensor, num_support: int, ways: int) -> tuple[Tensor, Tensor]:
        return self.learn(Episodes(images, labels, num_support, ways))

    def forward(self, episodes: Episodes) -> Tensor:
        """Scaled logits ``(batch, m, ways)`` of the queries, in double precision, as the heads compute."""
        return self.model.logits(self.features(episodes))

    def learn(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """The loss, and the share of queries correctly predicted, in [0, 1]."""
        return self.judge(self.model, episodes)

    def judge(self, model: FewShotModel, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """The same of another model on this one's features."""
        loss, logits = model.loss(self.features(episodes), episodes.query_labels, self.criterion)
        return loss, (logits.argmax(-1) == episodes.query_labels).float().mean()

    def features(self, episodes: Episodes) -> EpisodeFeatures:
        """What the model's method sees of the images of a batch."""
        if self.training:
            episodes = replace(episodes, samples=self.model.method.training_images(episodes.samples))
        points = episodes.embed(self.model.embed).samples
        targets = one_hot(episodes.support_labels, episodes.ways)
        return EpisodeFeatures.from_points(points, targets, map_shape=self.model.map_shape)

    def training_step(self, batch: Episodes, batch_idx: int) -> Tensor:
        """One step; logs ``train_loss`` and ``train_accuracy`` of every few, see `is_logged`."""
        loss, accuracy = self._learn(batch.samples, batch.labels, batch.num_support, batch.ways)
        if is_logged(self.trainer, self.global_step + 1):
            self.record("train", loss, accuracy)
        return loss

    def record(self, stage: str, loss: Tensor, accuracy: Tensor) -> None:
        """Log loss and accuracy of a stage: ``"train"``, ``"valid"`` or ``"test"``."""
        self.log_dict(
            {f"{stage}_loss": loss.detach(), f"{stage}_accuracy": accuracy},
            on_step=stage == "train",
            on_epoch=stage != "train",  # Lightning loses the sums of an incomplete epoch when a training is continued
            sync_dist=stage != "train",
            prog_bar=self.on_progress_bar,
            batch_size=1,
        )

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser, with a rate of its own for backbone, scale and method."""
        recipe = self.recipe
        groups: list[dict[str, Any]] = [
            {"params": list(self.model.backbone.parameters()), "lr": recipe.lr},
            {"params": [self.model.scale], "lr": recipe.scale_lr},
            {"params": list(self.model.method.parameters()), "lr": recipe.method_lr},
        ]
        for group in groups:
            group["params"] = [each for each in group["params"] if each.requires_grad]
        groups = [group for group in groups if group["params"]]
        fused = self.device.type == "cuda" or None
        optimizer: torch.optim.Optimizer
        if recipe.optimizer == "adam":
            optimizer = torch.optim.Adam(groups, weight_decay=recipe.weight_decay, fused=fused)
        else:
            optimizer = torch.optim.SGD(
                groups,
                momentum=recipe.momentum,
                weight_decay=recipe.weight_decay,
                nesterov=recipe.momentum > 0,
                fused=fused,
            )
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step / total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradients of backbone, scale and method separately, if the recipe says so."""
        if self.recipe.clip_norm:
            for group in optimizer.param_groups:
                nn.utils.clip_grad_norm_(group["params"], self.recipe.clip_norm)

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode; a frozen backbone stays in the latter."""
        super().train(mode)
        if self.recipe.frozen_backbone:
            self.model.backbone.eval()
        return self
