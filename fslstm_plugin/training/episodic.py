"""Episodic training of a backbone with one of the plugin's heads or methods."""

from __future__ import annotations

import difflib
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..adapters import InverseAttentionModule
from ..episodes import Episodes
from ..errors import UnknownNameError, UsageError
from ..features import EpisodeFeatures
from ..grammar import read_value
from ..heads import one_hot
from ..methods.base import Method
from ..methods.kernel import KernelMethod
from ..model import FewShotModel, feature_size
from ..naming import parse_method
from ..recipes import MetaRecipe
from ..registry import HEADS
from ..transduction import PseudoSupportModule

Batch = Episodes | tuple[Tensor, Tensor]

_NEAR = 0.85  # Similarity from which an unknown option counts as a misspelt one.


class EpisodicModule(pl.LightningModule):
    """A model trained on episodes: a backbone, and a head with the Inverse Attention Module, or any other method.

    It needs no learn2learn, but has the form of its algorithms and their defaults; those of
    :mod:`fslstm_plugin.learn2learn` are this class and learn2learn's own in one. It trains under
    ``pytorch_lightning.Trainer`` (the package of that name, not ``lightning``) with learn2learn's ``EpisodicBatcher``
    and tasksets, with the options of :meth:`add_model_specific_args` as keyword arguments or as class attributes of a
    subclass. It also takes whole batches of :class:`~fslstm_plugin.episodes.Episodes`, which go through the backbone
    in one pass.

    Unlike learn2learn's, it leaves the backbone in evaluation mode when Lightning validates or tests, so that
    the running statistics stay as they are and nothing leaks between queries.

    Args:
        features: Backbone, any module from images ``(batch, 3, H, W)`` to vectors ``(batch, d)``.
        loss: Function of logits ``(n, ways)`` and labels ``(n,)``; default cross entropy with label smoothing.
        recipe: The paper's optimiser and schedule over this number of steps; default learn2learn's Adam with ``lr``,
            ``scheduler_step`` and ``scheduler_decay``.
        method: What is trained on the features, or its name; default the class's own head, with IAM if ``iam`` is on.
        **options: Any of the class attributes below by name; other names are ignored, as learn2learn does, so that
            all options of a parser can be passed.

    Attributes:
        model: The :class:`~fslstm_plugin.model.FewShotModel` in training.
        train_ways, train_shots, train_queries: Shape of the training tasks.
        test_ways, test_shots, test_queries: Shape of the validation and test tasks.
        lr, scheduler_step, scheduler_decay: Adam's learning rate, multiplied by the decay every so many epochs.
        label_smoothing: Probability mass spread over all classes.
        iam: Whether the Inverse Attention Module adjusts the support.
        iam_reduction: Its reduction ratio r.
        iam_dropout: Its dropout.
        psm_iterations: Iterations of the Pseudo Support Module when testing; 0 for none.
        feature_size: Length d of the vectors, for a backbone without ``out_features``; needed with ``iam``.

    Raises:
        UnknownNameError: If an option is none of these but close to one.
        UsageError: If the method has weights and the feature size is unknown.
    """

    head_name: ClassVar[str] = "lssvm"
    head_options: ClassVar[tuple[str, ...]] = ()
    task_options: ClassVar[tuple[str, ...]] = (
        "train_ways",
        "train_shots",
        "train_queries",
        "test_ways",
        "test_shots",
        "test_queries",
        "lr",
        "scheduler_step",
        "scheduler_decay",
        "label_smoothing",
        "iam_reduction",
        "iam_dropout",
        "psm_iterations",
    )

    train_ways: int = 5
    train_shots: int = 1
    train_queries: int = 1
    test_ways: int = 5
    test_shots: int = 1
    test_queries: int = 1
    lr: float = 0.001
    scheduler_step: int = 20
    scheduler_decay: float = 1.0
    label_smoothing: float = 0.1
    iam: bool = False
    iam_reduction: int = 8
    iam_dropout: float = 0.5
    psm_iterations: int = 0
    feature_size: int | None = None

    def __init__(
        self,
        features: nn.Module,
        loss: Any = None,
        recipe: MetaRecipe | None = None,
        method: Method | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        names = (*self.task_options, *self.head_options, "iam", "feature_size")
        for name in options.keys() - set(names):
            if difflib.get_close_matches(name, names, n=1, cutoff=_NEAR):
                raise UnknownNameError(f"option of {type(self).__name__}", name, names)
        for name in names:
            setattr(self, name, options.get(name, getattr(self, name)))
        self.loss = loss or nn.CrossEntropyLoss(label_smoothing=self.label_smoothing)
        self.recipe = recipe
        self.feature_size = self.feature_size or feature_size(features)
        if isinstance(method, str):
            method = parse_method(method, dim=self.feature_size, backbone=features)
        self.model = FewShotModel(features, method or self._own_method(features))
        if recipe is not None and recipe.frozen_backbone:
            features.requires_grad_(False).eval()  # A trainer leaves modes as they are when it begins.
        self.save_hyperparameters({name: getattr(self, name) for name in names})

    def _own_method(self, features: nn.Module) -> Method:
        """The class's head with the options that were given."""
        head = HEADS.get(self.head_name)(**{name: getattr(self, name) for name in self.head_options})
        if not self.iam:
            return KernelMethod(head)
        if self.feature_size is None:
            raise UsageError(
                "The Inverse Attention Module needs the length of the feature vectors, but "
                f"{type(features).__name__} has no out_features: pass feature_size=."
            )
        return KernelMethod(head, [InverseAttentionModule(self.feature_size, self.iam_reduction, self.iam_dropout)])

    @classmethod
    def add_model_specific_args(cls, parent_parser: ArgumentParser) -> ArgumentParser:
        """A parser with this algorithm's options, with the defaults of the class it is called on.

        Args:
            parent_parser: The parser to extend.

        Example:
            >>> parser = EpisodicModule.add_model_specific_args(ArgumentParser(add_help=False))
            >>> parser.parse_args(["--train_shots", "5"]).train_shots
            5
        """
        parser = ArgumentParser(parents=[parent_parser], add_help=True, conflict_handler="resolve")
        for name in (*cls.task_options, *cls.head_options):
            parser.add_argument(f"--{name}", type=read_value, default=getattr(cls, name))
        return parser

    def forward(self, batch: Batch) -> Tensor:
        """Scaled logits of the queries.

        Args:
            batch: Episodes of images, or images and labels of one task in any order, split as in testing.

        Returns:
            ``(batch, m, ways)`` in double precision, as the heads compute.
        """
        features, _ = self._embedded(batch, self.test_ways, self.test_shots)
        return self.model.logits(features)

    def predict_step(self, batch: Batch, batch_idx: int = 0) -> Tensor:
        """Scaled logits of the queries of a batch, refined as in testing; see :meth:`forward`."""
        features, _ = self._embedded(batch, self.test_ways, self.test_shots)
        return self._tested().logits(features)

    def meta_learn(
        self, batch: Batch, batch_idx: int, ways: int, shots: int, queries: int, psm: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on a batch of episodes, or on one task of learn2learn.

        Args:
            batch: Episodes of images, or images and labels of one task in any order.
            batch_idx: Unused; part of learn2learn's form.
            ways: Classes of a task.
            shots: Support images per class of a task; its other images are queries.
            queries: Unused, since all other images are queries; part of learn2learn's form.
            psm: Whether to refine the predictions with the Pseudo Support Module.

        Returns:
            The loss and the share of queries correctly predicted, in [0, 1].
        """
        features, labels = self._embedded(batch, ways, shots)
        model = self._tested() if psm else self.model
        loss, logits = model.loss(features, labels, self.loss)
        return loss, (logits.argmax(-1) == labels).float().mean()

    def _embedded(self, batch: Batch, ways: int, shots: int) -> tuple[EpisodeFeatures, Tensor]:
        """Features of a batch, and the labels of its queries."""
        episodes = batch if isinstance(batch, Episodes) else Episodes.from_task(*batch, ways=ways, shots=shots)
        if self.training:
            episodes = replace(episodes, samples=self.model.method.training_images(episodes.samples))
        points = episodes.embed(self.model.embed).samples
        targets = one_hot(episodes.support_labels, episodes.ways)
        features = EpisodeFeatures.from_points(points, targets, map_shape=self.model.map_shape)
        return features, episodes.query_labels

    def _tested(self) -> FewShotModel:
        """The model as in testing: with the Pseudo Support Module, if that is wanted."""
        method = self.model.method
        if not self.psm_iterations or not isinstance(method, KernelMethod) or method.transduction is not None:
            return self.model
        refined = KernelMethod(method.head, method.adapters, PseudoSupportModule(self.psm_iterations))
        model = FewShotModel(self.model.backbone, refined)
        model.scale = self.model.scale
        return model

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One step; logs ``train_loss`` and ``train_accuracy``."""
        loss, accuracy = self.meta_learn(batch, batch_idx, self.train_ways, self.train_shots, self.train_queries)
        self._record("train", loss, accuracy)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """One batch of validation; logs ``valid_loss`` and ``valid_accuracy``."""
        self._record("valid", *self.meta_learn(batch, batch_idx, *self._test_shape))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """One batch of testing, refined by the Pseudo Support Module; logs ``test_loss`` and ``test_accuracy``."""
        self._record("test", *self.meta_learn(batch, batch_idx, *self._test_shape, psm=self.psm_iterations > 0))

    @property
    def _test_shape(self) -> tuple[int, int, int]:
        return self.test_ways, self.test_shots, self.test_queries

    def _record(self, stage: str, loss: Tensor, accuracy: Tensor) -> None:
        self.log_dict(
            {f"{stage}_loss": loss.detach(), f"{stage}_accuracy": accuracy},
            on_step=stage == "train",
            on_epoch=stage != "train",  # Lightning loses the sums of an incomplete epoch when a training is continued
            sync_dist=stage != "train",
            prog_bar=True,
            batch_size=1,
        )

    def configure_optimizers(self) -> Any:
        """The recipe's SGD with its own rate for backbone, method and scale; without a recipe learn2learn's Adam."""
        if self.recipe is None:
            adam = torch.optim.Adam(self.parameters(), lr=self.lr)
            return [adam], [torch.optim.lr_scheduler.StepLR(adam, self.scheduler_step, self.scheduler_decay)]
        recipe = self.recipe
        groups: list[dict[str, Any]] = [
            {"params": list(self.model.backbone.parameters()), "lr": recipe.lr},
            {"params": [self.model.scale], "lr": recipe.scale_lr},
            {"params": list(self.model.method.parameters()), "lr": recipe.method_lr},
        ]
        for group in groups:
            group["params"] = [each for each in group["params"] if each.requires_grad]
        groups = [group for group in groups if group["params"]]
        optimizer: torch.optim.Optimizer
        if recipe.optimizer == "adam":
            optimizer = torch.optim.Adam(groups, weight_decay=recipe.weight_decay)
        else:
            optimizer = torch.optim.SGD(
                groups, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.momentum > 0
            )
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step / total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradients of backbone, scale and method separately, if the recipe says so."""
        if self.recipe is not None and self.recipe.clip_norm:
            for group in optimizer.param_groups:
                nn.utils.clip_grad_norm_(group["params"], self.recipe.clip_norm)

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode; a frozen backbone stays in the latter."""
        super().train(mode)
        if self.recipe is not None and self.recipe.frozen_backbone:
            self.model.backbone.eval()
        return self
