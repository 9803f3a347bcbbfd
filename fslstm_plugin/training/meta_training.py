"""Meta-training: episodes, validation on episodes of unseen classes, best and last weights are kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console
from torch import nn

from ..backbones.base import build_backbone, normalization_of
from ..backbones.dropout import scale_dropout
from ..data.base import Split
from ..data.reading.walk import Report
from ..data.sampler import EpisodeSampler
from ..errors import RunError, UsageError
from ..evaluation.features import extract_features
from ..evaluation.runner import run_methods
from ..evaluation.source import FeatureSource, from_images, indexed
from ..evaluation.statistics import estimate
from ..methods.base import Method
from ..model import Embedding, FewShotModel
from ..pretrained.opening import load_backbone
from ..runs.configuration import TrainConfig
from ..runs.folder import Run
from .engine import EngineOptions, TrainingProgress, fit
from .episodic import EpisodicModule
from .saying import say
from .streams import EpisodeStream


class KeepBest(pl.Callback):
    """Validates at the end of each epoch, on the same episodes each time, and saves the best weights so far."""

    def __init__(self, run: Run, split: Split, tell: Report) -> None:
        assert isinstance(run.config, TrainConfig)
        self.run, self.split, self.tell = run, split, tell
        self.best = -1.0
        self.validation = shape = run.config.validation
        self.sampler = EpisodeSampler(
            split.labels, shape.ways, shape.shots, shape.queries, run.config.seed, split.class_names, prefix="val_"
        )

    def state_dict(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from the checkpoint; the best weights are in their file alone, which may be lost."""
        if self.run.has_weights():
            self.best = state_dict["best"]
        elif state_dict["best"] >= 0:
            self.tell(
                f"{self.run.weights} is missing or damaged: the best weights so far are lost, those of later "
                "validations are kept."
            )

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Save the last weights, if there are none: a training that is continued at its end may have lost the best."""
        if trainer.is_global_zero and self.best < 0:
            self._keep_if_better(trainer, module)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validate, and save if better."""
        if trainer.is_global_zero:
            accuracy = self._keep_if_better(trainer, module)
            module.log("valid_accuracy", accuracy / 100, on_step=False, on_epoch=True, rank_zero_only=True)

    def _keep_if_better(self, trainer: pl.Trainer, module: pl.LightningModule) -> float:
        """The accuracy in percent."""
        assert isinstance(module, EpisodicModule)
        model = module.model.eval()
        source = self._source(model.embedding_of(model.method), model.method, module.device)
        (outcome,) = run_methods(source, self.sampler, [model.method], self.validation.episodes, module.device)
        module.train()
        accuracy = estimate(outcome.accuracies)
        better = accuracy.mean > self.best
        if better:
            self.best = accuracy.mean
            self.run.save_weights(model)
        self.tell(
            f"step {trainer.global_step}: validation accuracy {accuracy.mean:.2f} ± {accuracy.ci95:.2f} %"
            f"{', the best so far' if better else ''}"
        )
        return accuracy.mean

    def _source(self, embedding: Embedding, method: Method, device: torch.device) -> FeatureSource:
        if method.episode_statistics:
            return from_images(embedding, self.split, device, bfloat16=self.run.config.precision == "bf16")
        return indexed(extract_features(embedding, self.split, device).to(device), embedding.map_shape)


def episodic_module(config: TrainConfig, backbone: nn.Module) -> EpisodicModule:
    """The module that a configuration trains, around its backbone."""
    recipe = config.recipe
    model = FewShotModel.from_backbone(backbone, config.algorithm)
    return EpisodicModule(model, nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing), recipe)


def episode_stream(config: TrainConfig, split: Split, module: EpisodicModule, steps: int) -> EpisodeStream:
    """The training episodes of a configuration, this many steps an epoch."""
    recipe = config.recipe
    sampler = EpisodeSampler(split.labels, recipe.ways, recipe.shots, recipe.queries, config.seed, split.class_names)
    normalization = normalization_of(module.model.backbone)
    return EpisodeStream(split, sampler, normalization, recipe.augmentation, recipe.episodes_per_step, steps, module)


def train(
    run: Run, options: EngineOptions, *, data_root: Path | None = None, resume: bool = False, console: Console
) -> None:
    """Meta-train the model of a run folder's configuration, a `TrainConfig`, and save its best weights there.

    Data come from the default root if ``data_root`` is None; with ``resume`` the run's last checkpoint is continued.

    Raises:
        DataError: If the data set is missing.
        RunError: If the pretrained weights are missing or do not fit.
        UsageError: If an episode needs more classes or images than there are.
    """
    config = run.config
    assert isinstance(config, TrainConfig)
    recipe = config.recipe
    pl.seed_everything(config.seed, verbose=False)
    tell: Report = rank_zero_only(partial(say, console))  # In the first of several processes.
    backbone = build_backbone(config.backbone, config.image_size)
    train_split, val_split = (run.split(name, data_root) for name in ("train", "val"))
    if config.pretrained and not run.checkpoint.is_file():
        for note in load_backbone(backbone, Path(config.pretrained)).notes(Path(config.pretrained)):
            tell(note)
    scale_dropout(backbone, recipe.dropout)
    module = episodic_module(config, backbone)
    total_steps = min(recipe.epochs * recipe.steps_per_epoch, config.max_steps or 2**62)
    try:
        stream = episode_stream(config, train_split, module, min(recipe.steps_per_epoch, total_steps))
        keep_best = KeepBest(run, val_split, tell)
    except UsageError as error:
        if not resume:
            raise
        fields = str(error).replace("`val_", "`validation.").replace("`", "'")  # of the file, no options
        raise RunError(f"The episodes of {run.path / 'config.json'} cannot be drawn: {fields}") from error
    fit(
        module,
        stream,
        run,
        max_steps=total_steps,
        options=options,
        progress=TrainingProgress("episode", recipe.episodes_per_step, console),
        callbacks=[keep_best],
        resume=resume,
        data_digest=f"{train_split.digest}/{val_split.digest}",
    )
