"""Pretraining: the backbone learns to classify the training classes of a benchmark, or a folder of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from rich.console import Console

from ..backbones.base import build_backbone, normalization_of
from ..backbones.dropout import scale_dropout
from ..data.reading.walk import Report
from ..errors import UsageError
from ..runs.configuration import PretrainConfig
from ..runs.folder import Run
from .classification import Classification, SaveWeights, SplitBatches, Teacher
from .engine import EngineOptions, TrainingProgress, fit
from .image_folders import FolderBatches, folder_digest, open_folder
from .saying import say


def pretrain(
    run: Run,
    options: EngineOptions,
    *,
    data_root: Path | None = None,
    workers: int = 2,
    resume: bool = False,
    console: Console,
    callbacks: Sequence[pl.Callback] = (),
) -> None:
    """Train a backbone as a classifier by a `PretrainConfig` and save its weights in the run folder; see also `train`.

    A number of worker processes decode the images of a folder.

    Raises:
        DataError: If the images are missing.
        UsageError: If there are fewer images than one batch, or the backbone cannot take images of the recipe's sizes
            or has not so many blocks to freeze, or blocks are to be frozen on several devices.
    """
    config = run.config
    assert isinstance(config, PretrainConfig)
    recipe = config.recipe
    pl.seed_everything(config.seed, verbose=False)
    backbone = build_backbone(config.backbone, config.image_size)
    normalization = normalization_of(backbone)
    # In the first of several processes.
    report: Report = rank_zero_only(partial(say, console))
    batches: Any
    if config.dataset:
        split = run.split("train", data_root)
        classes = len(split.class_names)
        batches = SplitBatches(split, recipe, normalization, config.seed)
        digest = split.digest
    else:
        folder = Path(config.places or config.folder or "")
        images = open_folder(folder, config.image_size, normalization, bool(config.places), report)
        classes = len(images.classes)
        batches = FolderBatches(images, recipe, config.seed, workers)
        digest = folder_digest(images)
    total_steps = min(recipe.epochs * len(batches), config.max_steps or 2**62)
    scale_dropout(backbone, recipe.dropout)
    teacher = None if config.teacher is None else Teacher.of(Run.open(Path(config.teacher)), config, classes)
    module = Classification(backbone, classes, recipe, total_steps, None if teacher is None else teacher.divergence)
    _require_sizes(module, config)
    batches.module = module
    fit(
        module,
        batches,
        run,
        max_steps=total_steps,
        options=_one_device(options) if recipe.freeze else options,
        progress=TrainingProgress("image", recipe.batch_size, console),
        callbacks=[SaveWeights(run), *callbacks],
        resume=resume,
        data_digest=digest,
    )


def _one_device(options: EngineOptions) -> EngineOptions:
    """Several devices would wait for each other's gradients of the frozen blocks, which never come."""
    if options.devices not in ("auto", 1) or options.num_nodes > 1:
        raise UsageError("`freeze` is for one device: leave it out, or give `devices=1` and `num_nodes=1`.")
    return replace(options, devices=1)


def _require_sizes(module: Classification, config: PretrainConfig) -> None:
    """Refuse sizes that the backbone cannot take: other packages' backbones may take only one."""
    for side in sorted({*config.recipe.sides(config.image_size)} - {config.image_size}):
        try:
            with torch.no_grad():
                module.eval()(torch.zeros(1, 3, side, side))
        except RuntimeError as error:
            raise UsageError(
                f"The backbone {config.backbone} cannot take images of {side} x {side} pixels: give `sizes=1` and "
                "`shares=1`."
            ) from error
    module.train()
