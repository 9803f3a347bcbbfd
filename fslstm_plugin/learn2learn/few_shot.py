"""The plugin's heads in the form of learn2learn's algorithms."""

from __future__ import annotations

import difflib
from argparse import ArgumentParser
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..adapters import InverseAttentionModule
from ..arguments import options as constructor_options
from ..checks import require, require_bool
from ..episodes import Episodes
from ..errors import UnknownNameError, UsageError
from ..extras import needs_extra
from ..grammar import read_value
from ..methods.base import Method
from ..methods.kernel import KernelMethod
from ..model import FewShotModel, feature_size
from ..naming import parse_method
from ..recipes import Augmentation, MetaRecipe
from ..registry import HEADS
from ..training.episodic import EpisodicModule
from ..transduction import PseudoSupportModule

with needs_extra("The bridge to learn2learn", "l2l"):
    from learn2learn.algorithms.lightning import LightningEpisodicModule

Batch = Episodes | tuple[Tensor, Tensor]

_STANDARD = MetaRecipe(augmentation=Augmentation.published(84), lr=0.1, method_lr=0.1)


class _TaskOptions:
    """The options of `LightningFewShot.add_model_specific_args` that are no head's, with their defaults."""

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
    iam_reduction: int = 8
    iam_dropout: float = 0.5
    psm_iterations: int = 0


_BOUNDS: dict[str, dict[str, Any]] = {
    **{f"{stage}_ways": {"least": 2, "whole": True} for stage in ("train", "test")},
    **{f"{stage}_{what}": {"least": 1, "whole": True} for stage in ("train", "test") for what in ("shots", "queries")},
    "lr": {"above": 0},
    "scheduler_step": {"least": 1, "whole": True},
    "scheduler_decay": {"above": 0},
    "label_smoothing": {"least": 0, "below": 1},
    "iam_reduction": {"least": 1, "whole": True},
    "iam_dropout": {"least": 0, "below": 1},
    "psm_iterations": {"least": 0, "whole": True},
}


def require_parts(features: Any, loss: Any, recipe: Any, method: Any) -> None:
    """Refuse what is none of the parts of a module for training."""
    for name, part, fits, wanted in (
        ("features", features, isinstance(features, nn.Module), "a torch.nn.Module"),
        ("loss", loss, loss is None or callable(loss), "a function of logits and labels"),
        ("recipe", recipe, isinstance(recipe, (MetaRecipe, type(None))), "a MetaRecipe"),
        ("method", method, isinstance(method, (Method, str, type(None))), "a Method or its name"),
    ):
        if not fits:
            raise UsageError(f"`{name}` must be {wanted}, but got {part!r}.")


