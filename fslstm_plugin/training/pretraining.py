"""Pretraining: the backbone learns to classify the training classes of a benchmark, or a folder of images."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from rich.console import Console

from ..backbones.base import build_backbone, normalization_of
from ..data.root import load_split
from ..runs import Run
from .classification import Classification, SaveEachEpoch, SplitBatches
from .engine import EngineOptions, TrainingProgress, fit, resolve_precision
from .image_folders import FolderBatches, open_folder
from .recipes import PretrainRecipe


@dataclass(frozen=True)
class PretrainSource:
    """What to pretrain on: exactly one of the three.

    Args:
        dataset: Name of a benchmark, whose training classes are used.
        places: Folder of Places365-standard.
        folder: Folder of class folders.
    """

    dataset: str | None = None
    places: Path | None = None
    folder: Path | None = None


def pretrain_config(
    source: PretrainSource,
    backbone: str,
    image_size: int,
    recipe: PretrainRecipe,
    max_steps: int | None,
    seed: int,
    precision: str,
) -> dict[str, Any]:
    """The configuration that a pretraining's run folder keeps.

    Args:
        source: What to pretrain on.
        backbone: Registered name.
        image_size: Side of the images in pixels.
        recipe: Epochs, batch size, schedule, augmentation.
        max_steps: Stop after so many steps; the schedule shrinks with it. None for all epochs.
        seed: What every random choice follows from.
        precision: ``"auto"``, ``"32"`` or ``"bf16"``; what it means on this machine is kept.

    Raises:
        UsageError: If the recipe does not fit the images.
    """
    if recipe.augmentation is not None:
        recipe.augmentation.require_fit(image_size)
    folders = {"places": source.places, "folder": source.folder}
    return {
        "kind": "pretrain",
        "dataset": source.dataset,
        **{name: str(path.resolve()) if path else None for name, path in folders.items()},
        "backbone": backbone,
        "image_size": image_size,
        "recipe": asdict(recipe),
        "max_steps": max_steps,
        "seed": seed,
        "precision": resolve_precision(precision),
    }


def pretrain(
    run: Run,
    options: EngineOptions,
    *,
    data_root: Path | None = None,
    workers: int = 2,
    resume: bool = False,
    console: Console,
) -> None:
    """Train a backbone as a classifier and save its weights in the run folder.

    Args:
        run: The run folder with the configuration of :func:`pretrain_config`.
        options: Devices and precision.
        data_root: Where the data sets are; the default root if None.
        workers: Processes that decode the images of a folder.
        resume: Continue from the run's last checkpoint.
        console: Where progress is shown.

    Raises:
        DataError: If the images are missing.
        UsageError: If there are fewer images than one batch.
    """
    config = run.config
    recipe = run.part("recipe", PretrainRecipe)
    pl.seed_everything(config["seed"], verbose=False)
    backbone = build_backbone(config["backbone"], config["image_size"])
    normalization = normalization_of(backbone)
    batches: Any
    if config["dataset"]:
        split = load_split(config["dataset"], "train", data_root)
        classes = len(split.class_names)
        batches = SplitBatches(split, recipe, normalization, config["seed"])
    else:
        folder = Path(config["places"] or config["folder"])
        images = open_folder(folder, config["image_size"], normalization, places=bool(config["places"]))
        classes = len(images.classes)
        batches = FolderBatches(images, recipe, config["seed"], workers)
    total_steps = min(recipe.epochs * len(batches), config["max_steps"] or 2**62)
    module = Classification(backbone, classes, recipe, total_steps)
    batches.module = module
    fit(
        module,
        batches,
        run,
        max_steps=total_steps,
        steps_per_epoch=len(batches),
        seed=config["seed"],
        options=options,
        progress=TrainingProgress("images", recipe.batch_size, console),
        callbacks=[SaveEachEpoch(run)],
        resume=resume,
    )
