"""Runs that a reproduction needs: found by their configuration, continued, or trained."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..algorithms.composition import Composition
from ..algorithms.recipe import MetaRecipe, meta_training
from ..backbones.base import build_backbone
from ..data.root import load_split
from ..errors import RunError, UnknownNameError
from ..plain import from_plain
from ..registry import DATASETS
from ..runs import Run, new_run_folder
from ..training.engine import EngineOptions
from ..training.meta_training import Validation, train, train_config
from ..training.pretraining import PretrainSource, pretrain, pretrain_config
from ..training.recipes import PretrainRecipe, base_class_pretraining
from .specification import PRETRAINING


@dataclass(frozen=True)
class Amount:
    """How much of the recipes is trained.

    Args:
        pretrain_epochs: Epochs of the pretraining; None for its whole recipe.
        train_steps: Steps of the meta-training; None for the paper's 60,000.
    """

    pretrain_epochs: int | None
    train_steps: int | None


@dataclass(frozen=True)
class Scale:
    """How much of the paper's schedule is trained and evaluated.

    Args:
        name: As typed.
        amount: How much is trained.
        resnet12: The same for ResNet12, a step of which costs over five times as much as Conv4's.
        train_queries: Query images a class in training; None for the paper's 6.
        always_pretrained: Whether what the paper trains from scratch, for all its 60,000 steps, begins from a
            pretraining too.
        episodes: Test episodes, the paper's being 1,000.
        episodes_without_iam: The same where no method has IAM or episode batch norm, which need far more time.
    """

    name: str
    amount: Amount
    resnet12: Amount
    train_queries: int | None
    always_pretrained: bool
    episodes: int
    episodes_without_iam: int

    def amount_for(self, backbone: str) -> Amount:
        """How much of a training of this backbone."""
        return self.resnet12 if backbone == "resnet12" else self.amount


SCALES = {
    scale.name: scale
    for scale in (
        Scale("quick", Amount(1, 50), Amount(1, 20), 2, True, 200, 200),
        Scale("cpu", Amount(None, 2000), Amount(3, 60), 2, True, 1000, 10_000),
        Scale("paper", Amount(None, None), Amount(None, None), None, False, 1000, 1000),
    )
}


def find_scale(name: str) -> Scale:
    """The scale of that name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in SCALES:
        raise UnknownNameError("scale", name, SCALES)
    return SCALES[name]


@dataclass(frozen=True)
class Training:
    """A run that is wanted.

    Args:
        kind: ``"pretrain"`` or ``"train"``.
        config: What its ``config.json`` would hold; ``pretrained`` is not yet known where ``begins_from`` is given.
        name: Name of its folder, if it has to be made.
        begins_from: The pretraining that it begins from.
    """

    kind: str
    config: dict[str, Any]
    name: str
    begins_from: Training | None = None


def wanted_training(
    algorithm: str,
    dataset: str,
    backbone: str,
    scale: Scale,
    seed: int,
    *,
    pretrained: bool,
    weights: Path | None = None,
    test_shots: int = 5,
) -> Training:
    """The training of an algorithm by the recipes, at a scale.

    Args:
        algorithm: A head, with ``+iam`` if wanted, or ``"pretrain"``.
        dataset: Name of the data set.
        backbone: Registered name.
        scale: How much of it.
        seed: What every random choice follows from.
        pretrained: Whether it begins from a pretrained backbone at every scale.
        weights: Run or weights file to begin from, in place of a pretraining on the base classes.
        test_shots: Shots that will be tested, on which miniImageNet's training shots depend.
    """
    size = DATASETS.get(dataset).image_size
    stem = f"reproduce-{scale.name}-{dataset}-{backbone}"
    amount = scale.amount_for(backbone)
    pretraining = base_class_pretraining(size)
    pretraining = replace(pretraining, epochs=amount.pretrain_epochs or pretraining.epochs)
    source = Training(
        "pretrain",
        pretrain_config(PretrainSource(dataset), backbone, size, pretraining, None, seed, "auto"),
        f"{stem}-pretrained",
    )
    if algorithm == PRETRAINING:
        return source
    pretrained = pretrained or scale.always_pretrained or weights is not None
    recipe = meta_training(dataset, backbone, size, pretrained, test_shots)
    if scale.train_queries is not None:
        recipe = replace(recipe, queries=scale.train_queries)
    composition, validation = Composition.parse(algorithm), Validation(min(2000, 2 * scale.episodes))
    config = train_config(
        dataset, backbone, size, composition, recipe, validation, weights, amount.train_steps, seed, "auto"
    )
    return Training("train", config, f"{stem}-{composition}", source if pretrained and weights is None else None)


def identity(config: dict[str, Any], within: tuple[str, ...] = ()) -> dict[str, Any]:
    """A configuration with its pretraining's own configuration in place of the folder's path.

    Args:
        config: The configuration.
        within: Folders whose pretraining this is; a damaged one may name itself.
    """
    source = config.get("pretrained")
    if isinstance(source, str) and source not in within:
        with suppress(RunError):  # a weights file, or a folder that is gone or damaged
            source = identity(Run.open(Path(source)).config, (*within, source))
    return json.loads(json.dumps({**config, "pretrained": source, "format": None}))