class LightningFewShot(_TaskOptions, EpisodicModule, LightningEpisodicModule):
    """A model trained on episodes: a backbone, and a head with the Inverse Attention Module, or any other method.

    It trains with learn2learn's ``EpisodicBatcher`` and tasksets, with the options of `add_model_specific_args`
    as keyword arguments or as class attributes of a subclass. It also takes whole batches of
    `Episodes`.

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
        model: The `FewShotModel` in training.
        train_ways, train_shots: Shape of the training tasks.
        test_ways, test_shots: Shape of the validation and test tasks.
        train_queries, test_queries: Ignored, since all other images are queries; part of learn2learn's form.
        lr, scheduler_step, scheduler_decay: Adam's learning rate, multiplied by the decay every so many epochs; unused
            with a recipe.
        label_smoothing: Probability mass spread over all classes.
        iam: Whether the Inverse Attention Module adjusts the support.
        iam_reduction: Its reduction ratio r.
        iam_dropout: Its dropout.
        psm_iterations: Iterations of the Pseudo Support Module when testing; 0 for none.
        feature_size: Length d of the vectors, for a backbone without ``out_features``; needed with ``iam``.

    Raises:
        UnknownNameError: If an option is none of these but close to one.
        UsageError: If an argument or option is of another kind or out of its range, or the method has weights and the
            feature size is unknown.
    """

    head_name: ClassVar[str] = "lssvm"
    head_options: ClassVar[tuple[str, ...]] = ()
    task_options: ClassVar[tuple[str, ...]] = tuple(_TaskOptions.__annotations__)
    iam: bool = False
    feature_size: int | None = None

    on_progress_bar = True

    def __init_subclass__(cls, **more: Any) -> None:
        """The arguments of a head that the class names become options, with the head's defaults."""
        super().__init_subclass__(**more)
        if "head_name" in vars(cls):
            defaults = constructor_options(HEADS.get(cls.head_name))
            cls.head_options = tuple(defaults)
            for name in defaults.keys() - vars(cls).keys():  # not those of another head that it inherits
                setattr(cls, name, defaults[name])

    def __init__(
        self,
        features: nn.Module,
        loss: Any = None,
        recipe: MetaRecipe | None = None,
        method: Method | str | None = None,
        **options: Any,
    ) -> None:
        require_parts(features, loss, recipe, method)
        names = (*self.task_options, *self.head_options, "iam", "feature_size")
        for name in options.keys() - set(names):
            if difflib.get_close_matches(name, names, n=1, cutoff=0.85):  # perhaps a misspelt one
                raise UnknownNameError("option", name, names, type(self).__name__)
        values = {name: options.get(name, getattr(self, name)) for name in names}
        for name, bounds in _BOUNDS.items():
            require(name, values[name], **bounds)
        values["iam"] = require_bool("iam", values["iam"])
        if values["feature_size"] is None:
            values["feature_size"] = feature_size(features)
        else:
            require("feature_size", values["feature_size"], least=1, whole=True)
        if isinstance(method, str):
            method = parse_method(method, dim=values["feature_size"], backbone=features)
        if isinstance(method, KernelMethod) and method.episode_statistics:
            raise UsageError(f"+bn in {method} is for evaluation: train without it, and name it to 'fslstm eval'.")
        model = FewShotModel(features, method or self._own_method(features, values))
        criterion = loss or nn.CrossEntropyLoss(label_smoothing=values["label_smoothing"])
        super().__init__(model, criterion, recipe or _STANDARD)
        self._has_recipe = recipe is not None
        for name, value in values.items():
            setattr(self, name, value)
        self.save_hyperparameters(values)

    def _own_method(self, features: nn.Module, values: dict[str, Any]) -> Method:
        """The class's head with the options that were given."""
        head = HEADS.get(self.head_name)(**{name: values[name] for name in self.head_options})
        if not values["iam"]:
            return KernelMethod(head)
        size = values["feature_size"]
        if size is None:
            raise UsageError(
                "The Inverse Attention Module needs the length of the feature vectors, but "
                f"{type(features).__name__} has no out_features: pass feature_size=."
            )
        return KernelMethod(head, [InverseAttentionModule(size, values["iam_reduction"], values["iam_dropout"])])

    @classmethod
    def add_model_specific_args(cls, parent_parser: ArgumentParser) -> ArgumentParser:
        """A parser with this algorithm's options, with the defaults of the class it is called on.

        Args:
            parent_parser: The parser to extend.

        Example:
            >>> parser = LightningFewShot.add_model_specific_args(ArgumentParser(add_help=False))
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
        return super().forward(self._tested(batch))

    def predict_step(self, batch: Batch, batch_idx: int = 0) -> Tensor:
        """Scaled logits of the queries of a batch, refined as in testing; see `forward`."""
        return self._refined().logits(self.features(self._tested(batch)))

    def meta_learn(self, batch: Batch, batch_idx: int, ways: int, shots: int, queries: int) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on a batch of episodes, or on one task of learn2learn.

        Args:
            batch: Episodes of images, or images and labels of one task in any order.
            batch_idx: Unused; part of learn2learn's form.
            ways: Classes of a task.
            shots: Support images per class of a task; its other images are queries.
            queries: Unused, since all other images are queries; part of learn2learn's form.

        Returns:
            The loss and the share of queries correctly predicted, in [0, 1].
        """
        return self.learn(_episodes(batch, ways, shots))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One step; logs ``train_loss`` and ``train_accuracy``."""
        loss, accuracy = self.learn(_episodes(batch, self.train_ways, self.train_shots))
        self.record("train", loss, accuracy)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """One batch of validation; logs ``valid_loss`` and ``valid_accuracy``."""
        self.record("valid", *self.judge(self.model, self._tested(batch)))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """One batch of testing, refined by the Pseudo Support Module; logs ``test_loss`` and ``test_accuracy``."""
        self.record("test", *self.judge(self._refined(), self._tested(batch)))

    def configure_optimizers(self) -> Any:
        """The recipe's optimiser and schedule; without a recipe learn2learn's Adam."""
        if self._has_recipe:
            return super().configure_optimizers()
        adam = torch.optim.Adam(self.parameters(), lr=self.lr)
        return [adam], [torch.optim.lr_scheduler.StepLR(adam, self.scheduler_step, self.scheduler_decay)]

    def _tested(self, batch: Batch) -> Episodes:
        return _episodes(batch, self.test_ways, self.test_shots)

    def _refined(self) -> FewShotModel:
        """The model as in testing: with the Pseudo Support Module, if that is wanted."""
        method = self.model.method
        if not self.psm_iterations or not isinstance(method, KernelMethod) or method.transduction is not None:
            return self.model
        psm = PseudoSupportModule(self.psm_iterations)
        model = FewShotModel(self.model.backbone, KernelMethod(method.head, method.adapters, psm))
        model.scale = self.model.scale
        return model


def _episodes(batch: Batch, ways: int, shots: int) -> Episodes:
    if isinstance(batch, Episodes):
        return batch
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise UsageError(f"A batch must be Episodes, or images and labels of a task, but is a {type(batch).__name__}.")
    return Episodes.from_task(*batch, ways=ways, shots=shots)


class LightningPrototype(LightningFewShot):
    """Prototypical networks (Snell et al. 2017) with the arguments of `PrototypeClassifier`, see `LightningFewShot`."""

    head_name = "nn"


class LightningRidge(LightningFewShot):
    """Ridge regression (Bertinetto et al. 2019) with the arguments of `RidgeClassifier`, see `LightningFewShot`."""

    head_name = "rr"


class LightningSVM(LightningFewShot):
    """Crammer-Singer SVM (Lee et al. 2019) with the arguments of `SVMClassifier`, see `LightningFewShot`."""

    head_name = "svm"


class LightningLSSVM(LightningFewShot):
    """The paper's multi-class LSSVM with the arguments of `LSSVMClassifier`, see `LightningFewShot`."""

    head_name = "lssvm"


class LightningFSLSTM(LightningLSSVM):
    """The paper's whole model: IAM and LSSVM, with PSM when testing; see `LightningFewShot`."""

    iam = True
    psm_iterations = 10
