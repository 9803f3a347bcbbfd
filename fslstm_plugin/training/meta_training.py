"""Meta-training: episodes, validation on episodes of unseen classes, best and last weights kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from rich.console import Console

from ..algorithms.composition import Composition
from ..algorithms.few_shot import LightningFewShot, algorithm_for
from ..algorithms.recipe import MetaRecipe
from ..backbones.base import build_backbone, normalization_of
from ..data.base import Split
from ..data.root import load_split
from ..data.sampler import EpisodeSampler
from ..evaluation.engine import Method, run_methods
from ..evaluation.features import extract_features
from ..evaluation.statistics import estimate
from ..runs import Run
from .engine import EngineOptions, TrainingProgress, fit, resolve_precision
from .pretrained import load_backbone
from .streams import EpisodeStream


@dataclass(frozen=True)
class Validation:
    """How the best weights are chosen.

    Args:
        episodes: Number of validation episodes, 5-way 5-shot with 15 queries a class.
        ways: Classes an episode.
        shots: Support images a class.
        queries: Query images a class.
    """

    episodes: int = 2000
    ways: int = 5
    shots: int = 5
    queries: int = 15


class KeepBest(pl.Callback):
    """Validates at the end of each epoch and saves the weights that are best so far.

    Args:
        run: Where to save them.
        split: The validation split.
        validation: Number and shape of the episodes, the same ones each time.
        head_name: For the method that is evaluated.
        seed: What the episodes follow from.
        console: Where the result is reported.
    """

    def __init__(
        self, run: Run, split: Split, validation: Validation, head_name: str, seed: int, console: Console
    ) -> None:
        self.run, self.split, self.validation, self.head_name = run, split, validation, head_name
        self.console = console
        self.best = -1.0
        self.sampler = EpisodeSampler(
            split.labels, validation.ways, validation.shots, validation.queries, seed, split.class_names
        )

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what the checkpoint kept."""
        self.best = state_dict["best"]

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validate, and save if better."""
        assert isinstance(module, LightningFewShot)
        if not trainer.is_global_zero:
            return
        module.eval()
        features = extract_features(module.features, self.split, module.device).to(module.device)
        method = Method(self.head_name, module.head, module.attention)
        outcome = run_methods(
            lambda indices: features[indices], self.sampler, [method], self.validation.episodes, module.device
        )[0]
        module.train()
        accuracy = estimate(outcome.accuracies)
        module.log("valid_accuracy", accuracy.mean / 100, on_step=False, on_epoch=True, rank_zero_only=True)
        better = accuracy.mean > self.best
        if better:
            self.best = accuracy.mean
            self.run.save_weights(module)
        self.console.print(
            f"step {trainer.global_step}: validation accuracy {accuracy.mean:.2f} ± {accuracy.ci95:.2f} %"
            f"{', the best so far' if better else ''}",
            highlight=False,
        )


def train_config(
    dataset: str,
    backbone: str,
    image_size: int,
    algorithm: Composition,
    recipe: MetaRecipe,
    validation: Validation,
    pretrained: Path | None,
    max_steps: int | None,
    seed: int,
    precision: str,
) -> dict[str, Any]:
    """The configuration that a meta-training's run folder keeps.

    Args:
        dataset: Name of the data set.
        backbone: Registered name.
        image_size: Side of the images in pixels.
        algorithm: Head and modules.
        recipe: Episodes, rates, schedule, augmentation.
        validation: How the best weights are chosen.
        pretrained: Run folder or weights file that the backbone begins from.
        max_steps: Stop after so many steps; the schedule shrinks with it. None for all epochs.
        seed: What every random choice follows from.
        precision: ``"auto"``, ``"32"`` or ``"bf16"``; what it means on this machine is kept.

    Raises:
        UsageError: If the recipe does not fit the images.
    """
    recipe.augmentation.require_fit(image_size)
    return {
        "kind": "train",
        "dataset": dataset,
        "backbone": backbone,
        "image_size": image_size,
        "algorithm": str(algorithm),
        "recipe": asdict(recipe),
        "validation": asdict(validation),
        "pretrained": str(pretrained.resolve()) if pretrained else None,
        "max_steps": max_steps,
        "seed": seed,
        "precision": resolve_precision(precision),
    }


def train(
    run: Run, options: EngineOptions, *, data_root: Path | None = None, resume: bool = False, console: Console
) -> None:
    """Meta-train the model of a run folder's configuration and save its best weights there.

    Args:
        run: The run folder with the configuration of :func:`train_config`.
        options: Devices and precision.
        data_root: Where the data sets are; the default root if None.
        resume: Continue from the run's last checkpoint.
        console: Where progress is shown.

    Raises:
        DataError: If the data set is missing.
        RunError: If the pretrained weights are missing or do not fit.
        UsageError: If an episode needs more classes or images than there are.
    """
    config = run.config
    seed, recipe = config["seed"], run.part("recipe", MetaRecipe)
    algorithm = Composition.parse(config["algorithm"])
    pl.seed_everything(seed, verbose=False)
    backbone = build_backbone(config["backbone"], config["image_size"])
    train_split = load_split(config["dataset"], "train", data_root)
    val_split = load_split(config["dataset"], "val", data_root)
    if config["pretrained"] and not run.checkpoint.is_file():
        left_out = load_backbone(backbone, Path(config["pretrained"]))
        if left_out:
            console.print(f"Left out of {config['pretrained']}: {', '.join(left_out)}.", highlight=False, markup=False)
    module = algorithm_for(algorithm.head)(
        backbone,
        recipe=recipe,
        iam=algorithm.iam,
        iam_reduction=recipe.iam_reduction,
        iam_dropout=recipe.iam_dropout,
        label_smoothing=recipe.label_smoothing,
        train_ways=recipe.ways,
        train_shots=recipe.shots,
        train_queries=recipe.queries,
    )
    sampler = EpisodeSampler(
        train_split.labels, recipe.ways, recipe.shots, recipe.queries, seed, train_split.class_names
    )
    total_steps = min(recipe.epochs * recipe.steps_per_epoch, config["max_steps"] or 2**62)
    steps_per_epoch = min(recipe.steps_per_epoch, total_steps)
    stream = EpisodeStream(
        train_split,
        sampler,
        normalization_of(backbone),
        recipe.augmentation,
        recipe.episodes_per_step,
        steps_per_epoch,
        module,
    )
    validation = run.part("validation", Validation)
    fit(
        module,
        stream,
        run,
        max_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        seed=seed,
        options=options,
        progress=TrainingProgress("episodes", recipe.episodes_per_step, console),
        callbacks=[KeepBest(run, val_split, validation, algorithm.head, seed, console)],
        resume=resume,
    )