def wanted_identity(training: Training) -> dict[str, Any]:
    """What :func:`identity` gives for the run of a training."""
    own = identity(training.config)
    return {**own, "pretrained": wanted_identity(training.begins_from)} if training.begins_from else own


def existing(training: Training, runs: Path) -> Run | None:
    """The run with exactly this configuration, finished ones first; None if there is none."""
    same = [run for run in _all_runs(runs) if identity(run.config) == wanted_identity(training)]
    return max(same, key=steps_done, default=None)


def _all_runs(folder: Path) -> list[Run]:
    found = []
    for file in sorted(folder.glob("*/config.json")):
        try:
            found.append(Run.open(file.parent))
        except RunError:  # a damaged or foreign folder is not ours to mend, and not to be used
            continue
    return found


def steps_done(run: Run) -> int:
    """Optimiser steps in the run's checkpoint, 0 if it has none."""
    if not run.checkpoint.is_file():
        return 0
    try:
        return int(torch.load(run.checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"])
    except Exception:  # torch and pickle have many errors for the many ways of being damaged
        return 0


def total_steps(config: dict[str, Any], images: int) -> int:
    """Optimiser steps of a training.

    Args:
        config: Its configuration.
        images: Number of training images, on which a pretraining's depend.
    """
    if config["kind"] == "train":
        recipe = from_plain(MetaRecipe, config["recipe"])
        whole = recipe.epochs * recipe.steps_per_epoch
    else:
        pretraining = from_plain(PretrainRecipe, config["recipe"])
        whole = pretraining.epochs * pretraining.steps_per_epoch(images)
    return min(whole, config["max_steps"] or whole)


def ensure(training: Training, runs: Path, data_root: Path | None, resume: bool, console: Console) -> Run:
    """The trained run: an existing one with the same configuration, continued if allowed, or a new one.

    Raises:
        RunError: If it was interrupted, and must not be continued.
    """
    config = training.config
    if training.begins_from is not None:
        source = ensure(training.begins_from, runs, data_root, resume, console)
        config = {**config, "pretrained": str(source.path.resolve())}
    run = existing(training, runs)
    images = len(load_split(config["dataset"], "train", data_root).labels)
    if run is not None and steps_done(run) >= total_steps(config, images):
        console.print(f"{run.path} has this configuration and is used.", highlight=False, soft_wrap=True)
        return run
    if run is not None and not resume:
        raise RunError(f"{run.path} has this configuration but is not finished: continue it with --resume.")
    again = run is not None
    run = run or Run(new_run_folder(runs, None, training.name), config)
    console.print(
        f"{'Continuing' if again else 'Training'} {run.path}: {describe(config)}.", highlight=False, soft_wrap=True
    )
    work: Callable[..., None] = train if training.kind == "train" else pretrain
    work(run, EngineOptions(), data_root=data_root, resume=again, console=console)
    return Run.open(run.path)


def describe(config: dict[str, Any]) -> str:
    """What a run was trained with, in a few words to stand beside its numbers.

    Example:
        >>> describe({"kind": "pretrain", "dataset": "cifar-fs", "max_steps": None, "recipe": {"epochs": 12}})
        'base classes, 12 epochs'
    """
    recipe, limit = config["recipe"], config["max_steps"]
    if config["kind"] == "pretrain":
        what = "base classes" if config["dataset"] else "Places365" if config["places"] else "a folder of images"
        epochs = "1 epoch" if recipe["epochs"] == 1 else f"{recipe['epochs']} epochs"
        return f"{what}, at most {limit:,} steps" if limit else f"{what}, {epochs}"
    whole = recipe["epochs"] * recipe["steps_per_epoch"]
    amount = f"{limit:,} of {whole:,}" if limit and limit < whole else f"{whole:,}"
    episodes = f"{recipe['episodes_per_step']} episodes with {recipe['shots']} + {recipe['queries']} images a class"
    own = f"{config['algorithm']}, {amount} steps of {episodes}"
    source = config["pretrained"]
    if not source:
        return own
    folder = Path(source)
    start = describe(Run.open(folder).config) if (folder / "config.json").is_file() else f"weights {folder.name}"
    return f"{start}; then {own}"


@cache
def seconds_per_image(backbone: str, image_size: int, device: torch.device | str) -> float:
    """Time of a training step for one image, the shortest of a few steps: measured once, the same in every estimate."""
    model = build_backbone(backbone, image_size).to(device).to(memory_format=torch.channels_last).train()
    images = torch.rand(32, 3, image_size, image_size, device=device).to(memory_format=torch.channels_last)
    steps = []
    for _ in range(4):
        began = time.perf_counter()
        model(images).square().mean().backward()
        if images.is_cuda:
            torch.cuda.synchronize(device)
        steps.append(time.perf_counter() - began)
    return min(steps) / len(images)


def images_per_step(config: dict[str, Any]) -> int:
    """Images that a step computes."""
    recipe = config["recipe"]
    if config["kind"] == "pretrain":
        return int(recipe["batch_size"])
    return int(recipe["episodes_per_step"] * recipe["ways"] * (recipe["shots"] + recipe["queries"]))
