"""Episodic training of a backbone with one of the plugin's heads, in the form of learn2learn's algorithms."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, ClassVar

import torch
from learn2learn.algorithms.lightning import LightningEpisodicModule
from torch import Tensor, nn

from ..episodes import Episodes
from ..errors import UsageError
from ..gram import EpisodeGram
from ..heads import one_hot
from ..registry import HEADS
from ..transduction import InverseAttentionModule, PseudoSupportModule
from .recipe import MetaRecipe

Batch = Episodes | tuple[Tensor, Tensor]


class LightningFewShot(LightningEpisodicModule):
    """A backbone, the Inverse Attention Module if wanted, and a head, trained on episodes.

    Works like learn2learn's own algorithms: under ``pytorch_lightning.Trainer`` (the package of that name, not
    ``lightning``) with learn2learn's ``EpisodicBatcher`` and tasksets, with the options of
    :meth:`add_model_specific_args` as keyword arguments or as class attributes of a subclass. It also takes whole
    batches of :class:`~fslstm_plugin.episodes.Episodes`, which go through the backbone in one pass.

    Unlike learn2learn's, it leaves the backbone in evaluation mode when Lightning validates or tests, so that
    the running statistics stay as they are and nothing leaks between queries.

    Args:
        features: Backbone, any module from images ``(batch, 3, H, W)`` to vectors ``(batch, d)``.
        loss: Function of logits ``(n, ways)`` and labels ``(n,)``; default cross entropy with label smoothing.
        recipe: The paper's optimiser and schedule over so many steps; default learn2learn's Adam with ``lr``,
            ``scheduler_step`` and ``scheduler_decay``.
        **options: Any of the class attributes below by name; other names are ignored, as learn2learn does, so that
            all options of a parser can be passed.

    Attributes:
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
        UsageError: If ``iam`` is on and the feature size is unknown.
    """

    head_name: ClassVar[str]
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

    label_smoothing: float = 0.1
    iam: bool = False
    iam_reduction: int = 8
    iam_dropout: float = 0.5
    psm_iterations: int = 0
    feature_size: int | None = None

    def __init__(self, features: nn.Module, loss: Any = None, recipe: MetaRecipe | None = None, **options: Any) -> None:
        super().__init__()
        for name in (*self.task_options, *self.head_options, "iam", "feature_size"):
            setattr(self, name, options.get(name, getattr(self, name)))
        self.loss = loss or nn.CrossEntropyLoss(label_smoothing=self.label_smoothing)
        self.recipe = recipe
        self.features = features
        self.head = HEADS.get(self.head_name)(**{name: getattr(self, name) for name in self.head_options})
        self.scale = nn.Parameter(torch.ones(()))
        self.attention: InverseAttentionModule | None = None
        if self.iam:
            size = self.feature_size or getattr(features, "out_features", None)
            if size is None:
                raise UsageError(
                    "The Inverse Attention Module needs the length of the feature vectors, but "
                    f"{type(features).__name__} has no out_features: pass feature_size=."
                )
            self.attention = InverseAttentionModule(size, self.iam_reduction, self.iam_dropout)
        self.psm = PseudoSupportModule(self.psm_iterations)
        names = (*self.task_options, *self.head_options, "iam", "feature_size")
        self.save_hyperparameters({name: getattr(self, name) for name in names})

    @classmethod
    def add_model_specific_args(cls, parent_parser: ArgumentParser) -> ArgumentParser:
        """A parser with this algorithm's options, defaults from the class they are asked of.

        Args:
            parent_parser: The parser to extend.

        Example:
            >>> parser = LightningRidge.add_model_specific_args(ArgumentParser(add_help=False))
            >>> parser.parse_args(["--train_shots", "5"]).ridge
            50.0
        """
        parser = ArgumentParser(parents=[parent_parser], add_help=True, conflict_handler="resolve")
        for name in (*cls.task_options, *cls.head_options):
            default = getattr(cls, name)
            parser.add_argument(f"--{name}", type=type(default), default=default)
        return parser

    def logits(self, episodes: Episodes, psm: bool = False) -> Tensor:
        """Scaled logits of the queries.

        Args:
            episodes: Episodes of features ``(batch, n + m, d)``.
            psm: Whether to refine them with the Pseudo Support Module.

        Returns:
            ``(batch, m, ways)`` in double precision, as the heads compute.
        """
        with torch.autocast(episodes.samples.device.type, enabled=False):
            support, query = episodes.support, episodes.query
            targets = one_hot(episodes.support_labels, episodes.ways)
            if self.attention is not None:
                dtype = self.attention.norm.weight.dtype
                support = self.attention.adjust(support.to(dtype), targets, query.to(dtype))
            gram = EpisodeGram.from_features(support, query, transductive=psm)
            logits = self.psm.refine(self.head, gram, targets) if psm else self.head.predict(gram, targets)
            return self.scale * logits

    def meta_learn(
        self, batch: Batch, batch_idx: int, ways: int, shots: int, queries: int, psm: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on a batch of episodes, or on one task of learn2learn.

        Args:
            batch: Episodes of images, or images and labels of one task in any order.
            batch_idx: Unused; part of learn2learn's form.
            ways: Classes of a task.
            shots: Support images a class of a task; its other images are queries.
            queries: Unused, since all other images are queries; part of learn2learn's form.
            psm: Whether to refine the predictions with the Pseudo Support Module.

        Returns:
            The loss and the share of queries predicted rightly, in [0, 1].
        """
        episodes = batch if isinstance(batch, Episodes) else Episodes.from_task(*batch, ways=ways, shots=shots)
        logits = self.logits(episodes.embed(self.features), psm)
        labels = episodes.query_labels
        precision = torch.promote_types(self.scale.dtype, torch.float32)  # a loss may have weights of its own
        loss = self.loss(logits.flatten(0, -2).to(precision), labels.flatten())
        return loss, (logits.argmax(-1) == labels).float().mean()

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
            on_epoch=stage != "train",  # Lightning forgets a half epoch's sum when a training is continued
            sync_dist=stage != "train",
            batch_size=1,
        )

    def configure_optimizers(self) -> Any:
        """The recipe's SGD with its own rate for backbone, IAM and scale; without a recipe learn2learn's Adam."""
        if self.recipe is None:
            return super().configure_optimizers()
        recipe = self.recipe
        groups: list[dict[str, Any]] = [
            {"params": self.features.parameters(), "lr": recipe.lr},
            {"params": [self.scale, *self.head.parameters()], "lr": recipe.scale_lr},
        ]
        if self.attention is not None:
            groups.append({"params": self.attention.parameters(), "lr": recipe.iam_lr})
        optimizer = torch.optim.SGD(groups, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: recipe.factor(step / total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class LightningPrototype(LightningFewShot):
    """Prototypical networks (Snell et al. 2017) with the plugin's head; see :class:`LightningFewShot`.

    Attributes:
        kernel: ``"linear"``, ``"rbf"``, ``"polynomial"``, ``"cosine"`` or a `Kernel`.
    """

    head_name = "nn"
    head_options = ("kernel",)
    kernel: str = "linear"


class LightningRidge(LightningFewShot):
    """Ridge regression (Bertinetto et al. 2019; Lee et al. 2019); see :class:`LightningFewShot`.

    Attributes:
        ridge: Weight lambda of the penalty.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "rr"
    head_options = ("ridge", "kernel")
    ridge: float = 50.0
    kernel: str = "linear"


class LightningSVM(LightningFewShot):
    """Crammer-Singer SVM (Lee et al. 2019); see :class:`LightningFewShot`.

    Attributes:
        C: Bound of the dual coefficients.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "svm"
    head_options = ("C", "kernel")
    C: float = 0.1
    kernel: str = "linear"


class LightningLSSVM(LightningFewShot):
    """The paper's multi-class LSSVM; see :class:`LightningFewShot`.

    Attributes:
        ridge: ``1 / gamma``.
        bias_weight: Number in the corner block of the paper's system.
        coding: ``"one-vs-all"``, ``"one-vs-one"`` or ``"ecoc"``.
        decoding: ``"soft"``, or ``"hamming"``, which has no gradient.
        kernel: See :class:`LightningPrototype`.
    """

    head_name = "lssvm"
    head_options = ("ridge", "bias_weight", "coding", "decoding", "kernel")
    ridge: float = 0.1
    bias_weight: float = 2.0
    coding: str = "one-vs-all"
    decoding: str = "soft"
    kernel: str = "linear"


class LightningFSLSTM(LightningLSSVM):
    """The paper's whole model: IAM and LSSVM, with PSM when testing; see :class:`LightningFewShot`."""

    iam = True
    psm_iterations = 10


def algorithm_for(head: str) -> type[LightningFewShot]:
    """The Lightning module that trains with a registered head, also one of another package.

    Args:
        head: Registered name.

    Raises:
        UnknownNameError: If no head has that name.

    Example:
        >>> algorithm_for("rr").__name__
        'LightningRidge'
    """
    HEADS.get(head)
    named = {"nn": LightningPrototype, "rr": LightningRidge, "svm": LightningSVM, "lssvm": LightningLSSVM}
    return named.get(head) or type(f"LightningFewShot_{head}", (LightningFewShot,), {"head_name": head})
